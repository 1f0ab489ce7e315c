import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;

import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of a chaos round that uses the Java consumer. It writes the history that `tests/chaos/history.py` describes,
 * with times of System.nanoTime(), the monotonic clock that all processes of a Linux machine share.
 *
 * Arguments: process, group, topic, folder, instance id (empty: none), kind, and properties as key=value. Each line of
 * stdin is an order (`tests/chaos/members/account.py`). The member closes at the end of stdin and on SIGTERM.
 */
public class ChaosMember implements ConsumerRebalanceListener {
    private static final long COMMIT_NS = 500_000_000L;

    private final String process;
    private final FileOutputStream history;
    private final Map<TopicPartition, Long> positions = new TreeMap<>(
        java.util.Comparator.comparing(TopicPartition::topic).thenComparing(TopicPartition::partition));
    private KafkaConsumer<String, String> consumer;
    private long committedAt = System.nanoTime();
    private int commits;
    private volatile boolean isClosing;
    private volatile long slowMs;
    private volatile long raisesUntil = System.nanoTime();
    private volatile long sleepMs;

    private ChaosMember(String process, FileOutputStream history) {
        this.process = process;
        this.history = history;
    }

    public static void main(String[] words) throws Exception {
        String process = words[0];
        ChaosMember member = new ChaosMember(process, new FileOutputStream(words[3] + "/" + process + ".history", true));
        Map<String, Object> config = new HashMap<>();
        for (int place = 6; place < words.length; place++) {
            int at = words[place].indexOf('=');
            config.put(words[place].substring(0, at), words[place].substring(at + 1));
        }
        String instance = words[4].isEmpty() ? "null" : text(words[4]);
        if (!words[4].isEmpty()) {
            config.put("group.instance.id", words[4]);
        }
        member.write("Started", "\"group\":" + text(words[1]) + ",\"kind\":" + text(words[5]) + ",\"pid\":"
            + ProcessHandle.current().pid() + ",\"client\":\"java\",\"instance_id\":" + instance);
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            member.isClosing = true;
            try {
                main.join();
            } catch (InterruptedException ignored) {
                Thread.currentThread().interrupt();
            }
        }));
        Thread listener = new Thread(member::listen);
        listener.setDaemon(true);
        listener.start();
        // Not with System.exit: it would wait for the shutdown hook, which waits for this thread.
        member.run(config, words[2]);
    }

    private void listen() {
        try (BufferedReader orders = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = orders.readLine(); line != null; line = orders.readLine()) {
                String[] order = line.trim().split(" ");
                long ms = (long) (Double.parseDouble(order[1]) * 1000);
                switch (order[0]) {
                    case "slow-callbacks" -> slowMs = ms;
                    case "raising-callbacks" -> raisesUntil = System.nanoTime() + ms * 1_000_000;
                    // A JVM has no GIL: the application sleeps, and heartbeats continue.
                    default -> sleepMs = ms;
                }
            }
        } catch (IOException error) {
            error.printStackTrace();
        }
        isClosing = true;
    }

    private void run(Map<String, Object> config, String topic) throws InterruptedException {
        consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(topic), this);
        boolean isFatal = false;
        while (!isClosing && !isFatal) {
            long slept = sleepMs;
            sleepMs = 0;
            Thread.sleep(slept);
            try {
                long begun = System.nanoTime();
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    received(record, begun);
                }
                if (!positions.isEmpty() && System.nanoTime() > committedAt + COMMIT_NS) {
                    committedAt = System.nanoTime();
                    commit(positions.keySet().stream().toList());
                }
            } catch (KafkaException error) {
                isFatal = isFatal(error);
                write("Raised", "\"error\":" + text(error.toString()) + ",\"is_fatal\":" + isFatal);
            }
        }
        try {
            consumer.close();
        } catch (KafkaException error) {
            write("Raised", "\"error\":" + text(error.toString()) + ",\"is_fatal\":false");
        }
        write("Closed", "");
    }

    /** Whether an exception is fatal: a fenced member cannot continue. Exceptions of callbacks have another class. */
    private static boolean isFatal(KafkaException error) {
        return error instanceof org.apache.kafka.common.errors.FencedInstanceIdException
            || error instanceof org.apache.kafka.common.errors.AuthorizationException
            || error instanceof InterruptException;
    }

    private void received(ConsumerRecord<String, String> record, long begun) {
        TopicPartition partition = new TopicPartition(record.topic(), record.partition());
        write("Received", "\"partition\":" + named(partition) + ",\"offset\":" + record.offset() + ",\"number\":"
            + record.value() + ",\"begun_ns\":" + begun + ",\"key\":" + text(record.key()));
        positions.put(partition, record.offset() + 1);
    }

    private void commit(Collection<TopicPartition> partitions) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (TopicPartition partition : partitions) {
            Long offset = positions.remove(partition);
            if (offset != null) {
                offsets.put(partition, new OffsetAndMetadata(offset));
            }
        }
        if (offsets.isEmpty()) {
            return;
        }
        int number = ++commits;
        write("CommitBegun", "\"commit\":" + number + ",\"offsets\":[" + offsets.entrySet().stream()
            .map(one -> "[" + text(one.getKey().topic()) + "," + one.getKey().partition() + ","
                + one.getValue().offset() + "]").collect(Collectors.joining(",")) + "]");
        String error = "null";
        boolean isUnknown = false;
        try {
            consumer.commitSync(offsets, Duration.ofSeconds(10));
        } catch (CommitFailedException | RebalanceInProgressException failed) {
            error = text(failed.getClass().getSimpleName());
        } catch (WakeupException | TimeoutException failed) {
            error = text(failed.getClass().getSimpleName());
            isUnknown = true;
        } catch (KafkaException failed) {
            error = text(failed.getClass().getSimpleName());
            isUnknown = true;
            if (isFatal(failed)) {
                throw failed;
            }
        } finally {
            write("CommitEnded", "\"commit\":" + number + ",\"error\":" + error + ",\"is_unknown\":" + isUnknown);
        }
    }

    private void slow() {
        if (System.nanoTime() < raisesUntil) {
            throw new IllegalStateException("ordered by the harness");
        }
        try {
            Thread.sleep(slowMs);
        } catch (InterruptedException ignored) {
            Thread.currentThread().interrupt();
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        if (partitions.isEmpty()) {
            return;
        }
        write("Assigned", "\"member_id\":" + text(consumer.groupMetadata().memberId()) + ",\"epochs\":["
            + partitions.stream().map(one -> "[" + text(one.topic()) + "," + one.partition() + ",-1]")
                .collect(Collectors.joining(",")) + "]");
        slow();
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        if (partitions.isEmpty()) {
            return;
        }
        try {
            commit(partitions);
            slow();
        } finally {
            gone("Revoked", partitions);
        }
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        if (!partitions.isEmpty()) {
            gone("Lost", partitions);
        }
    }

    private void gone(String event, Collection<TopicPartition> partitions) {
        positions.keySet().removeAll(partitions);
        write(event, "\"partitions\":["
            + partitions.stream().map(ChaosMember::named).collect(Collectors.joining(",")) + "]");
    }

    private static String named(TopicPartition partition) {
        return "[" + text(partition.topic()) + "," + partition.partition() + "]";
    }

    private static String text(String value) {
        String escaped = value.replace("\\", "\\\\").replace("\"", "\\\"").replaceAll("\\p{Cntrl}", " ");
        return "\"" + escaped + "\"";
    }

    private synchronized void write(String event, String facts) {
        String rest = facts.isEmpty() ? "" : "," + facts;
        String line = "{\"at\":" + System.nanoTime() + ",\"process\":" + text(process) + ",\"event\":\"" + event + "\""
            + rest + "}\n";
        try {
            history.write(line.getBytes(StandardCharsets.UTF_8));
        } catch (IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }
}
