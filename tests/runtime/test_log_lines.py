"""A consumer's log lines in the application's logger or on stderr: each once, in librdkafka's format."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from consumer_membership.config import ConsumerConfig, LogSettings
from consumer_membership.runtime.log_lines import ConsumerLines, PackageLog, context_of, lines_of
from tests.support.waiting import PROCESS_S

MEMBERSHIP = "consumer_membership.membership"
NETWORK = "consumer_membership.network"
Record = tuple[int, str, tuple[object, ...]]
#: A program that configures logging after its imports, with the default that disables existing loggers.
PROGRAM = """
import logging.config
import sys

from consumer_membership import Consumer

to_stdout = {"class": "logging.StreamHandler", "stream": "ext://sys.stdout"}
root = {"handlers": ["out"], "level": "INFO"}
logging.config.dictConfig({"version": 1, "handlers": {"out": to_stdout}, "root": root})
with Consumer({"group.id": "g"}) as consumer:
    consumer.subscribe(["t"])
    consumer.poll(0)
"""
IMPORTS = """
import importlib, logging, pkgutil
for name in ("consumer_membership.runtime", "consumer_membership.processing"):
    for module in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
        if not module.name.endswith((".script", ".kerberos")):  # a program, and a module that needs gssapi
            importlib.import_module(module.name)
print(sorted(name for name in logging.root.manager.loggerDict if name.startswith("consumer_membership.")))
"""


class Kept(logging.Handler):
    """A handler that keeps its records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[Record] = []

    def emit(self, record: logging.LogRecord) -> None:
        arguments = record.args if isinstance(record.args, tuple) else ()
        self.records.append((record.levelno, str(record.msg), arguments))

    @property
    def texts(self) -> list[str]:
        """The lines without librdkafka's prefix."""
        return [str(arguments[-1]).partition("]: ")[2] for _, _, arguments in self.records]


@pytest.fixture
def kept() -> Kept:
    """The handler of the application's logger."""
    return Kept()


@pytest.fixture
def logger(kept: Kept) -> logging.Logger:
    """The application's logger; it is not registered, so that the test runner adds no handlers to it."""
    made = logging.Logger("application", logging.DEBUG)  # noqa: LOG001 - see above
    made.addHandler(kept)
    return made


class Polls:
    """The calls that run at the application's next poll."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], object]] = []

    def poll(self) -> None:
        """Run the calls."""
        while self.calls:
            self.calls.pop(0)()


def settings(*contexts: str, level: int = 6) -> LogSettings:
    """Log settings with these contexts in `debug`."""
    return LogSettings(contexts=frozenset(contexts), level=7 if contexts else level)


def log_of(lines: ConsumerLines | None, package: str = MEMBERSHIP, facility: str = "HEARTBEAT") -> PackageLog:
    """Return a package's log that belongs to one consumer."""
    return PackageLog(package, facility, lines)


def everything(log: PackageLog) -> None:
    """Log a line of each level."""
    log.debug("d")
    log.info("i %d", 1)
    log.warning("w 100%")
    log.error("e", exc_info=ValueError("why"))


def test_log_lines_reach_the_logger_when_the_application_polls(logger: logging.Logger, kept: Kept) -> None:
    """The format is librdkafka's: level, "%s [%s] %s", and facility, name and text as arguments."""
    polls = Polls()
    log = log_of(lines_of(settings("cgrp"), logger, polls.calls.append))
    log.info("hello %s", "group")
    assert kept.records == []
    polls.poll()
    ((level, form, (facility, name, text)),) = kept.records
    assert (level, form, facility, text) == (20, "%s [%s] %s", "HEARTBEAT", "[thrd:app]: hello group")
    assert re.fullmatch(r"rdkafka#member-\d+", str(name))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (settings(), ["i 1", "w 100%", "e: ValueError('why')"]),
        (settings(level=4), ["w 100%", "e: ValueError('why')"]),
        (settings(level=0), []),
        (settings("cgrp"), ["d", "i 1", "w 100%", "e: ValueError('why')"]),
        (settings("all"), ["d", "i 1", "w 100%", "e: ValueError('why')"]),
        (settings("fetch"), ["i 1", "w 100%", "e: ValueError('why')"]),
    ],
    ids=str,
)
def test_log_lines_follow_debug_contexts_and_log_level(
    logger: logging.Logger, kept: Kept, given: LogSettings, expected: list[str]
) -> None:
    """As in librdkafka, a `debug` context of another package adds no debug lines of this one."""
    polls = Polls()
    everything(log_of(lines_of(given, logger, polls.calls.append)))
    polls.poll()
    assert kept.texts == expected


def test_log_lines_of_the_network_follow_its_own_contexts(logger: logging.Logger, kept: Kept) -> None:
    """`debug=broker` logs connections, and `debug=consumer` does not."""
    polls = Polls()
    lines = lines_of(settings("broker"), logger, polls.calls.append)
    log_of(lines, MEMBERSHIP).debug("heartbeat")
    log_of(lines, NETWORK).debug("connection")
    polls.poll()
    assert kept.texts == ["connection"]


def test_log_line_that_the_handler_already_received_is_not_repeated(logger: logging.Logger, kept: Kept) -> None:
    """The package's logger already writes to the same handler."""
    polls = Polls()
    package = logging.getLogger(MEMBERSHIP)
    package.addHandler(kept)
    try:
        log = log_of(lines_of(settings("cgrp"), logger, polls.calls.append))
        log.warning("once")
        log.debug("the level of the package's logger excludes this line")
        polls.poll()
    finally:
        package.removeHandler(kept)
    assert [form for _, form, _ in kept.records] == ["once", "%s [%s] %s"]


