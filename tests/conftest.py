"""Fixtures and options that all tests share: a real broker, and the flags that leave its tests out.

Tests on a real broker are never skipped by themselves. Where no broker can be had they fail and say why; `--no-broker`
and `--no-docker` leave them out, and the summary says how many.
"""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from consumer_membership.devbroker import Broker, Way, start
from consumer_membership.devbroker.pool import BrokerPool

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Protocol

    from tests.support.secured import Materials

    class BrokerFactory(Protocol):
        """What the fixture `kafka_broker` gives."""

        def __call__(
            self,
            version: str | None = None,
            nodes: int | None = None,
            properties: Mapping[str, str] | None = None,
            *,
            way: Way | None = None,
            is_shared: bool = True,
        ) -> Broker: ...


# No test is judged by its time, examples of hypothesis neither: a machine may be busy.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

#: Brokers and Spark's processes live for seconds here; Java's second compiler takes more of those than it gives back.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
for of_process in ("KAFKA_JVM_PERFORMANCE_OPTS", "SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS", "SPARK_LAUNCHER_OPTS"):
    os.environ.setdefault(of_process, QUICK_JAVA)

_FLAGS = {
    # flag: (marker, what the tests would need)
    "--no-broker": ("integration", "a real Apache Kafka: KAFKA_BOOTSTRAP_SERVERS, a Docker engine, or Java with Maven"),
    "--no-docker": ("docker", "a Docker engine that has or can pull the image apache/kafka"),
}
_BROKER_TEST_TIMEOUT_S = 300  # whoever asks first for a version waits for 55 MB of jars, or for an image
_left_out = pytest.StashKey[dict[str, int]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the flags."""
    for flag, (marker, needs) in _FLAGS.items():
        parser.addoption(flag, action="store_true", help=f"leave out tests marked '{marker}', which need {needs}")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out what the flags leave out, count it, and give the rest time for a broker's first start."""
    left_out = config.stash.setdefault(_left_out, {})
    for flag, (marker, _) in _FLAGS.items():
        if not config.getoption(flag):
            continue
        dropped = [item for item in items if item.get_closest_marker(marker)]
        left_out[flag] = len(dropped)
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if not item.get_closest_marker(marker)]
    for item in items:
        if item.get_closest_marker("integration") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_BROKER_TEST_TIMEOUT_S))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what the flags left out."""
    for flag, count in config.stash.get(_left_out, {}).items():
        marker, needs = _FLAGS[flag]
        terminalreporter.write_sep("-", "left out")
        terminalreporter.write_line(f"{flag}: {count} tests marked '{marker}' were not run; they need {needs}")


@pytest.fixture(autouse=True)
def package_log() -> Iterator[None]:
    """The command line configures the package's log, as a process of its own may; the next test finds it untouched."""
    package = logging.getLogger("consumer_membership")
    level, handlers = package.level, list(package.handlers)
    yield
    package.setLevel(level)
    package.handlers[:] = handlers


@pytest.fixture(scope="session")
def broker_pool() -> Iterator[BrokerPool]:
    """The brokers of this test run, started on demand and stopped at its end."""
    with BrokerPool() as pool:
        yield pool


@pytest.fixture(scope="session")
def kafka(broker_pool: BrokerPool) -> Broker:
    """The broker that most tests share: the default version, one node, Kafka's own group settings."""
    return broker_pool.shared()


@pytest.fixture(scope="session")
def secured_materials(tmp_path_factory: pytest.TempPathFactory) -> Materials:
    """Certificates and users of this test run: made once, so that brokers which are given them can be shared."""
    from tests.support.secured import materials  # noqa: PLC0415 - slow to import, and most runs need it once at most

    return materials(tmp_path_factory.mktemp("secured"))


@pytest.fixture
def kafka_broker(broker_pool: BrokerPool) -> Iterator[BrokerFactory]:
    """A factory of brokers of other kinds.

    Shared ones are kept for the tests to come. With `is_shared=False` the broker is the test's own, whose
    nodes it may stop, and it is gone at its end.
    """
    with ExitStack() as own:

        def broker(
            version: str | None = None,
            nodes: int | None = None,
            properties: Mapping[str, str] | None = None,
            *,
            way: Way | None = None,
            is_shared: bool = True,
        ) -> Broker:
            if is_shared:
                return broker_pool.shared(version, nodes, properties, way=way)
            return own.enter_context(start(version, nodes, properties, way=way))

        yield broker
