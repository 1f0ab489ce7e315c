"""Java and Kafka's jars: what runs a broker, with which flags, and how its start is made short.

Nobody else ships a Kafka server in a form that a Python tool can fetch, and Maven honours whatever mirror the machine
is configured for. A version is resolved once, for all processes of a user; so is its class data archive made, by one
broker that is started and stopped for it.

CPU time of a broker from nothing until it is ready, 4.4.0 on Java 17: 6.6 s with Java's defaults and the serial
collector, 5.3 s with an archive of what formats its storage, 3.8 s with one of the server; 2.3 s where Java's first
compiler alone is used, which is for tests (KAFKA_JVM_PERFORMANCE_OPTS) and not for what measures throughput.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from consumer_membership.devbroker.errors import BackendMissingError, BrokerUnavailableError

_logger = logging.getLogger(__name__)

_OLDEST_JAVA = 17  # Kafka 4.0's requirement for servers

# What Kafka's own start script gives a server; as a limit, not at once.
_FLAGS = ("-Xmx1g", "-XX:+IgnoreUnrecognizedVMOptions", "-Xshare:auto", "-Djava.awt.headless=true")

# In the place of Kafka's own, and replaced like them by the variable. The collector's threads cost a start 0.9 s.
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
    """A Java that can run one version of Kafka; its class data archive need not exist yet."""

    executable: str
    classpath: str
    archive: Path

    def command(self, main_class: str, *arguments: str, log: Path, archive_to: Path | None = None) -> list[str]:
        """The command line that runs a main class, with Kafka's log in a file.

        `archive_to` makes this run write a class data archive at its end, instead of using one.
        """
        performance = shlex.split(os.environ.get(_PERFORMANCE_VARIABLE, _PERFORMANCE))
        if archive_to is not None:
            sharing = [f"-XX:ArchiveClassesAtExit={archive_to}"]
        else:
            sharing = [f"-XX:SharedArchiveFile={self.archive}"] if self.archive.exists() else []
        logging = [f"-Dorg.slf4j.simpleLogger.logFile={log}", "-Dorg.slf4j.simpleLogger.showDateTime=true"]
        logging.append("-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS")
        flags = [*_FLAGS, *performance, *sharing, *logging]
        return [self.executable, *flags, "-cp", self.classpath, main_class, *arguments]

    def make_archive(self, run: Callable[[Path], None]) -> None:
        """Have `run` write the class data archive, unless there is a good one: of several processes one does.

        Where it cannot be made or kept, brokers start without it.
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
                # A run that was cut short leaves one on which Java crashes.
                if self._takes(fresh):
                    fresh.replace(self.archive)
        except (OSError, BrokerUnavailableError) as error:
            _logger.info("Brokers start slowly, without %s: %s", self.archive, error)

    def _takes(self, archive: Path) -> bool:
        if not archive.exists():
            return False
        flags = ["-Xshare:on", f"-XX:SharedArchiveFile={archive}", f"-XX:ErrorFile={archive.with_suffix('.error')}"]
        command = [self.executable, *flags, "-XX:-CreateCoredumpOnCrash", "-cp", self.classpath, "-version"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


def java_for(version: str) -> Java:
    """The machine's Java with one Kafka version's jars; fetches them if need be.

    Raises:
        BackendMissingError: No Java, too old a Java, or neither jars nor Maven.
        BrokerUnavailableError: Maven failed.
    """
    executable = _executable()
    _require_recent(executable)
    jars = classpath(version)
    # The archive fits one Java build only; another one would ignore it with every start and never make its own.
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
        said = (answer.stderr or answer.stdout).strip().partition("\n")[0]
        raise BackendMissingError(f"{executable} is {said!r}, and Kafka 4 needs Java {_OLDEST_JAVA} or later")


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
        BackendMissingError: The jars are not there and Maven is not either.
        BrokerUnavailableError: Maven failed; its own words are in the text.
    """
    folder = version_folder(version)
    if not folder.exists():
        _resolve(version, folder)
    return ":".join(str(jar) for jar in sorted((folder / "libs").glob("*.jar")))


def _resolve(version: str, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise BackendMissingError(
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
        run = subprocess.run(command, capture_output=True, text=True, timeout=_RESOLVE_TIMEOUT_S, check=False)
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
