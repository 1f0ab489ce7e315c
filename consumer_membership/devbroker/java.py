"""Find Java and Kafka's jars, and build the command line with flags for a fast start.

Maven fetches the jars, because there is no Kafka server as a Python package, and because Maven uses the mirror that
the machine is configured for. A version is fetched once for all processes of a user. Its class data archive is also
created once, by a broker that is started and stopped for this purpose.

CPU time of a start until ready, Kafka 4.4.0 on Java 17: 6.6 s with the serial collector, 5.3 s with an archive of the
storage tool, 3.8 s with an archive of the server, and 2.3 s with the first compiler only, which is for tests
(KAFKA_JVM_PERFORMANCE_OPTS) and not for throughput measurements.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from consumer_membership.devbroker.errors import BackendMissingError, BrokerUnavailableError

_logger = logging.getLogger(__name__)

_OLDEST_JAVA = 17  # Kafka 4.0's requirement for servers

# The heap limit of Kafka's start script, without the same initial size.
_FLAGS = ("-Xmx1g", "-XX:+IgnoreUnrecognizedVMOptions", "-Xshare:auto", "-Djava.awt.headless=true")

# Replaces the options of Kafka's start script, and is replaced by the variable. The threads of another collector cost
# 0.9 s per start.
_PERFORMANCE_VARIABLE, _PERFORMANCE = "KAFKA_JVM_PERFORMANCE_OPTS", "-XX:+UseSerialGC"

_RESOLVE_TIMEOUT_S = 600  # 43 MB, perhaps over a slow line

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java installation with the jars of one Kafka version; the class data archive may not exist yet."""

    executable: str
    classpath: str
    archive: Path

    def command(
        self,
        main_class: str,
        *arguments: str,
        log: Path,
        archive_to: Path | None = None,
        system_properties: Mapping[str, str] = MappingProxyType({}),
    ) -> list[str]:
        """Return the command line that runs a main class, with Kafka's log in a file.

        With `archive_to`, the process writes a class data archive when it ends, and uses none.
        """
        performance = shlex.split(os.environ.get(_PERFORMANCE_VARIABLE, _PERFORMANCE))
        if archive_to is not None:
            sharing = [f"-XX:ArchiveClassesAtExit={archive_to}"]
        else:
            sharing = [f"-XX:SharedArchiveFile={self.archive}"] if self.archive.exists() else []
        logging = [f"-Dorg.slf4j.simpleLogger.logFile={log}", "-Dorg.slf4j.simpleLogger.showDateTime=true"]
        logging.append("-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS")
        defined = [f"-D{name}={value}" for name, value in system_properties.items()]
        flags = [*_FLAGS, *performance, *sharing, *logging, *defined]
        return [self.executable, *flags, "-cp", self.classpath, main_class, *arguments]

    def make_archive(self, run: Callable[[Path], None]) -> None:
        """Call `run` to write the class data archive, unless a valid one exists; only one of several processes does.

        If it fails, brokers start without an archive.
        """
        fresh = self.archive.with_suffix(".new")
        try:
            if self._takes(self.archive):
                return
            with _locked(self.archive.with_suffix(".lock")):
                if self._takes(self.archive):
                    return
                self.archive.unlink(missing_ok=True)
                run(fresh)
                # An interrupted run leaves an archive on which Java crashes.
                if self._takes(fresh):
                    fresh.replace(self.archive)
        except (OSError, BrokerUnavailableError) as error:
            _logger.info("No class data archive %s; brokers start more slowly: %s", self.archive, error)

    def _takes(self, archive: Path) -> bool:
        if not archive.exists():
            return False
        flags = ["-Xshare:on", f"-XX:SharedArchiveFile={archive}", f"-XX:ErrorFile={archive.with_suffix('.error')}"]
        command = [self.executable, *flags, "-XX:-CreateCoredumpOnCrash", "-cp", self.classpath, "-version"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


def java_for(version: str) -> Java:
    """Return the machine's Java with the jars of a Kafka version, which are fetched if necessary.

    Raises:
        BackendMissingError: Java is missing or too old, or both the jars and Maven are missing.
        BrokerUnavailableError: Maven failed.
    """
    executable = _executable()
    _require_recent(executable)
    jars = classpath(version)
    # The archive is valid for one Java build only; another build needs an archive with another name.
    build = f"{Path(executable).resolve()} {Path(executable).stat().st_mtime_ns}"
    digest = hashlib.sha256(build.encode()).hexdigest()[:12]
    return Java(
        executable=executable,
        classpath=jars,
        archive=version_folder(version) / f"server-{digest}.jsa",
    )


def _executable() -> str:
    home = os.environ.get("JAVA_HOME", "")
    found = shutil.which("java", path=str(Path(home, "bin"))) if home else None
    found = found or shutil.which("java")
    if found is None:
        raise BackendMissingError(
            f"java is neither under JAVA_HOME nor on the PATH; install Java {_OLDEST_JAVA} or later"
        )
    return found


def _require_recent(executable: str) -> None:
    answer = subprocess.run([executable, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(\d+)', answer.stderr)
    if match is None or int(match[1]) < _OLDEST_JAVA:
        found = (answer.stderr or answer.stdout).strip().partition("\n")[0]
        raise BackendMissingError(f"{executable} is {found!r}, but Kafka 4 needs Java {_OLDEST_JAVA} or later")


def cache_folder() -> Path:
    """Return the folder for the jars of all versions: in XDG_CACHE_HOME, by default in ~/.cache."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(root) if root else Path.home() / ".cache") / "consumer-membership"


def version_folder(version: str) -> Path:
    """Return the folder of a version; its subfolder `libs` has the jars."""
    return cache_folder() / f"kafka-{version}"


def classpath(version: str) -> str:
    """Return the class path of a version; fetches the jars if necessary.

    The jars are listed and sorted instead of using a wildcard, because a class data archive is valid for one class
    path only.

    Raises:
        BackendMissingError: Both the jars and Maven are missing.
        BrokerUnavailableError: Maven failed; the message has its output.
    """
    folder = version_folder(version)
    if not folder.exists():
        _resolve(version, folder)
    return ":".join(str(jar) for jar in sorted((folder / "libs").glob("*.jar")))


def _resolve(version: str, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise BackendMissingError(
            f"the jars of Kafka {version} are not in {folder}, and mvn is not on the PATH; install Maven to fetch them"
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
        run = subprocess.run(command, capture_output=True, text=True, timeout=_RESOLVE_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise BrokerUnavailableError(
            f"Maven did not fetch the jars of Kafka {version} within {_RESOLVE_TIMEOUT_S} s; check the network or the"
            " mirror"
        ) from error
    if run.returncode != 0:
        raise BrokerUnavailableError(
            f"Maven could not fetch the jars of Kafka {version}; check the network or the mirror in its"
            f" settings.xml. Output:\n{run.stdout}{run.stderr}"
        )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive file lock, which the system releases when the process ends."""
    import fcntl  # noqa: PLC0415 - does not exist on Windows, where this module must be importable

    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
