import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;

import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Process a topic with Confluent's Parallel Consumer, ordered by key. One process runs all groups, one after the other.
 *
 * Arguments: bootstrap servers, topic, number of records, wait of each handler in milliseconds, concurrency, and the
 * groups. It prints one JSON line for each group, with the fields of the Python programs (`workers/handlers.py`). Each
 * value begins with the record's number as a big-endian long. The JVM and the options have their defaults.
 */
public class ParallelConsumerRun {
    private static final com.sun.management.OperatingSystemMXBean SYSTEM =
        (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private final long expected;
    private final long waitMs;
    private final AtomicLong begun = new AtomicLong();
    private final AtomicLong ended = new AtomicLong();
    private final AtomicLong disordered = new AtomicLong();
    private final CountDownLatch done = new CountDownLatch(1);
    private final Map<ByteBuffer, KeyProgress> keys = new ConcurrentHashMap<>();
    private volatile long firstAt;
    private volatile long firstCpu;
    private volatile long lastAt;
    private volatile long lastCpu;

    private ParallelConsumerRun(long expected, long waitMs) {
        this.expected = expected;
        this.waitMs = waitMs;
    }

    public static void main(String[] words) throws Exception {
        for (int place = 5; place < words.length; place++) {
            new ParallelConsumerRun(Long.parseLong(words[2]), Long.parseLong(words[3]))
                .process(words[0], words[1], Integer.parseInt(words[4]), words[place]);
        }
        System.exit(0);
    }

    private void process(String bootstrap, String topic, int concurrency, String group) throws Exception {
        long madeAt = System.nanoTime();
        Map<String, Object> config = Map.of(
            "bootstrap.servers", bootstrap,
            "group.id", group,
            "auto.offset.reset", "earliest",
            "enable.auto.commit", "false");
        KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        ParallelConsumerOptions<byte[], byte[]> options = ParallelConsumerOptions.<byte[], byte[]>builder()
            .consumer(consumer)
            .ordering(ProcessingOrder.KEY)
            .maxConcurrency(concurrency)
            .build();
        ParallelStreamProcessor<byte[], byte[]> processor =
            ParallelStreamProcessor.createEosStreamProcessor(options);
        processor.subscribe(List.of(topic));
        processor.poll(context -> handle(context.getSingleConsumerRecord()));
        done.await();
        long stoppingAt = System.nanoTime();
        processor.closeDrainFirst(Duration.ofSeconds(60));
        System.out.printf(
            "{\"event\": \"measured\", \"at\": %.6f, \"count\": %d, \"disordered\": %d, \"wall_s\": %.6f,"
                + " \"cpu_s\": %.6f, \"first_s\": %.6f, \"stop_s\": %.6f}%n",
            lastAt / 1e9, ended.get(), disordered.get(), (lastAt - firstAt) / 1e9,
            (lastCpu - firstCpu) / 1e9, (firstAt - madeAt) / 1e9, (System.nanoTime() - stoppingAt) / 1e9);
        System.out.flush();
    }

    private void handle(ConsumerRecord<byte[], byte[]> record) {
        if (begun.incrementAndGet() == 1) {
            firstCpu = SYSTEM.getProcessCpuTime();
            firstAt = System.nanoTime();
        }
        if (waitMs > 0) {
            KeyProgress key = keys.computeIfAbsent(ByteBuffer.wrap(record.key()), one -> new KeyProgress());
            if (!key.begin(ByteBuffer.wrap(record.value()).getLong())) {
                disordered.incrementAndGet();
            }
            try {
                Thread.sleep(waitMs);
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
            key.end();
        }
        if (ended.incrementAndGet() == expected) {
            lastAt = System.nanoTime();
            lastCpu = SYSTEM.getProcessCpuTime();
            done.countDown();
        }
    }

    /** For one key: the last record whose handler began, and the number of running handlers. */
    private static final class KeyProgress {
        private long last = -1;
        private int running;

        /** Return whether the record is later than all previous records of the key, and no other handler runs. */
        synchronized boolean begin(long number) {
            boolean inOrder = number > last && running == 0;
            last = Math.max(last, number);
            running++;
            return inOrder;
        }

        synchronized void end() {
            running--;
        }
    }
}
