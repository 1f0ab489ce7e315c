"""Fixtures and options that all tests share: real brokers, the flags that leave tests out, and what a run cost.

Tests on a real broker are never skipped by themselves. Where no broker can be had they fail and say why; `--no-broker`,
`--no-docker` and `--no-hosts` leave them out, `--gate` what only `python -m tests --full` runs; the summary says how
many.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import threading
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support import seeds
from tests.support.costs import REPLAYED, Costs
from tests.support.order import rank
from tests.support.outcomes import OutcomeWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Protocol

    from xdist.workermanage import WorkerController

    from consumer_membership.devbroker import Broker, Way
    from tests.support.brokers import BrokerKeeper, RunBrokers
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


#: Brokers and Spark live for minutes here: Java's second compiler takes more of the cores than it gives back.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
for of_process in ("KAFKA_JVM_PERFORMANCE_OPTS", "SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS", "SPARK_LAUNCHER_OPTS"):
    os.environ.setdefault(of_process, QUICK_JAVA)

_FLAGS = {
    # flag: (marker, what the tests would need)
    "--no-broker": ("integration", "a real Apache Kafka: KAFKA_BOOTSTRAP_SERVERS, a Docker engine, or Java with Maven"),
    "--no-docker": ("docker", "a Docker engine that has or can pull the image apache/kafka"),
    "--no-hosts": ("hosts", "network namespaces: Linux, root and iproute2"),
    "--connect": ("classic", "a SparkContext: a session of Spark Connect, which the others have then, has none"),
    "--gate": ("full", "the time of `python -m tests --full`"),
}
_BROKER_TEST_TIMEOUT_S = 300  # whoever asks first for a version waits for 43 MB of jars, or for an image
#: Files that say of themselves that they are of it.
_OF_FLOOR_5: set[Path] = set()
_costs = pytest.StashKey[Costs]()
_keeper = pytest.StashKey["BrokerKeeper"]()
_brokers = pytest.StashKey["RunBrokers"]()
#: Under which names a worker is told, and tells at its end.
_FOLDER, _COSTS = "broker_folder", "costs"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the flags."""
    for flag, (marker, needs) in _FLAGS.items():
        parser.addoption(flag, action="store_true", help=f"leave out tests marked '{marker}', which need {needs}")
    parser.addoption("--costs", type=Path, metavar="FILE", help="write what tests and brokers' starts took there")
    parser.addoption("--outcomes", type=Path, metavar="FILE", help="append the outcome of each test to this file")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to count."""
    config.stash[_costs] = Costs()
    config.pluginmanager.register(Accountant(config), "costs")
    if (path := config.getoption("--outcomes")) is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(OutcomeWriter(path), "outcomes")
    if (owner := os.environ.get("TESTS_OWNER")) is not None and hasattr(os, "pidfd_open"):
        threading.Thread(target=_end_with, args=(int(owner),), name="owner's end", daemon=True).start()


def _end_with(owner: int) -> None:
    """End this process when `python -m tests` is gone, however it ended; workers and brokers end with this one."""
    with suppress(ProcessLookupError):
        select.select([os.pidfd_open(owner)], [], [])
    os.kill(os.getpid(), signal.SIGTERM)


def pytest_pycollect_makemodule(module_path: Path) -> None:
    """Set Hypothesis up before a module makes settings of its own.

    Its import is half the start of a run of one file, so other modules do without.
    """
    if "hypothesis" in module_path.read_text():
        seeds.seed_hypothesis()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Hold a test of floor 5 to its mark: `python -m tests` looks for that floor where the word is."""
    if item.get_closest_marker("integration") and item.path not in _OF_FLOOR_5:
        if "integration" not in item.path.read_text():
            raise pytest.UsageError(f"{item.nodeid} is marked integration by another file; say so in its own")
        _OF_FLOOR_5.add(item.path)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out what the flags leave out, count it, and give the rest time for a broker's first start."""
    if config.getoption("--gate") or "full" in config.option.markexpr:
        from tests.support.full import reason  # noqa: PLC0415 - not for a single test

        for item in items:
            if (why := reason(item)) is not None:
                item.add_marker(pytest.mark.full(why))
    for flag, (marker, _) in _FLAGS.items():
        if not config.getoption(flag):
            continue
        dropped = [item for item in items if item.get_closest_marker(marker)]
        config.stash[_costs].left_out[flag] = len(dropped)
        if marker == "full":
            reasons = (mark.args[0] for item in dropped if (mark := item.get_closest_marker(marker)) is not None)
            config.stash[_costs].reasons = dict(Counter(reasons))
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if not item.get_closest_marker(marker)]
    for item in items:
        if item.get_closest_marker("integration") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_BROKER_TEST_TIMEOUT_S))
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: rank(item.nodeid.partition("::")[0]))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Files to processes, those of one Spark session to one."""
    if config.getoption("dist") != "loadfile":
        return None
    from tests.support.scheduling import Scheduling  # noqa: PLC0415 - not for a run without it

    return Scheduling(config, log)


# ---- what it cost ----------------------------------------------------------------------------------------------------


class Accountant:
    """Counts in the process that pytest was started in; a worker tells it what it alone knows, at its end."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.costs = config.stash[_costs]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add this phase of a test."""
        self.costs.add_test(report.nodeid, report.duration)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: WorkerController) -> None:
        """Take over what a worker has told; one that was killed has told nothing."""
        told = getattr(node, "workeroutput", {}).get(_COSTS)
        if told is not None:
            self.costs.add_starts(told["starts"])
            self.costs.recordings += told["recordings"]
            # Each worker collects all tests.
            self.costs.left_out, self.costs.reasons = told["left_out"], told["reasons"]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Add the brokers' starts, and tell the process that started this one."""
        of_this_process = self.config.stash.get(_brokers, None)
        starts = list(of_this_process.starts) if of_this_process is not None else []
        keeper = self.config.stash.get(_keeper, None)
        starts += keeper.starts if keeper is not None else []
        told = [(one.kind, one.seconds) for one in starts]
        if (output := getattr(self.config, "workeroutput", None)) is not None:
            output[_COSTS] = {
                "starts": told,
                "left_out": self.costs.left_out,
                "reasons": self.costs.reasons,
                "recordings": len(REPLAYED),
            }
            return
        self.costs.add_starts(told)
        self.costs.recordings += len(REPLAYED)
        if (path := self.config.getoption("--costs")) is not None:
            self.costs.write(path)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print it, and what the flags left out."""
        if len(self.costs.tests) > 1:
            terminalreporter.write_sep("-", "costs")
            for line in self.costs.lines():
                terminalreporter.write_line(line)
        for flag, count in self.costs.left_out.items():
            marker, needs = _FLAGS[flag]
            if marker == "full":  # told above, with reasons
                continue
            terminalreporter.write_sep("-", "left out")
            terminalreporter.write_line(f"{flag}: {count} tests marked '{marker}' were not run; they need {needs}")


# ---- brokers ---------------------------------------------------------------------------------------------------------


def _kept(config: pytest.Config) -> BrokerKeeper:
    """The keeper of this run's brokers, in the process that pytest was started in."""
    if _keeper not in config.stash:
        from tests.support.brokers import BrokerKeeper  # noqa: PLC0415 - not for a run without brokers

        config.stash[_keeper] = BrokerKeeper()
        config.add_cleanup(config.stash[_keeper].stop)
    return config.stash[_keeper]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Tell a worker where to ask for brokers."""
    node.workerinput[_FOLDER] = str(_kept(node.config).folder)


@pytest.fixture(autouse=True)
def package_log() -> Iterator[None]:
    """The command line configures the package's log, as a process of its own may; the next test finds it untouched."""
    package = logging.getLogger("consumer_membership")
    level, handlers = package.level, list(package.handlers)
    yield
    package.setLevel(level)
    package.handlers[:] = handlers


