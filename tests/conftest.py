"""Fixtures and options that all tests share: real brokers, flags that deselect tests, and the costs of a run.

Tests on a real broker are never skipped automatically. Without a broker they fail with the reason; `--no-broker`,
`--no-docker` and `--no-hosts` deselect them. `--gate` deselects the tests that only `python -m tests --full` runs. The
summary reports the number of deselected tests.
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
from tests.support.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Protocol

    from xdist.workermanage import WorkerController

    from consumer_membership.devbroker import Backend, Broker
    from tests.support.brokers import BrokerKeeper, RunBrokers
    from tests.support.secured import Materials

    class BrokerFactory(Protocol):
        """The type of the fixture `kafka_broker`."""

        def __call__(
            self,
            version: str | None = None,
            nodes: int | None = None,
            properties: Mapping[str, str] | None = None,
            *,
            backend: Backend | None = None,
            is_shared: bool = True,
        ) -> Broker: ...


#: Brokers and Spark run only for minutes, so Java's second compiler would cost more CPU time than it saves.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
for of_process in ("KAFKA_JVM_PERFORMANCE_OPTS", "SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS", "SPARK_LAUNCHER_OPTS"):
    os.environ.setdefault(of_process, QUICK_JAVA)

_FLAGS = {
    # flag: (marker, the requirement of the tests)
    "--no-broker": ("integration", "a real Apache Kafka: KAFKA_BOOTSTRAP_SERVERS, a Docker engine, or Java with Maven"),
    "--no-docker": ("docker", "a Docker engine that has or can pull the image apache/kafka"),
    "--no-hosts": ("hosts", "network namespaces: Linux, root and iproute2"),
    "--connect": ("classic", "a SparkContext: a session of Spark Connect, which the others have then, has none"),
    "--gate": ("full", "the time of `python -m tests --full`"),
}
_BROKER_TEST_TIMEOUT_S = 300  # the first start of a version downloads 43 MB of jars or an image
#: Files that were already checked: they contain the mark `integration`.
_OF_FLOOR_5: set[Path] = set()
_costs = pytest.StashKey[Costs]()
_keeper = pytest.StashKey["BrokerKeeper"]()
_brokers = pytest.StashKey["RunBrokers"]()
#: Keys of a worker's input and output.
_FOLDER, _WORKERS, _COSTS = "broker_folder", "workers", "costs"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    for flag, (marker, needs) in _FLAGS.items():
        parser.addoption(flag, action="store_true", help=f"leave out tests marked '{marker}', which need {needs}")
    parser.addoption("--costs", type=Path, metavar="FILE", help="write what tests and brokers' starts took there")
    parser.addoption("--outcomes", type=Path, metavar="FILE", help="append the outcome of each test to this file")


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugins for costs, outcomes and, in a worker, turns; end this process with `python -m tests`."""
    config.stash[_costs] = Costs()
    config.pluginmanager.register(Accountant(config), "costs")
    if (given := getattr(config, "workerinput", None)) is not None:
        config.pluginmanager.register(TakesTurns(Turns(Path(given[_FOLDER]), given[_WORKERS])), "turns")
    if (path := config.getoption("--outcomes")) is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(OutcomeWriter(path), "outcomes")
    if (owner := os.environ.get("TESTS_OWNER")) is not None and hasattr(os, "pidfd_open"):
        threading.Thread(target=_end_with, args=(int(owner),), name="owner's end", daemon=True).start()


def _end_with(owner: int) -> None:
    """End this process when `python -m tests` ends in any way; workers and brokers then end with this process."""
    with suppress(ProcessLookupError):
        select.select([os.pidfd_open(owner)], [], [])
    os.kill(os.getpid(), signal.SIGTERM)


def pytest_pycollect_makemodule(module_path: Path) -> None:
    """Set up Hypothesis before a module creates its own settings.

    The import of Hypothesis takes half the start time of a single file, so it is omitted for other modules.
    """
    if "hypothesis" in module_path.read_text():
        seeds.seed_hypothesis()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Require the mark `integration` in the test's own file, where `python -m tests` searches for it."""
    if item.get_closest_marker("integration") and item.path not in _OF_FLOOR_5:
        if "integration" not in item.path.read_text():
            raise pytest.UsageError(f"{item.nodeid} is marked integration by another file; say so in its own")
        _OF_FLOOR_5.add(item.path)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect and count the tests that the options exclude, and give broker tests time for a broker's first start."""
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
    """Distribute tests by file, and the files of one Spark session to one process."""
    if config.getoption("dist") != "loadfile":
        return None
    from tests.support.scheduling import Scheduling  # noqa: PLC0415 - needed only with `loadfile`

    return Scheduling(config, log)


