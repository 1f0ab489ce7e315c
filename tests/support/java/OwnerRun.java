import java.io.BufferedReader;
import java.io.InputStreamReader;
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
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * The worker `owner` of the benchmarks, with the Java consumer: it polls one record after the other, slowly.
 *
 * Arguments: topic, pace in milliseconds, seconds to add to CLOCK_MONOTONIC to get the clock of all owners, and
 * properties as key=value. Orders and reports are as in `tests/benchmarks/workers/owner.py`.
 */
public class OwnerRun implements ConsumerRebalanceListener {
    private final double clockOffset;
    private final List<List<Double>> tenures = new ArrayList<>();
    private final List<String> errors = new ArrayList<>();
    private volatile boolean isEnding;

    private OwnerRun(double clockOffset) {
        this.clockOffset = clockOffset;
    }

    public static void main(String[] words) throws Exception {
        OwnerRun owner = new OwnerRun(Double.parseDouble(words[2]));
        Map<String, Object> config = new HashMap<>();
        for (int place = 3; place < words.length; place++) {
            int at = words[place].indexOf('=');
            config.put(words[place].substring(0, at), words[place].substring(at + 1));
        }
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        owner.report("ready", "");
        if (!"subscribe".equals(orders.readLine())) {
            return;
        }
        Thread listener = new Thread(() -> owner.listen(orders));
        listener.setDaemon(true);
        listener.start();
        owner.work(config, words[0], Long.parseLong(words[1]));
        System.exit(0);
    }

    private void listen(BufferedReader orders) {
        try {
            String order = orders.readLine();
            while (order != null && !"end".equals(order)) {
                order = orders.readLine();
            }
        } catch (java.io.IOException error) {
            errors.add(error.toString());
        }
        isEnding = true;
    }

    private void work(Map<String, Object> config, String topic, long paceMs) throws InterruptedException {
        KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(topic), this);
        report("subscribed", "");
        try {
            while (!isEnding) {
                for (ConsumerRecord<byte[], byte[]> ignored : consumer.poll(Duration.ofMillis(50))) {
                    List<Double> moments = tenures.get(tenures.size() - 1);
                    moments.add(now());
                    if (moments.size() == 1) {
                        report("began", "");
                    }
                    Thread.sleep(paceMs);
                }
            }
        } catch (org.apache.kafka.common.KafkaException error) {
            errors.add(error.getClass().getSimpleName());
        }
        report("handed", ", \"tenures\": " + tenures + ", \"errors\": ["
            + errors.stream().map(one -> "\"" + one + "\"").collect(Collectors.joining(", ")) + "]");
        while (!isEnding) {
            Thread.sleep(100);
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        if (!partitions.isEmpty()) {
            tenures.add(new ArrayList<>());
            report("assigned", "");
        }
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        if (!partitions.isEmpty()) {
            report("released", "");
        }
    }

    private double now() {
        return System.nanoTime() / 1e9 + clockOffset;
    }

    private void report(String event, String facts) {
        System.out.printf("{\"event\": \"%s\", \"at\": %.6f%s}%n", event, now(), facts);
        System.out.flush();
    }
}
