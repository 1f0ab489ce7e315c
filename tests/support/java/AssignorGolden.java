import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Prints the assignments of Java's four classic assignors for generated groups, as JSON: the golden data of
 * tests/membership/classic.
 *
 * <p>This program is part of this project, and calls only the public assignors of kafka-clients. It needs Java 17 and
 * the jars that devbroker has fetched. It prints one line for each group; equal seeds print equal lines:
 *
 * <pre>
 * L=~/.cache/consumer-membership/kafka-4.3.1/libs
 * java -Dorg.slf4j.simpleLogger.defaultLogLevel=off -cp "$L/*" tests/support/java/AssignorGolden.java 792 420 \
 *     > tests/membership/classic/golden_assignors.jsonl
 * </pre>
 *
 * <p>A group is new ("fresh"), or it changed after an earlier assignment ("changed"), or several of its members claim
 * the same partitions, in the same or in different generations ("claims"). Subscriptions are equal or different; every
 * third group has racks. A member of a client before KIP-792 ("old") sends its generation in user data.
 */
public final class AssignorGolden {
    private static final int RACKS = 3;
    private static final int LAST_GENERATION = 7;
    private final Random random;

    private AssignorGolden(long seed) {
        random = new Random(seed);
    }

    /** A generated member. */
    private static final class Member {
        TreeSet<String> topics = new TreeSet<>();
        TreeSet<String> owned = new TreeSet<>();
        int generation = -1;
        boolean isOld;
        String instance;
        String rack;
    }

    /** A generated group. */
    private static final class Group {
        final TreeMap<String, Integer> topics = new TreeMap<>();
        final TreeMap<String, List<String>> racks = new TreeMap<>();
        final TreeMap<String, Member> members = new TreeMap<>();
    }

    public static void main(String[] arguments) throws Exception {
        AssignorGolden golden = new AssignorGolden(Long.parseLong(arguments[0]));
        ObjectMapper json = new ObjectMapper();
        for (int number = 0; number < Integer.parseInt(arguments[1]); number++)
            System.out.println(json.writeValueAsString(golden.line(number)));
    }

    private Map<String, Object> line(int number) {
        boolean isEqual = number % 2 == 0;
        boolean hasRacks = number % 3 == 0;
        String kind = List.of("fresh", "changed", "claims", "changed").get((number / 6) % 4);
        Group group = group(isEqual, hasRacks);
        if (!kind.equals("fresh")) {
            Map<String, List<TopicPartition>> before = assign(new StickyAssignor(), group, true);
            before.forEach((id, partitions) -> {
                Member member = group.members.get(id);
                partitions.forEach(partition -> member.owned.add(partition.topic() + ":" + partition.partition()));
                member.generation = LAST_GENERATION;
            });
            change(group, isEqual, hasRacks);
            if (kind.equals("claims"))
                claim(group);
            else
                group.members.values().forEach(member -> member.isOld = random.nextInt(8) == 0);
        }
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("kind", kind);
        line.put("topics", group.topics);
        if (hasRacks)
            line.put("racks", group.racks);
        Map<String, Object> members = new LinkedHashMap<>();
        group.members.forEach((id, member) -> members.put(id, described(member)));
        line.put("members", members);
        line.put("range", written(assign(new RangeAssignor(), group, false)));
        line.put("roundrobin", written(assign(new RoundRobinAssignor(), group, false)));
        line.put("sticky", written(assign(new StickyAssignor(), group, true)));
        line.put("cooperative-sticky", written(assign(new CooperativeStickyAssignor(), group, false)));
        return line;
    }

    private Group group(boolean isEqual, boolean hasRacks) {
        Group group = new Group();
        int topics = 1 + random.nextInt(5);
        boolean isCoPartitioned = random.nextInt(3) == 0;
        int partitions = 1 + random.nextInt(9);
        for (int number = 0; number < topics; number++)
            addTopic(group, "t" + number, isCoPartitioned ? partitions : 1 + random.nextInt(9), hasRacks);
        int members = 1 + random.nextInt(7);
        for (int number = 0; number < members; number++)
            addMember(group, isEqual, hasRacks);
        return group;
    }

    private void addTopic(Group group, String topic, int partitions, boolean hasRacks) {
        group.topics.put(topic, partitions);
        group.racks.computeIfAbsent(topic, ignored -> new ArrayList<>());
        grow(group, topic, hasRacks);
    }

    private void grow(Group group, String topic, boolean hasRacks) {
        List<String> racks = group.racks.get(topic);
        while (racks.size() < group.topics.get(topic)) {
            StringBuilder chosen = new StringBuilder();
            for (int rack = 0; rack < RACKS && hasRacks; rack++)
                if (random.nextInt(5) < 2)
                    chosen.append(rack);
            racks.add(chosen.toString());
        }
    }

    private void addMember(Group group, boolean isEqual, boolean hasRacks) {
        Member member = new Member();
        for (String topic : group.topics.keySet())
            if (isEqual || random.nextInt(3) > 0)
                member.topics.add(topic);
        if (random.nextInt(4) == 0)
            member.instance = "i" + random.nextInt(100_000);
        if (hasRacks && random.nextInt(6) > 0)
            member.rack = String.valueOf(random.nextInt(RACKS + (random.nextInt(8) == 0 ? 1 : 0)));
        group.members.put(String.format("c-%05x", random.nextInt(1 << 20)), member);
    }

