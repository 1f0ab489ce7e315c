"""What a Spark session says about itself, and what that means for tasks that are members of a group for hours."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from consumer_membership.spark.arguments import context_of
from consumer_membership.spark.diagnosis.catalogue import finding
from consumer_membership.spark.diagnosis.findings import Finding

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

#: `local`, `local[2]`, `local[*]`, `local[2,3]`: slots, and attempts for each task.
_LOCAL = re.compile(r"local(?:\[\s*(?:\d+|\*)\s*(?:,\s*(\d+)\s*)?\])?")
_DEFAULT_MAX_FAILURES = 4
_IDLE_PREFIXES = ("spark.python.worker", "spark.sql.execution.pyspark.udf")
_EXCLUSIONS = ("spark.excludeOnFailure.enabled", "spark.excludeOnFailure.taskAndStage.enabled")

#: What the findings go by. The keys of `spark.sql` are the session's own; of the others it knows the application's.
_KEYS = (
    "spark.decommission.enabled",
    "spark.dynamicAllocation.enabled",
    "spark.dynamicAllocation.minExecutors",
    *_EXCLUSIONS,
    "spark.executor.cores",
    "spark.python.daemon.module",
    "spark.python.task.killTimeout",
    *(f"{prefix}.{what}" for prefix in _IDLE_PREFIXES for what in ("idleTimeoutSeconds", "killOnIdleTimeout")),
    "spark.python.worker.reuse",
    "spark.speculation",
    "spark.sql.execution.pyspark.python",
    "spark.task.cpus",
    "spark.task.maxFailures",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFacts:
    """One session; a key that nobody set is not in `conf`.

    `slots`: how many tasks run at once, None where that cannot be told. `max_failures`: how often one task may fail
    before the job does. `python` is the command that executors run as Python. On Spark Connect all three are unknown.
    """

    is_connect: bool = False
    master: str = ""
    slots: int | None = None
    max_failures: int | None = None
    python: str = ""
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        """Whether all tasks run in the driver's process, whose slots are there from the start."""
        return self.master == "local" or self.master.startswith("local[")

    def slots_to_come(self, instances: int | None) -> int:
        """How many tasks will run at once, as far as is known: executors may still be starting."""
        return (self.slots or 1) if self.is_local else max(self.slots or 1, instances or 1)

    def flag(self, key: str) -> bool:
        """Whether this key is set to true; all of them are false by default but the reuse of workers."""
        return self.conf.get(key, "").strip().lower() == "true"


def session_facts(spark: SparkSession) -> SessionFacts:
    """What this session says."""
    context = context_of(spark)
    application = {} if context is None else dict(context.getConf().getAll())
    said = {key: application.get(key) or spark.conf.get(key, None) for key in _KEYS}
    conf = {key: value for key, value in said.items() if value is not None}
    if context is None:
        return SessionFacts(is_connect=True, conf=conf)
    return SessionFacts(
        master=str(context.master),
        slots=_slots_of(context),
        max_failures=_max_failures(str(context.master), conf),
        python=context.pythonExec,
        conf=conf,
    )


def _slots_of(context: SparkContext) -> int | None:
    """How many tasks of one CPU share (`spark.task.cpus`) run at once on the executors that are there now."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    try:
        # What Spark itself goes by when a barrier stage asks for more slots than there are. Executors are counted that
        # are registered, cores over CPUs a task; spark.default.parallelism, which is no such number, does not matter.
        scala = context._jsc.sc()  # noqa: SLF001 - Python has no way of its own
        return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))
    except Py4JError:
        return None


def _max_failures(master: str, conf: Mapping[str, str]) -> int:
    """A local master has one attempt for each task unless it says otherwise, and spark.task.maxFailures is ignored."""
    local = _LOCAL.fullmatch(master.strip())
    if local is not None:
        return int(local[1] or 1)
    return int(conf.get("spark.task.maxFailures", _DEFAULT_MAX_FAILURES))


# ---- what it means ---------------------------------------------------------------------------------------------------


def session_findings(facts: SessionFacts, instances: int | None) -> Iterator[Finding]:
    """One finding for everything that was looked at; `instances` None: it is not known how many there will be."""
    said = partial(finding, s=facts, instances=instances)
    if facts.is_connect:
        yield said("connect")
    else:
        more = f"local[{instances}]" if facts.is_local else "cores of all executors, divided by spark.task.cpus"
        yield said(_slots(facts.slots, instances), missing=(instances or 0) - (facts.slots or 0), more=more)
        how = "give a local master its number of attempts, local[N,F]" if facts.is_local else "set it to 4 or more"
        yield said("one attempt" if facts.max_failures == 1 else "attempts", how=how)
    yield said("speculation" if facts.flag("spark.speculation") else "no speculation")
    for prefix in _IDLE_PREFIXES:
        # Seconds, which may come with their unit.
        seconds = facts.conf.get(f"{prefix}.idleTimeoutSeconds", "0").strip().rstrip("s")
        if facts.flag(f"{prefix}.killOnIdleTimeout") and seconds != "0":
            yield said("idle workers killed", prefix=prefix, seconds=seconds)
    if facts.flag("spark.dynamicAllocation.enabled") and not _has_enough_at_least(facts, instances):
        yield said("allocation")
    for key in filter(facts.flag, _EXCLUSIONS):
        yield said("exclusion", key=key)
    if facts.flag("spark.decommission.enabled"):
        yield said("decommissioning")
    python = facts.conf.get("spark.sql.execution.pyspark.python", facts.python)
    if python != facts.python:
        yield said("other interpreter", value=python)
    if facts.conf.get("spark.python.worker.reuse", "true").strip().lower() == "false":
        yield said("no reuse")
    yield said("kill timeout", value=facts.conf.get("spark.python.task.killTimeout", "2s"))
    if (daemon := facts.conf.get("spark.python.daemon.module")) is not None:
        yield said("own daemon", value=daemon)


def _slots(slots: int | None, instances: int | None) -> str:
    if slots is None:
        return "slots not known"
    if instances is None:
        return "slots"
    if slots < instances:
        return "slots too few"
    return "slots all taken" if slots == instances else "slots enough"


def _has_enough_at_least(facts: SessionFacts, instances: int | None) -> bool:
    """Whether the executors that are always there have a slot for each instance."""
    # Spark 4.3 takes fractions of a CPU, which count as one here.
    cpus = int(float(facts.conf.get("spark.task.cpus", "1")))
    cores = int(facts.conf.get("spark.executor.cores", "1")) // max(1, cpus)
    least = int(facts.conf.get("spark.dynamicAllocation.minExecutors", "0"))
    return instances is not None and least * cores >= instances
