"""The jars of spark-sql-kafka, which pyspark does not contain."""

from __future__ import annotations

from tests.benchmarks.maven_jars import jars_of

CONNECTOR_VERSION = "4.0.0"
"""The newest release whose dependencies Maven can all resolve; it is for pyspark of the same version."""

# pyspark contains the other dependencies (Scala, Spark's own jars, lz4, snappy, zstd); they must not be loaded twice.
_ARTIFACTS = ("spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13", "kafka-clients", "commons-pool2")


def connector_jars() -> list[str]:
    """Return the paths of the jars, as `spark.jars` expects them; missing jars are downloaded first.

    Raises:
        WorkerFailedError: Maven is missing, or failed; the message has its output.
    """
    return jars_of("spark-sql-kafka", "org.apache.spark", _ARTIFACTS[0], CONNECTOR_VERSION, _ARTIFACTS)