    /** Change a group: members leave and join, topics are added and get partitions, subscriptions change. */
    private void change(Group group, boolean isEqual, boolean hasRacks) {
        for (int left = random.nextInt(3); left > 0 && group.members.size() > 1; left--)
            group.members.remove(any(group.members.keySet()));
        for (int joined = random.nextInt(3); joined > 0; joined--)
            addMember(group, isEqual, hasRacks);
        if (random.nextInt(3) == 0) {
            String topic = any(group.topics.keySet());
            group.topics.merge(topic, 1 + random.nextInt(3), Integer::sum);
            grow(group, topic, hasRacks);
        }
        if (random.nextInt(3) == 0) {
            addTopic(group, "t" + group.topics.size(), 1 + random.nextInt(5), hasRacks);
            String topic = group.topics.lastKey();
            group.members.values().stream().filter(m -> isEqual || random.nextBoolean()).forEach(m -> m.topics.add(topic));
        }
        if (!isEqual && random.nextBoolean()) {
            Member member = group.members.get(any(group.members.keySet()));
            String topic = any(group.topics.keySet());
            if (!member.topics.remove(topic))
                member.topics.add(topic);
        }
    }

    /** Some members missed generations or were reset; some claim partitions that another member also claims. */
    private void claim(Group group) {
        for (Member member : group.members.values()) {
            if (random.nextInt(3) == 0)
                member.generation = List.of(-1, 5, 6).get(random.nextInt(3));
            Member other = group.members.get(any(group.members.keySet()));
            for (String partition : other.owned)
                if (random.nextInt(4) == 0)
                    member.owned.add(partition);
        }
    }

    private String any(Set<String> words) {
        return new ArrayList<>(new TreeSet<>(words)).get(random.nextInt(words.size()));
    }

    private static Map<String, List<TopicPartition>> assign(
            ConsumerPartitionAssignor assignor, Group group, boolean isEager) {
        Node[] nodes = new Node[RACKS];
        for (int rack = 0; rack < RACKS; rack++)
            nodes[rack] = new Node(rack, "localhost", 9000 + rack, String.valueOf(rack));
        List<PartitionInfo> partitions = new ArrayList<>();
        group.topics.forEach((topic, count) -> {
            for (int number = 0; number < count; number++) {
                Node[] replicas = group.racks.get(topic).get(number).chars().mapToObj(c -> nodes[c - '0']).toArray(Node[]::new);
                partitions.add(new PartitionInfo(topic, number, nodes[0], replicas, replicas));
            }
        });
        Cluster cluster = new Cluster("golden", List.of(nodes), partitions, Set.of(), Set.of());
        Map<String, Subscription> subscriptions = new HashMap<>();
        group.members.forEach((id, member) -> subscriptions.put(id, subscription(member, isEager)));
        Map<String, List<TopicPartition>> result = new TreeMap<>();
        assignor.assign(cluster, new GroupSubscription(subscriptions)).groupAssignment()
            .forEach((id, assignment) -> result.put(id, assignment.partitions()));
        return result;
    }

    private static Subscription subscription(Member member, boolean isEager) {
        List<TopicPartition> owned = new ArrayList<>();
        member.owned.forEach(word -> {
            String[] parts = word.split(":");
            owned.add(new TopicPartition(parts[0], Integer.parseInt(parts[1])));
        });
        ByteBuffer userData = null;
        if (isEager)
            userData = stickyData(member, owned);
        else if (member.isOld)
            userData = ByteBuffer.allocate(4).putInt(0, member.generation);
        Subscription subscription = new Subscription(new ArrayList<>(member.topics), userData,
            isEager ? Collections.emptyList() : owned, member.isOld ? -1 : member.generation,
            Optional.ofNullable(member.rack));
        subscription.setGroupInstanceId(Optional.ofNullable(member.instance));
        return subscription;
    }

    /** Return the user data of a real StickyAssignor after an assignment of these partitions. */
    private static ByteBuffer stickyData(Member member, List<TopicPartition> owned) {
        StickyAssignor assignor = new StickyAssignor();
        if (!owned.isEmpty() || member.generation >= 0)
            assignor.onAssignment(new Assignment(owned),
                new ConsumerGroupMetadata("golden", member.generation, "member", Optional.empty()));
        return assignor.subscriptionUserData(Set.of());
    }

    private static Map<String, Object> described(Member member) {
        Map<String, Object> words = new LinkedHashMap<>();
        words.put("topics", String.join(" ", member.topics));
        if (!member.owned.isEmpty()) {
            List<TopicPartition> owned = new ArrayList<>();
            member.owned.forEach(word -> {
                String[] parts = word.split(":");
                owned.add(new TopicPartition(parts[0], Integer.parseInt(parts[1])));
            });
            words.put("owned", words(owned));
            if (member.owned.size() < 4)
                words.put("sticky", HexFormat.of().formatHex(stickyData(member, owned).array()));
        }
        if (member.generation >= 0)
            words.put("generation", member.generation);
        if (member.isOld)
            words.put("old", true);
        if (member.instance != null)
            words.put("instance", member.instance);
        if (member.rack != null)
            words.put("rack", member.rack);
        return words;
    }

    private static Map<String, String> written(Map<String, List<TopicPartition>> assignment) {
        Map<String, String> words = new TreeMap<>();
        assignment.forEach((id, partitions) -> words.put(id, words(partitions)));
        return words;
    }

    /** Return partitions as text, sorted by topic and number, for example "t0:0,2 t1:1". */
    private static String words(List<TopicPartition> partitions) {
        TreeMap<String, TreeSet<Integer>> numbers = new TreeMap<>();
        partitions.forEach(p -> numbers.computeIfAbsent(p.topic(), ignored -> new TreeSet<>()).add(p.partition()));
        List<String> words = new ArrayList<>();
        numbers.forEach((topic, some) -> words.add(topic + ":" + String.join(",", some.stream().map(String::valueOf).toList())));
        return String.join(" ", words);
    }
}