def test_log_line_reaches_only_the_handlers_that_did_not_receive_it(logger: logging.Logger, kept: Kept) -> None:
    """A handler that both loggers share has received the line; the application's own handler has not."""
    polls, both, package = Polls(), Kept(), logging.getLogger(MEMBERSHIP)
    logger.addHandler(both)
    package.addHandler(both)
    try:
        log_of(lines_of(settings(), logger, polls.calls.append)).warning("once each")
        polls.poll()
    finally:
        package.removeHandler(both)
    assert (len(both.records), kept.texts) == (1, ["once each"])


def test_log_lines_without_a_logger_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """The line is written immediately, as in librdkafka: `%LEVEL|SECONDS|FACILITY|NAME| TEXT`."""
    log = log_of(lines_of(settings("cgrp"), None, lambda _: None))
    log.debug("d")
    log.info("i")
    found = [
        re.fullmatch(r"%(\d)\|\d+\.\d{3}\|HEARTBEAT\|rdkafka#member-\d+\| \[thrd:app\]: (.*)", line)
        for line in capsys.readouterr().err.splitlines()
    ]
    assert [match.groups() for match in found if match] == [("7", "d"), ("6", "i")]
    assert None not in found


def test_log_warning_is_written_to_stderr_once(capfd: pytest.CaptureFixture[str]) -> None:
    """Without configuration, Python's `logging` already writes warnings to stderr."""
    package = logging.getLogger(MEMBERSHIP)
    package.propagate = False
    try:
        log_of(lines_of(settings("cgrp"), None, lambda _: None)).warning("once")
    finally:
        package.propagate = True
    assert "HEARTBEAT" not in capfd.readouterr().err


def test_lines_of_returns_none_without_logger_and_debug() -> None:
    """Without a logger or a `debug` context, a consumer has no separate log lines."""
    assert lines_of(settings(), None, lambda _: None) is None


def test_log_line_belongs_to_the_consumer_of_its_context(logger: logging.Logger, kept: Kept) -> None:
    """Connections of several consumers share a log, and members may share a thread."""
    polls = Polls()
    lines = lines_of(settings("broker"), logger, polls.calls.append)
    shared = PackageLog(NETWORK, "BROKER")

    context_of("[Consumer] ", lines).run(shared.debug, "mine")
    context_of("", None).run(shared.debug, "another's")
    shared.debug("no consumer's")
    polls.poll()
    assert kept.texts == ["[Consumer] mine"]
    assert str(kept.records[0][2][2]).startswith("[thrd:membership]: ")


def test_package_log_keeps_the_place_of_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    """Handlers may log the file and the line of the caller."""
    with caplog.at_level("INFO", MEMBERSHIP):
        PackageLog(MEMBERSHIP, "X").info("a %s", "b")
    (record,) = caplog.records
    assert (record.name, record.getMessage(), record.filename) == (MEMBERSHIP, "a b", "test_log_lines.py")


def test_logger_may_be_any_object_with_a_log_method() -> None:
    """As in confluent-kafka, the logger may be any object with a `log` method."""

    class Other:
        def __init__(self) -> None:
            self.lines: list[str] = []

        def log(self, level: int, form: str, *arguments: object) -> None:
            self.lines.append(f"{level} {form % arguments}")

    other, polls = Other(), Polls()
    lines = lines_of(settings(), other, polls.calls.append)  # type: ignore[arg-type]  # accepted at run time
    log_of(lines).warning("hello")
    polls.poll()
    assert re.fullmatch(r"30 HEARTBEAT \[rdkafka#member-\d+\] \[thrd:app\]: hello", other.lines[0])


@pytest.mark.parametrize(
    ("keys", "contexts", "level"),
    [
        ({}, set(), 6),
        ({"log_level": 3}, set(), 3),
        ({"log_level": "0x4"}, set(), 4),
        ({"debug": "cgrp, broker", "log_level": 0}, {"cgrp", "broker"}, 7),
        ({"log_level": "nonsense"}, set(), 6),
    ],
)
def test_log_settings_follow_debug_and_log_level_as_in_librdkafka(
    keys: dict[str, object], contexts: set[str], level: int
) -> None:
    """As in librdkafka, `debug` also raises `log_level`; librdkafka itself rejects invalid values."""
    config = ConsumerConfig.from_mapping({"group.id": "g", "bootstrap.servers": "h", "client.id": "c", **keys})
    assert config.log_settings() == LogSettings(client_id="c", contexts=frozenset(contexts), level=level)


def printed_by(program: str) -> str:
    """Return the output of a new process."""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=PROCESS_S)
    return ran.stdout


@pytest.mark.slow
def test_logging_configured_after_the_import_shows_the_lines() -> None:
    """`disable_existing_loggers`, True by default, disables existing loggers.

    The package has created none at that time.
    """
    assert "transitioned from UNSUBSCRIBED to JOINING" in printed_by(PROGRAM)


@pytest.mark.slow
def test_import_of_runtime_and_processing_creates_no_logger() -> None:
    """A module that gets its logger at import would be silenced by a later `dictConfig`."""
    assert printed_by(IMPORTS) == "[]\n"
