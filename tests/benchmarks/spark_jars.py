"""The jars of spark-sql-kafka, which pyspark does not contain: resolved by Maven once and kept for all runs."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from consumer_membership.devbroker.java import cache_folder
from tests.benchmarks.processes import WorkerFailedError

CONNECTOR_VERSION = "4.0.0"
"""The newest one that Maven resolves as a whole; it is for pyspark of the same version."""

# Whatever else it depends on (Scala, Spark's own jars, lz4, snappy, zstd) is in pyspark, and must not be there twice.
_ARTIFACTS = ("spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13", "kafka-clients", "commons-pool2")
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId><artifactId>spark-sql-kafka-jars</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.apache.spark</groupId><artifactId>spark-sql-kafka-0-10_2.13</artifactId><version>{version}</version>
  </dependency></dependencies>
</project>
"""
_RESOLVE_TIMEOUT_S = 600


def connector_jars() -> list[str]:
    """Return the paths of the jars, as `spark.jars` expects them; missing jars are downloaded first.

    Raises:
        WorkerFailedError: Maven is not there, or failed; its own words are in the text.
    """
    kept = cache_folder() / f"spark-sql-kafka-{CONNECTOR_VERSION}"
    if not kept.exists():
        _fetch(kept)
    return sorted(map(str, kept.glob("*.jar")))


def _fetch(kept: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise WorkerFailedError(f"the jars of spark-sql-kafka are not in {kept}, and mvn, which fetches them, is not")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{kept.name}-", dir=kept.parent) as scratch:
        pom, output = Path(scratch) / "pom.xml", Path(scratch) / "jars"
        pom.write_text(_POM.format(version=CONNECTOR_VERSION))
        command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={output}", f"-DincludeArtifactIds={','.join(_ARTIFACTS)}"]
        run = subprocess.run(command, capture_output=True, text=True, timeout=_RESOLVE_TIMEOUT_S, check=False)
        if run.returncode:
            raise WorkerFailedError(f"Maven could not fetch spark-sql-kafka: {run.stdout}{run.stderr}")
        with suppress(OSError):  # of several processes one is first, and what it has is the same
            output.rename(kept)
