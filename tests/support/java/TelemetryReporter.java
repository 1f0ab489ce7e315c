import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.telemetry.ClientTelemetryExporter;
import org.apache.kafka.server.telemetry.ClientTelemetryExporterProvider;

/**
 * A broker's receiver of metrics that clients push (KIP-714). It writes a line for each push to the file that
 * `telemetry.file` names.
 *
 * A line has the client id, the client instance id, whether it is the last push, and the uncompressed payload as
 * base64. The jar is loaded as a Java agent, which puts the class on the class path of a broker that devbroker starts.
 */
public class TelemetryReporter implements MetricsReporter, ClientTelemetryExporterProvider {
    private Path file;

    public static void premain(String arguments) {
    }

    /** Create a metrics subscription. Arguments: the broker, the subscription's name, and its `key=value` settings. */
    public static void main(String[] words) throws Exception {
        ConfigResource subscription = new ConfigResource(ConfigResource.Type.CLIENT_METRICS, words[1]);
        List<AlterConfigOp> changes = Arrays.stream(words).skip(2)
            .map(word -> word.split("=", 2))
            .map(pair -> new AlterConfigOp(new ConfigEntry(pair[0], pair[1]), AlterConfigOp.OpType.SET))
            .collect(Collectors.toList());
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", words[0]))) {
            admin.incrementalAlterConfigs(Map.of(subscription, changes)).all().get();
        }
    }

    @Override
    public void configure(Map<String, ?> configs) {
        file = Path.of(configs.get("telemetry.file").toString());
    }

    @Override
    public ClientTelemetryExporter clientTelemetryExporter() {
        return (context, payload) -> {
            ByteBuffer data = payload.data().duplicate();
            byte[] bytes = new byte[data.remaining()];
            data.get(bytes);
            String line = String.join(" ",
                context.authorizableRequestContext().clientId(),
                payload.clientInstanceId().toString(),
                Boolean.toString(payload.isTerminating()),
                Base64.getEncoder().encodeToString(bytes)) + "\n";
            synchronized (this) {
                try {
                    Files.writeString(file, line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
            }
        };
    }

    @Override
    public void init(List<KafkaMetric> metrics) {
    }

    @Override
    public void metricChange(KafkaMetric metric) {
    }

    @Override
    public void metricRemoval(KafkaMetric metric) {
    }

    @Override
    public void close() {
    }
}
