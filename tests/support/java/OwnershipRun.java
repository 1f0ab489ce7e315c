import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * The worker `ownership` of the benchmarks, with the Java consumer: for each period in which it owned a partition, it
 * remembers the first and the last record.
 *
 * Arguments: topic, and properties as key=value. Orders and reports are as in
 * `tests/benchmarks/workers/ownership.py`. On Linux, System.nanoTime is CLOCK_MONOTONIC.
 */
public class OwnershipRun implements ConsumerRebalanceListener {
    /** One row of the report `periods`, with the fields in the order of the report. */
    private static final class Period {
        final int partition;
        final long first;
        final double sentAt;
        final double firstAt;
        long last;
        double lastAt;
        long repeated;
        long skipped;

        Period(ConsumerRecord<byte[], byte[]> record, double at) {
            partition = record.partition();
            first = last = record.offset();
            sentAt = ByteBuffer.wrap(record.value()).getDouble(Long.BYTES);
            firstAt = lastAt = at;
        }

        void add(long offset, double at) {
            if (offset <= last) {
                repeated++;
            } else {
                skipped += offset - last - 1;
            }
            last = offset;
            lastAt = at;
        }

        @Override
        public String toString() {
            return String.format("[%d, %d, %.6f, %.6f, %d, %.6f, %d, %d]",
                partition, first, sentAt, firstAt, last, lastAt, repeated, skipped);
        }
    }

    private final Map<Integer, Period> current = new HashMap<>();
    private final List<Period> over = new ArrayList<>();
    private final List<String> errors = new ArrayList<>();
    private volatile boolean isEnding;

    public static void main(String[] words) throws IOException {
        OwnershipRun owner = new OwnershipRun();
        Map<String, Object> config = new HashMap<>();
        for (int place = 1; place < words.length; place++) {
            int at = words[place].indexOf('=');
            config.put(words[place].substring(0, at), words[place].substring(at + 1));
        }
        // Loads the classes first, as the Python workers import their modules before they are ready.
        try (KafkaConsumer<byte[], byte[]> first = consumer(config)) {
            first.partitionsFor(words[0]);
        }
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        owner.report("ready", "");
        if (!"subscribe".equals(orders.readLine())) {
            return;
        }
        Thread listener = new Thread(() -> owner.listen(orders));
        listener.setDaemon(true);
        listener.start();
        owner.work(config, words[0]);
        System.exit(0);
    }

    private static KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> config) {
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private void listen(BufferedReader orders) {
        try {
            String order = orders.readLine();
            while (order != null && !"end".equals(order)) {
                order = orders.readLine();
            }
        } catch (IOException error) {
            errors.add(error.getClass().getSimpleName());
        }
        isEnding = true;
    }

    private void work(Map<String, Object> config, String topic) {
        KafkaConsumer<byte[], byte[]> consumer = consumer(config);
        consumer.subscribe(List.of(topic), this);
        report("subscribed", "");
        try {
            while (!isEnding) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    handle(record);
                }
            }
        } catch (KafkaException error) {
            errors.add(error.getClass().getSimpleName());
        }
        report("leaving", "");
        consumer.close();
        report("left", "");
        over.addAll(current.values());
        report("periods", ", \"rows\": " + over + ", \"errors\": ["
            + errors.stream().map(one -> "\"" + one + "\"").collect(Collectors.joining(", ")) + "]");
    }

    private void handle(ConsumerRecord<byte[], byte[]> record) {
        Period period = current.get(record.partition());
        if (period == null) {
            current.put(record.partition(), new Period(record, now()));
        } else {
            period.add(record.offset(), now());
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        report("assigned", partitions);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        release("revoked", partitions);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        release("lost", partitions);
    }

    private void release(String event, Collection<TopicPartition> partitions) {
        for (TopicPartition partition : partitions) {
            Period period = current.remove(partition.partition());
            if (period != null) {
                over.add(period);
            }
        }
        report(event, partitions);
    }

    private void report(String event, Collection<TopicPartition> partitions) {
        report(event, ", \"partitions\": " + partitions.stream().map(TopicPartition::partition).collect(Collectors.toList()));
    }

    private static double now() {
        return System.nanoTime() / 1e9;
    }

    private void report(String event, String facts) {
        System.out.printf("{\"event\": \"%s\", \"at\": %.6f%s}%n", event, now(), facts);
        System.out.flush();
    }
}
