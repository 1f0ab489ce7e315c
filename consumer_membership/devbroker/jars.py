"""Kafka's jars from Maven, one folder per version, shared by all processes of a user.

Nobody else ships a Kafka server in a form that a Python tool can fetch, and Maven honours whatever mirror the machine
is configured for. A version is resolved once: into a folder beside the final one, which is then renamed, under
a file lock, so that of several processes one resolves and the others wait.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from consumer_membership.devbroker.errors import BrokerUnavailableError, WayMissingError

if TYPE_CHECKING:
    from collections.abc import Iterator

_logger = logging.getLogger(__name__)

_RESOLVE_TIMEOUT_S = 600  # 55 MB, perhaps over a slow line

# Kafka 4 brings slf4j-api 1.7.36 and no binding; 3.9 brings slf4j-reload4j, which would win and write nowhere.
# slf4j-simple writes to the file that a system property names and starts 0.3 s sooner than log4j.
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId><artifactId>kafka-jars</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version>
      <exclusions><exclusion><groupId>org.slf4j</groupId><artifactId>slf4j-reload4j</artifactId></exclusion></exclusions>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""


def cache_folder() -> Path:
    """Where the jars of all versions are kept: XDG's cache folder, else ~/.cache."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(root) if root else Path.home() / ".cache") / "consumer-membership"


def version_folder(version: str) -> Path:
    """Where one version's jars are, or will be; its folder `libs` holds them."""
    return cache_folder() / f"kafka-{version}"


def classpath(version: str) -> str:
    """All jars of a version as java's -cp takes them; resolved first if they are not there yet.

    Written out and sorted rather than as a wildcard: a class data archive is valid for exactly one class path.

    Raises:
        WayMissingError: The jars are not there and Maven is not either.
        BrokerUnavailableError: Maven failed; its own words are in the text.
    """
    folder = version_folder(version)
    if not folder.exists():
        _resolve(version, folder)
    return ":".join(str(jar) for jar in sorted((folder / "libs").glob("*.jar")))


def _resolve(version: str, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise WayMissingError(
            f"the jars of Kafka {version} are not in {folder}, and mvn, which fetches them, is not on the PATH"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_name(folder.name + ".lock")):
        if folder.exists():
            return
        _logger.info("Fetching the jars of Kafka %s into %s", version, folder)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
            _copy_dependencies(maven, version, Path(scratch))
            Path(scratch, "complete").rename(folder)


def _copy_dependencies(maven: str, version: str, scratch: Path) -> None:
    pom = scratch / "pom.xml"
    pom.write_text(_POM.format(version=version))
    command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    command.append(f"-DoutputDirectory={scratch / 'complete' / 'libs'}")
    try:
        run = subprocess.run(  # noqa: S603 - Maven, as found on the PATH
            command, capture_output=True, text=True, timeout=_RESOLVE_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise BrokerUnavailableError(
            f"Maven did not fetch the jars of Kafka {version} in {_RESOLVE_TIMEOUT_S} s; check the network or mirror"
        ) from error
    if run.returncode != 0:
        raise BrokerUnavailableError(
            f"Maven could not fetch the jars of Kafka {version}; check the network or the mirror in its"
            f" settings.xml. It said:\n{run.stdout}{run.stderr}"
        )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file; the system drops it with the process, so it never goes stale."""
    import fcntl  # noqa: PLC0415 - Windows has none, and can import this room

    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