@pytest.fixture(scope="session")
def broker_pool(request: pytest.FixtureRequest) -> RunBrokers:
    """The brokers of this test run, of all its processes: started on demand and stopped at its end."""
    from tests.support.brokers import RunBrokers  # noqa: PLC0415 - not for a run without brokers

    config = request.config
    told = getattr(config, "workerinput", {}).get(_FOLDER)
    config.stash[_brokers] = RunBrokers(Path(told) if told is not None else _kept(config).folder)
    return config.stash[_brokers]


@pytest.fixture(scope="module", autouse=True)
def brokers_are_let_go(request: pytest.FixtureRequest) -> Iterator[None]:
    """Behind the last test of a module its brokers may be stopped, to make room for others."""
    yield
    brokers = request.config.stash.get(_brokers, None)
    if brokers is not None:
        brokers.let_go()


@pytest.fixture(scope="module")
def kafka(broker_pool: RunBrokers) -> Broker:
    """The broker that most tests share: the newest version, one node, Kafka's own group settings."""
    return broker_pool.shared()


@pytest.fixture(scope="session")
def secured_materials(broker_pool: RunBrokers) -> Materials:
    """Certificates and users of this test run: made once, so that brokers which are given them can be shared."""
    from tests.support.secured import materials_of_run  # noqa: PLC0415 - slow to import, and most runs need it never

    return materials_of_run(broker_pool.folder)


@pytest.fixture
def kafka_broker(broker_pool: RunBrokers) -> Iterator[BrokerFactory]:
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
            return own.enter_context(broker_pool.own(version, nodes, properties, way=way))

        yield broker
