"""Jars of Java programs that figures compare with: resolved by Maven once and kept for all runs."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING

from consumer_membership.devbroker.java import cache_folder
from tests.benchmarks.processes import WorkerFailedError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId><artifactId>{artifact}-jars</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
  </dependency></dependencies>
</project>
"""
_RESOLVE_TIMEOUT_S = 600


def jars_of(name: str, group: str, artifact: str, version: str, only: Sequence[str] = ()) -> list[str]:
    """Return the paths of an artifact's jars and of those that it depends on; missing jars are downloaded first.

    `name` is a part of the folder's name in the cache; `only` limits the jars to these artifacts.

    Raises:
        WorkerFailedError: Maven is missing, or failed; the message has its output.
    """
    kept = cache_folder() / f"{name}-{version}"
    if not kept.exists():
        _fetch(kept, _POM.format(group=group, artifact=artifact, version=version), only)
    return sorted(map(str, kept.glob("*.jar")))


def _fetch(kept: Path, pom: str, only: Sequence[str]) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise WorkerFailedError(f"the jars are not in {kept}, and mvn is not installed; install Maven to download them")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{kept.name}-", dir=kept.parent) as folder:
        scratch = kept.parent / folder
        pom_file, output = scratch / "pom.xml", scratch / "jars"
        pom_file.write_text(pom)
        command = [maven, "-q", "-B", "-f", str(pom_file), "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={output}"]
        if only:
            command.append(f"-DincludeArtifactIds={','.join(only)}")
        run = subprocess.run(command, capture_output=True, text=True, timeout=_RESOLVE_TIMEOUT_S, check=False)
        if run.returncode:
            raise WorkerFailedError(f"Maven could not fetch {kept.name}: {run.stdout}{run.stderr}")
        with suppress(OSError):  # another process may have downloaded the same jars first
            output.rename(kept)
