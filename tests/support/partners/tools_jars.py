"""The jars of kafka-tools, which are not part of a broker: Maven fetches them once for all runs of a user."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from consumer_membership.devbroker.java import cache_folder

#: The newest version whose tools are on Maven Central; the tools of 4.4.0 are not.
TOOLS_VERSION = "4.3.1"
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId><artifactId>kafka-tools-jars</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{version}</version>
      <exclusions><exclusion><groupId>org.slf4j</groupId><artifactId>slf4j-reload4j</artifactId></exclusion></exclusions>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""
_RESOLVE_TIMEOUT_S = 600


def tools_classpath(version: str = TOOLS_VERSION) -> str:
    """Return the argument for `java -cp`; fetch the jars if they are missing.

    Raises:
        RuntimeError: Maven is missing or failed; the text has its output.
    """
    kept = cache_folder() / f"kafka-tools-{version}"
    if not kept.exists():
        _fetch(version, kept)
    return ":".join(sorted(map(str, kept.glob("*.jar"))))


def _fetch(version: str, kept: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise RuntimeError(
            f"the jars of kafka-tools are not in {kept}, and mvn, which would fetch them, is not on the PATH"
        )
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{kept.name}-", dir=kept.parent) as scratch:
        pom, output = Path(scratch) / "pom.xml", Path(scratch) / "jars"
        pom.write_text(_POM.format(version=version))
        command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={output}"]
        run = subprocess.run(command, capture_output=True, text=True, timeout=_RESOLVE_TIMEOUT_S, check=False)
        if run.returncode:
            raise RuntimeError(f"Maven could not fetch kafka-tools: {run.stdout}{run.stderr}")
        with suppress(OSError):  # another process has fetched the same jars first
            output.rename(kept)
