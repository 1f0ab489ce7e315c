"""Names of brokers, Kubernetes, Spark and other tools that documents mention and this package does not define.

`tests/test_documents.py` accepts them. Add a name here only after you have looked it up in the other project's
documentation, because no test can check it.
"""

from __future__ import annotations

#: Settings of brokers, groups, producers, schema registries, mock clusters and Java clients.
KEYS = frozenset(
    {
        "acks",
        "allow.auto.create.topics",
        "authorizer.class.name",
        "basic.auth.user.info",
        "cleanup.policy",
        "compression.type",
        "connections.max.reauth.ms",
        "consumer.assignment.interval.ms",
        "consumer.heartbeat.interval.ms",
        "consumer.session.timeout.ms",
        "default.api.timeout.ms",
        "delivery.timeout.ms",
        "enable.idempotence",
        "group.consumer.assignment.interval.ms",
        "group.consumer.assignors",
        "group.consumer.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
        "group.consumer.max.session.timeout.ms",
        "group.consumer.max.size",
        "group.consumer.migration.policy",
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.min.session.timeout.ms",
        "group.consumer.session.timeout.ms",
        "group.coordinator.rebalance.protocols",
        "group.initial.rebalance.delay.ms",
        "group.max.session.timeout.ms",
        "group.max.size",
        "group.min.session.timeout.ms",
        "group.version",
        "key.deserializer",
        "linger.ms",
        "log.retention.hours",
        "max.poll.records",
        "memory.oom.group",
        "max.message.bytes",
        "message.max.bytes",
        "message.timestamp.type",
        "num.partitions",
        "offsets.retention.minutes",
        "offsets.topic.replication.factor",
        "replica.selector.class",
        "retention.ms",
        "super.users",
        "test.mock.num.brokers",
        "transaction.timeout.ms",
        "transaction.version",
        "transactional.id",
        "value.deserializer",
    }
)
#: The first part of dotted names that are not keys of a consumer.
KEY_PREFIXES = frozenset({"spark", "context", "consumer", "messaging", "app", "kubernetes"})
#: Operations of Kafka's ACLs, states of Java's members, and environment variables of other programs.
CAPITALS = frozenset(
    {
        "COMPLETING_REBALANCE",
        "PREPARE_LEAVING",
        "PREPARING_REBALANCE",
        "ALTER_CONFIGS",
        "CLUSTER_ACTION",
        "CREATE_TOKENS",
        "DESCRIBE_CONFIGS",
        "DESCRIBE_TOKENS",
        "IDEMPOTENT_WRITE",
        "PROMETHEUS_MULTIPROC_DIR",
        "SASL_PLAINTEXT",
        "SASL_SSL",
        "TWO_PHASE_COMMIT",
    }
)
#: Classes and kinds of Java clients, brokers, Spark, Kubernetes and web frameworks.
CLASSES = frozenset(
    {
        "Alter",
        "AlterConfigs",
        "All",
        "Allow",
        "Cluster",
        "ConfigMap",
        "ConsumerGroupHeartbeat",
        "Container",
        "Create",
        "DataFrame",
        "Delete",
        "Deny",
        "Deployment",
        "Describe",
        "DescribeConfigs",
        "FastAPI",
        "FindCoordinator",
        "Group",
        "GroupCoordinator",
        "Heartbeat",
        "HorizontalPodAutoscaler",
        "JoinGroup",
        "KafkaConsumer",
        "LeaveGroup",
        "ListOffsets",
        "Metadata",
        "OffsetCommit",
        "OffsetFetch",
        "Pod",
        "Read",
        "Recreate",
        "RollingUpdate",
        "Secret",
        "Service",
        "SparkSession",
        "StatefulSet",
        "StreamingQuery",
        "SyncGroup",
        "TimeoutStopSec",
        "Topic",
        "TransactionalId",
        "Write",
    }
)
#: Functions, fields and modules of other projects.
NAMES = frozenset(
    {
        "disable_existing_loggers",
        "docker_compose",
        "kafka_exporter",
        "read_committed",
        "read_uncommitted",
        "sasl_plaintext",
        "sasl_ssl",
    }
)
#: Command line options of other programs.
OPTIONS = frozenset(
    {
        "--add",
        "--allow-principal",
        "--break-system-packages",
        "--bootstrap-server",
        "--command-config",
        "--conf",
        "--config",
        "--detach",
        "--extra",
        "--group",
        "--init",
        "--jars",
        "--lifespan",
        "--no-build-isolation",
        "--operation",
        "--packages",
        "--port",
        "--py-files",
        "--reload",
        "--topic",
        "--user",
        "--wait",
        "--workers",
    }
)
