import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.DescribeConsumerGroupsOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * The Java client whose frames are recorded: `python -m tests.wire.record_golden` compiles and runs this class.
 *
 * <pre>
 * RecordedClient group BOOTSTRAP GROUP PARTITIONS TOPIC,... KEY=VALUE...   two members, and an admin that describes the group
 * RecordedClient login BOOTSTRAP MECHANISM USER PASSWORD WRONG_PASSWORD    SASL, and once more with the wrong password
 * </pre>
 *
 * <p>The key `pattern` sets the pattern to which the second member subscribes; all other keys are consumer settings.
 */
public final class RecordedClient {
    private static final Duration POLL = Duration.ofMillis(50);
    private static final long PATIENCE_NS = 60_000_000_000L;

    private RecordedClient() {}

    /** See the class. */
    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("group")) {
            Map<String, Object> settings = new HashMap<>();
            for (int i = 5; i < arguments.length; i++) {
                String[] pair = arguments[i].split("=", 2);
                settings.put(pair[0], pair[1]);
            }
            int partitions = Integer.parseInt(arguments[3]);
            group(arguments[1], arguments[2], partitions, List.of(arguments[4].split(",")), settings);
        } else {
            for (int i = 4; i < 6; i++) {
                login(arguments[1], arguments[2], arguments[3], arguments[i]);
            }
        }
    }

    private static void group(
            String bootstrap, String group, int partitions, List<String> topics, Map<String, Object> settings)
            throws Exception {
        Object pattern = settings.remove("pattern");
        Map<String, Object> common = new HashMap<>(settings);
        common.put("bootstrap.servers", bootstrap);
        common.put("group.id", group);
        common.put("enable.auto.commit", "false");
        common.put("auto.offset.reset", "earliest");
        common.put("isolation.level", "read_committed");
        if (!"consumer".equals(settings.get("group.protocol"))) {
            common.put("heartbeat.interval.ms", "100");
        }
        Map<String, Object> ofFirst = new HashMap<>(common);
        ofFirst.put("client.id", "java-first");
        ofFirst.put("group.instance.id", "first");
        ofFirst.put("client.rack", "rack-1");
        Map<String, Object> ofSecond = new HashMap<>(common);
        ofSecond.put("client.id", "java-second");
        ofSecond.put("isolation.level", "read_uncommitted");
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "client.id", "java-admin"));
                KafkaConsumer<byte[], byte[]> first = consumer(ofFirst)) {
            first.subscribe(topics);
            List<KafkaConsumer<byte[], byte[]>> both = List.of(first);
            poll(both, () -> first.assignment().size() == partitions);
            offsets(first);
            try (KafkaConsumer<byte[], byte[]> second = consumer(ofSecond)) {
                if (pattern == null) {
                    second.subscribe(topics);
                } else {
                    second.subscribe(new SubscriptionPattern(pattern.toString()));
                }
                poll(List.of(first, second), () -> isDivided(first.assignment(), second.assignment(), partitions));
                offsets(second);
                look(admin, group, topics);
            }
            poll(both, () -> first.assignment().size() == partitions);
            first.unsubscribe();
            first.subscribe(topics.subList(0, 1));
            poll(both, () -> !first.assignment().isEmpty());
        }
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "client.id", "java-admin"))) {
            // A static member has kept its place if it requested that, or if the protocol requires it.
            RemoveMembersFromConsumerGroupOptions options =
                    new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("first")));
            options.reason("recorded");
            tried(admin.removeMembersFromConsumerGroup(group, options).all());
            TopicPartition one = new TopicPartition(topics.get(0), 0);
            tried(admin.alterConsumerGroupOffsets(group, Map.of(one, new OffsetAndMetadata(7))).all());
            tried(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
            tried(admin.describeConsumerGroups(List.of(group)).all());
        }
    }

    private static KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> settings) {
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static boolean isDivided(Set<TopicPartition> one, Set<TopicPartition> other, int partitions) {
        Set<TopicPartition> all = new HashSet<>(one);
        all.addAll(other);
        return !one.isEmpty() && !other.isEmpty() && all.size() == partitions;
    }

    private static void poll(Collection<KafkaConsumer<byte[], byte[]>> consumers, BooleanSupplier isDone) {
        long until = System.nanoTime() + PATIENCE_NS;
        while (!isDone.getAsBoolean()) {
            if (System.nanoTime() > until) {
                throw new IllegalStateException("the group did not come to rest in time");
            }
            for (KafkaConsumer<byte[], byte[]> one : consumers) {
                one.poll(POLL);
            }
        }
    }

    private static void offsets(KafkaConsumer<byte[], byte[]> consumer) {
        Set<TopicPartition> owned = consumer.assignment();
        TopicPartition one = owned.stream().min((a, b) -> a.toString().compareTo(b.toString())).orElseThrow();
        consumer.commitSync(Map.of(one, new OffsetAndMetadata(3, Optional.of(0), "golden")));
        consumer.commitSync();
        consumer.committed(owned);
        consumer.beginningOffsets(owned);
        consumer.endOffsets(owned);
        consumer.offsetsForTimes(Map.of(one, 1_000_000_000_000L));
        consumer.listTopics();
    }

    private static void look(Admin admin, String group, List<String> topics) throws InterruptedException {
        tried(admin.describeConsumerGroups(List.of(group)).all());
        DescribeConsumerGroupsOptions withOperations = new DescribeConsumerGroupsOptions();
        withOperations.includeAuthorizedOperations(true);
        tried(admin.describeConsumerGroups(List.of(group, "golden-nobodys"), withOperations).all());
        tried(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
        TopicPartition one = new TopicPartition(topics.get(0), 0);
        ListConsumerGroupOffsetsSpec some = new ListConsumerGroupOffsetsSpec();
        some.topicPartitions(List.of(one, new TopicPartition("golden-nobodys", 0)));
        tried(admin.listConsumerGroupOffsets(Map.of(group, some)).all());
        tried(admin.alterConsumerGroupOffsets(group, Map.of(one, new OffsetAndMetadata(7))).all());
        tried(admin.listOffsets(Map.of(one, OffsetSpec.maxTimestamp())).all());
        ListOffsetsOptions committed = new ListOffsetsOptions(IsolationLevel.READ_COMMITTED);
        tried(admin.listOffsets(Map.of(one, OffsetSpec.latest()), committed).all());
        tried(admin.describeCluster().nodes());
        tried(admin.listTopics().names());
        DescribeTopicsOptions operations = new DescribeTopicsOptions();
        operations.includeAuthorizedOperations(true);
        tried(admin.describeTopics(topics, operations).allTopicNames());
        try {
            Uuid id = admin.describeTopics(topics).allTopicNames().get().get(topics.get(0)).topicId();
            TopicCollection byId = TopicCollection.ofTopicIds(List.of(id, Uuid.ONE_UUID));
            tried(admin.describeTopics(byId, operations).allTopicIds());
        } catch (ExecutionException refused) {
            System.err.println(refused.getMessage());
        }
        ConfigResource ofGroup = new ConfigResource(ConfigResource.Type.GROUP, group);
        // Without the documentation of the keys, which is Kafka's text.
        tried(admin.describeConfigs(List.of(ofGroup)).all());
        DescribeConfigsOptions synonyms = new DescribeConfigsOptions();
        tried(admin.describeConfigs(List.of(ofGroup), synonyms.includeSynonyms(true)).all());
    }

    /** Wait for the result; a broker's error is recorded like any other response. */
    private static void tried(KafkaFuture<?> future) throws InterruptedException {
        try {
            future.get();
        } catch (ExecutionException refused) {
            System.err.println(refused.getMessage());
        }
    }

    private static void login(String bootstrap, String mechanism, String user, String password) throws Exception {
        String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("client.id", "java-admin");
        settings.put("security.protocol", "SASL_PLAINTEXT");
        settings.put("sasl.mechanism", mechanism);
        settings.put(
                "sasl.jaas.config",
                String.format(
                        "org.apache.kafka.common.security.%s required username=\"%s\" password=\"%s\";",
                        module, user, password));
        try (Admin admin = Admin.create(settings)) {
            tried(admin.describeCluster().nodes());
        }
    }
}
