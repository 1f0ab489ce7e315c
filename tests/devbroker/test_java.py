"""Jars from Maven and the Java command line; a script replaces Maven."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from consumer_membership.devbroker import BrokerUnavailableError
from consumer_membership.devbroker.java import Java, classpath, version_folder
from consumer_membership.devbroker.properties import system_properties

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a Maven that creates two jars, and return the file in which it records its runs."""
    runs = tmp_path / "runs"
    runs.touch()
    binary = tmp_path / "bin" / "mvn"
    binary.parent.mkdir()
    binary.write_text(
        f"""#!/bin/sh
        for word; do case $word in -DoutputDirectory=*) target=${{word#*=}} ;; -f) ;; *pom.xml) pom=$word ;; esac; done
        grep '<version>4' "$pom" >>{runs}
        mkdir -p "$target" && touch "$target/b.jar" "$target/a.jar"
        """
    )
    binary.chmod(0o755)
    monkeypatch.setenv("PATH", f"{binary.parent}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return runs


def test_classpath_fetches_jars_once_and_keeps_order(maven: Path) -> None:
    """Maven runs once, and the order of jars does not change: a class data archive is valid for one class path only."""
    libs = version_folder("4.2.2") / "libs"
    assert classpath("4.2.2") == f"{libs}/a.jar:{libs}/b.jar"
    assert classpath("4.2.2") == f"{libs}/a.jar:{libs}/b.jar"
    assert maven.read_text().count("<version>4.2.2</version>") == 1
    assert sorted(path.name for path in libs.parent.parent.iterdir()) == ["kafka-4.2.2", "kafka-4.2.2.lock"]


def test_concurrent_classpath_calls_fetch_once(maven: Path) -> None:
    """Of several concurrent calls, one fetches the jars, and the others wait for them."""
    threads = [threading.Thread(target=classpath, args=("4.2.2",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert maven.read_text().count("<version>4.2.2</version>") == 1


def test_classpath_raises_maven_output_and_leaves_no_files(maven: Path) -> None:
    """The error quotes Maven's output, and the next attempt starts from the beginning."""
    (maven.parent / "bin" / "mvn").write_text("#!/bin/sh\necho 'Could not transfer artifact'; mkdir -p $6; exit 1\n")
    with pytest.raises(BrokerUnavailableError, match="Could not transfer artifact"):
        classpath("4.2.2")
    assert not version_folder("4.2.2").exists()


def test_java_command_has_log_file_and_class_path(tmp_path: Path) -> None:
    """The command has the class path, and the file for Kafka's log, whose end appears in errors."""
    java = Java(executable="/java", classpath="a.jar:b.jar", archive=tmp_path / "classes.jsa")
    command = java.command("kafka.Kafka", "x.properties", log=tmp_path / "server.log")
    assert command[0] == "/java"
    assert command[-4:] == ["-cp", "a.jar:b.jar", "kafka.Kafka", "x.properties"]
    assert f"-Dorg.slf4j.simpleLogger.logFile={tmp_path}/server.log" in command
    assert not any("Archive" in word for word in command)


def test_java_command_defines_system_properties_before_the_main_class(tmp_path: Path) -> None:
    """System properties precede the main class, because later arguments are the broker's."""
    java = Java(executable="/java", classpath="a.jar", archive=tmp_path / "classes.jsa")
    command = java.command("kafka.Kafka", "x", log=tmp_path / "l", system_properties={"a.b": "c"})
    assert command.index("-Da.b=c") < command.index("kafka.Kafka")


def test_jwks_urls_of_all_listeners_are_allowed_in_the_jvm() -> None:
    """The JVM property with allowed URLs has the JWKS URLs of all listeners; Kafka reads no keys from other URLs."""
    key = "sasl.oauthbearer.jwks.endpoint.url"
    given = {key: "https://b/", f"listener.name.x.{key}": "https://a/", "log.dir": "c"}
    assert system_properties(given) == {"org.apache.kafka.sasl.oauthbearer.allowed.urls": "https://a/,https://b/"}
    assert system_properties({"log.dir": "c"}) == {}


def test_java_command_uses_archive_only_if_it_exists(tmp_path: Path) -> None:
    """The command has the option for the archive only if it exists; otherwise Java would print a warning."""
    java = Java(executable="/java", classpath="a.jar", archive=tmp_path / "classes.jsa")
    java.archive.touch()
    assert f"-XX:SharedArchiveFile={java.archive}" in java.command("kafka.Kafka", log=tmp_path / "l")


def test_java_command_that_creates_archive_does_not_use_one(tmp_path: Path) -> None:
    """A command that creates an archive does not also use one, because Java rejects the combination."""
    java = Java(executable="/java", classpath="a.jar", archive=tmp_path / "classes.jsa")
    java.archive.touch()
    command = java.command("kafka.Kafka", log=tmp_path / "l", archive_to=tmp_path / "new.jsa")
    assert [word for word in command if "Archive" in word] == [f"-XX:ArchiveClassesAtExit={tmp_path}/new.jsa"]


@pytest.fixture
def java(tmp_path: Path) -> Java:
    """Return a Java that accepts an archive only if it contains `whole`."""
    binary = tmp_path / "java"
    binary.write_text("""#!/bin/sh
        for word; do case $word in -XX:SharedArchiveFile=*) grep -q whole "${word#*=}"; exit ;; esac; done
        """)
    binary.chmod(0o755)
    return Java(executable=str(binary), classpath="a.jar", archive=tmp_path / "classes.jsa")


def test_make_archive_creates_archive_once(java: Java) -> None:
    """Of several concurrent starts, one creates the archive, and no start sees an incomplete file."""
    made: list[str] = []

    def make(target: Path) -> None:
        assert not java.archive.exists()
        target.write_text("half")
        target.write_text("whole")
        made.append(target.name)

    threads = [threading.Thread(target=java.make_archive, args=(make,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (len(made), java.archive.read_text()) == (1, "whole")


def test_make_archive_replaces_broken_archive(java: Java) -> None:
    """An archive that Java cannot read is replaced, because Java crashes on a truncated archive."""
    java.archive.write_text("half")

    def make(target: Path) -> None:
        target.write_text("whole")

    java.make_archive(make)
    assert java.archive.read_text() == "whole"


@pytest.mark.parametrize("error", [None, BrokerUnavailableError("no broker"), OSError("disk full")])
def test_make_archive_failure_leaves_no_archive(java: Java, error: Exception | None) -> None:
    """If an archive cannot be created, no incomplete file is kept, and no error is raised: the archive is optional."""

    def fail(target: Path) -> None:
        target.write_text("half")
        if error is not None:
            raise error

    java.make_archive(fail)
    assert not java.archive.exists()


def test_make_archive_skips_unwritable_folder(java: Java, tmp_path: Path) -> None:
    """No archive is created in a folder that cannot be written, for example another user's cache folder."""
    elsewhere = replace(java, archive=tmp_path / "absent" / "classes.jsa")
    elsewhere.make_archive(lambda _: pytest.fail("nobody could keep it"))


@pytest.mark.parametrize(("variable", "flag"), [(None, "-XX:+UseSerialGC"), ("-XX:+UseZGC -Xa='b c'", "-Xa=b c")])
def test_java_command_takes_performance_options_from_kafkas_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None, flag: str
) -> None:
    """KAFKA_JVM_PERFORMANCE_OPTS replaces the default, because Java accepts only one garbage collector."""
    monkeypatch.delenv("KAFKA_JVM_PERFORMANCE_OPTS", raising=False)
    if variable is not None:
        monkeypatch.setenv("KAFKA_JVM_PERFORMANCE_OPTS", variable)
    command = Java(executable="/java", classpath="a.jar", archive=tmp_path / "a").command("kafka.Kafka", log=tmp_path)
    assert flag in command
    assert ("-XX:+UseSerialGC" in command) is (variable is None)
