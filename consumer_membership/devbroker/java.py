"""The Java machine: which one, with which flags, and how a start is made short.

Measured on two cores, Kafka 4.3.1, Java 17, from nothing to an open port: 4.5 s with Java's defaults, 3.6 s with the
serial collector, 2.5 s with a class data archive as well. Neither costs throughput. Compiling only with C1 would save
another 0.2 s, but the benchmarks run on this broker.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from consumer_membership.devbroker import jars
from consumer_membership.devbroker.errors import WayMissingError

_OLDEST_JAVA = 17  # Kafka 4.0's requirement for servers

_FLAGS = (
    # What Kafka's own start script gives a server; as a limit, not at once.
    "-Xmx1g",
    "-XX:+UseSerialGC",
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-Xshare:auto",
    "-Djava.awt.headless=true",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java that can run one version of Kafka.

    Attributes:
        executable: The path of `java`.
        classpath: The jars of that version.
        archive: Its class data archive, which need not exist yet.
    """

    executable: str
    classpath: str
    archive: Path

    def command(self, main_class: str, *arguments: str, log: Path, archive_to: Path | None = None) -> list[str]:
        """The command line that runs a main class, with Kafka's log in a file.

        `archive_to` makes this run write a class data archive at its end, instead of using one.
        """
        if archive_to is not None:
            sharing = [f"-XX:ArchiveClassesAtExit={archive_to}"]
        else:
            sharing = [f"-XX:SharedArchiveFile={self.archive}"] if self.archive.exists() else []
        logging = [f"-Dorg.slf4j.simpleLogger.logFile={log}", "-Dorg.slf4j.simpleLogger.showDateTime=true"]
        logging.append("-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS")
        return [self.executable, *_FLAGS, *sharing, *logging, "-cp", self.classpath, main_class, *arguments]

    def keep_archive(self, made: Path) -> None:
        """Put a class data archive that was just made where later runs find it; or not, where that cannot be written.

        Under another name first, since a run that finds it takes it as it is.
        """
        scratch = self.archive.with_name(f".{self.archive.name}-{os.getpid()}")
        with suppress(OSError):
            shutil.copyfile(made, scratch)
            scratch.replace(self.archive)


def java_for(version: str) -> Java:
    """The machine's Java with one Kafka version's jars; fetches them if need be.

    Raises:
        WayMissingError: No Java, too old a Java, or neither jars nor Maven.
        BrokerUnavailableError: Maven failed.
    """
    executable = _executable()
    _require_recent(executable)
    classpath = jars.classpath(version)
    # The archive fits one Java build only; another one would ignore it with every start and never make its own.
    build = f"{Path(executable).resolve()} {Path(executable).stat().st_mtime_ns}"
    digest = hashlib.sha256(build.encode()).hexdigest()[:12]
    return Java(
        executable=executable,
        classpath=classpath,
        archive=jars.version_folder(version) / f"classes-{digest}.jsa",
    )


def _executable() -> str:
    home = os.environ.get("JAVA_HOME", "")
    found = shutil.which("java", path=str(Path(home, "bin"))) if home else None
    found = found or shutil.which("java")
    if found is None:
        raise WayMissingError(f"java is neither under JAVA_HOME nor on the PATH; install Java {_OLDEST_JAVA} or later")
    return found


def _require_recent(executable: str) -> None:
    answer = subprocess.run(  # noqa: S603 - java, as found on the PATH
        [executable, "-version"], capture_output=True, text=True, check=False
    )
    match = re.search(r'version "(\d+)', answer.stderr)
    if match is None or int(match[1]) < _OLDEST_JAVA:
        said = (answer.stderr or answer.stdout).strip().partition("\n")[0]
        raise WayMissingError(f"{executable} is {said!r}, and Kafka 4 needs Java {_OLDEST_JAVA} or later")