class TakesTurns:
    """A plugin that makes each test of a worker wait for its turn before its time limit begins."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        """Take a turn for the whole test, including its fixtures."""
        with self._turns.taken():
            return (yield)


# ---- costs -----------------------------------------------------------------------------------------------------------


def _cpu_s() -> float:
    """Return the CPU time of this process and of its child processes that have ended."""
    return sum(os.times()[:4])


class Accountant:
    """Counts the costs in pytest's main process; at its end, a worker reports its costs to the main process."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.costs = config.stash[_costs]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Add the CPU time of a test; a busy machine does not change it."""
        before = _cpu_s()
        result = yield
        self.costs.add_cpu({item.nodeid.partition("::")[0]: _cpu_s() - before})
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add this phase of a test."""
        self.costs.add_test(report.nodeid, report.duration)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: WorkerController) -> None:
        """Add the costs that a worker reported; a killed worker reported none."""
        reported = getattr(node, "workeroutput", {}).get(_COSTS)
        if reported is not None:
            self.costs.add_starts(reported["starts"])
            self.costs.add_cpu(reported["cpu"])
            self.costs.recordings += reported["recordings"]
            # Not added up, because each worker collects all tests.
            self.costs.left_out, self.costs.reasons = reported["left_out"], reported["reasons"]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Add the broker starts, and report them to the main process."""
        of_this_process = self.config.stash.get(_brokers, None)
        starts = list(of_this_process.starts) if of_this_process is not None else []
        keeper = self.config.stash.get(_keeper, None)
        starts += keeper.starts if keeper is not None else []
        started = [(one.kind, one.seconds) for one in starts]
        if (output := getattr(self.config, "workeroutput", None)) is not None:
            output[_COSTS] = {
                "starts": started,
                "cpu": self.costs.cpu,
                "left_out": self.costs.left_out,
                "reasons": self.costs.reasons,
                "recordings": len(REPLAYED),
            }
            return
        self.costs.add_starts(started)
        self.costs.recordings += len(REPLAYED)
        if (path := self.config.getoption("--costs")) is not None:
            self.costs.write(path)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the costs and the numbers of deselected tests."""
        if len(self.costs.tests) > 1:
            terminalreporter.write_sep("-", "costs")
            for line in self.costs.lines():
                terminalreporter.write_line(line)
        for flag, count in self.costs.left_out.items():
            marker, needs = _FLAGS[flag]
            if marker == "full":  # printed above, with reasons
                continue
            terminalreporter.write_sep("-", "left out")
            terminalreporter.write_line(f"{flag}: {count} tests marked '{marker}' were not run; they need {needs}")


# ---- brokers ---------------------------------------------------------------------------------------------------------


def _kept(config: pytest.Config) -> BrokerKeeper:
    """Return the keeper of this run's brokers, which exists in pytest's main process."""
    if _keeper not in config.stash:
        from tests.support.brokers import BrokerKeeper  # noqa: PLC0415 - not for a run without brokers

        config.stash[_keeper] = BrokerKeeper()
        config.add_cleanup(config.stash[_keeper].stop)
    return config.stash[_keeper]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Pass a worker the folder of this run, which contains its brokers, and the number of workers."""
    node.workerinput[_FOLDER] = str(_kept(node.config).folder)
    node.workerinput[_WORKERS] = node.config.option.numprocesses


@pytest.fixture(autouse=True)
def package_log() -> Iterator[None]:
    """Restore the package's logger after each test, because the command line configures it."""
    package = logging.getLogger("consumer_membership")
    level, handlers = package.level, list(package.handlers)
    yield
    package.setLevel(level)
    package.handlers[:] = handlers


@pytest.fixture(scope="session")
def broker_pool(request: pytest.FixtureRequest) -> RunBrokers:
    """Return the brokers of this test run, which all its processes share; they are started on demand."""
    from tests.support.brokers import RunBrokers  # noqa: PLC0415 - not for a run without brokers

    config = request.config
    folder = getattr(config, "workerinput", {}).get(_FOLDER)
    config.stash[_brokers] = RunBrokers(Path(folder) if folder is not None else _kept(config).folder)
    return config.stash[_brokers]


@pytest.fixture(scope="module", autouse=True)
def brokers_are_let_go(request: pytest.FixtureRequest) -> Iterator[None]:
    """Release the module's brokers after its last test, so that they may be stopped to save memory."""
    yield
    brokers = request.config.stash.get(_brokers, None)
    if brokers is not None:
        brokers.release()


@pytest.fixture(scope="module")
def kafka(broker_pool: RunBrokers) -> Broker:
    """Return the broker that most tests share: newest version, one node, Kafka's default group settings."""
    return broker_pool.shared()


@pytest.fixture(scope="session")
def secured_materials(broker_pool: RunBrokers) -> Materials:
    """Return the certificates and users of this test run, created once, so that secured brokers can be shared."""
    from tests.support.secured import materials_of_run  # noqa: PLC0415 - slow to import, and rarely needed

    return materials_of_run(broker_pool.folder)


@pytest.fixture
def kafka_broker(broker_pool: RunBrokers) -> Iterator[BrokerFactory]:
    """Return a factory of other brokers.

    Shared brokers are kept for later tests. A broker with `is_shared=False` belongs to the test, which may stop its
    nodes, and it is deleted at the test's end.
    """
    with ExitStack() as own:

        def broker(
            version: str | None = None,
            nodes: int | None = None,
            properties: Mapping[str, str] | None = None,
            *,
            backend: Backend | None = None,
            is_shared: bool = True,
        ) -> Broker:
            if is_shared:
                return broker_pool.shared(version, nodes, properties, backend=backend)
            return own.enter_context(broker_pool.own(version, nodes, properties, backend=backend))

        yield broker
