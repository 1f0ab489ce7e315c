"""The checks of a Spark session's settings, and the findings for tasks that are group members for hours."""

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

#: `local`, `local[2]`, `local[*]`, `local[2,3]`: the number of slots, and of attempts of each task.
_LOCAL = re.compile(r"local(?:\[\s*(?:\d+|\*)\s*(?:,\s*(\d+)\s*)?\])?")
_DEFAULT_MAX_FAILURES = 4
_IDLE_PREFIXES = ("spark.python.worker", "spark.sql.execution.pyspark.udf")
_EXCLUSIONS = ("spark.excludeOnFailure.enabled", "spark.excludeOnFailure.taskAndStage.enabled")

#: The keys of the findings. Keys of `spark.sql` belong to the session, the others to the application.
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
    """The settings of one session; `conf` has only the keys that are set.

    `slots`: the number of tasks that run at once, None if unknown. `max_failures`: how often one task may fail before
    the job fails. `python`: the Python command of the executors. With Spark Connect, all three are unknown.
    """

    is_connect: bool = False
    master: str = ""
    slots: int | None = None
    max_failures: int | None = None
    python: str = ""
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        """Whether all tasks run in the driver's process, where all slots exist from the start."""
        return self.master == "local" or self.master.startswith("local[")

    def slots_to_come(self, instances: int | None) -> int:
        """Return the expected number of tasks that run at once; executors may still be starting."""
        return (self.slots or 1) if self.is_local else max(self.slots or 1, instances or 1)

    def flag(self, key: str) -> bool:
        """Return whether a key is set to true; all keys except worker reuse are false by default."""
        return self.conf.get(key, "").strip().lower() == "true"


def session_facts(spark: SparkSession) -> SessionFacts:
    """Collect the settings of a session."""
    context = context_of(spark)
    application = {} if context is None else dict(context.getConf().getAll())
    settings = {key: application.get(key) or spark.conf.get(key, None) for key in _KEYS}
    conf = {key: value for key, value in settings.items() if value is not None}
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
    """Return how many tasks, each with `spark.task.cpus` CPUs, run at once on the present executors."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    try:
        # The number that Spark compares with the slots that a barrier stage needs: of each registered executor, its
        # cores divided by the CPUs of a task. spark.default.parallelism is another number.
        scala = context._jsc.sc()  # noqa: SLF001 - Python has no public method
        return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))
    except Py4JError:
        return None


def _max_failures(master: str, conf: Mapping[str, str]) -> int:
    """Return the number of attempts of a task; a local master ignores spark.task.maxFailures and has 1 by default."""
    local = _LOCAL.fullmatch(master.strip())
    if local is not None:
        return int(local[1] or 1)
    return int(conf.get("spark.task.maxFailures", _DEFAULT_MAX_FAILURES))


# ---- findings --------------------------------------------------------------------------------------------------------


def session_findings(facts: SessionFacts, instances: int | None) -> Iterator[Finding]:
    """Yield one finding for each check; `instances` is None if the number of members is unknown."""
    found = partial(finding, s=facts, instances=instances)
    if facts.is_connect:
        yield found("connect")
    else:
        more = f"local[{instances}]" if facts.is_local else "cores of all executors, divided by spark.task.cpus"
        yield found(_slots(facts.slots, instances), missing=(instances or 0) - (facts.slots or 0), more=more)
        how = "use a local master with a number of attempts, local[N,F]" if facts.is_local else "set it to 4 or more"
        yield found("one attempt" if facts.max_failures == 1 else "attempts", how=how)
    yield found("speculation" if facts.flag("spark.speculation") else "no speculation")
    for prefix in _IDLE_PREFIXES:
        # Seconds, possibly with a unit.
        seconds = facts.conf.get(f"{prefix}.idleTimeoutSeconds", "0").strip().rstrip("s")
        if facts.flag(f"{prefix}.killOnIdleTimeout") and seconds != "0":
            yield found("idle workers killed", prefix=prefix, seconds=seconds)
    if facts.flag("spark.dynamicAllocation.enabled") and not _has_enough_at_least(facts, instances):
        yield found("allocation")
    for key in filter(facts.flag, _EXCLUSIONS):
        yield found("exclusion", key=key)
    if facts.flag("spark.decommission.enabled"):
        yield found("decommissioning")
    python = facts.conf.get("spark.sql.execution.pyspark.python", facts.python)
    if python != facts.python:
        yield found("other interpreter", value=python)
    if facts.conf.get("spark.python.worker.reuse", "true").strip().lower() == "false":
        yield found("no reuse")
    yield found("kill timeout", value=facts.conf.get("spark.python.task.killTimeout", "2s"))
    if (daemon := facts.conf.get("spark.python.daemon.module")) is not None:
        yield found("own daemon", value=daemon)


def _slots(slots: int | None, instances: int | None) -> str:
    if slots is None:
        return "slots not known"
    if instances is None:
        return "slots"
    if slots < instances:
        return "slots too few"
    return "slots all taken" if slots == instances else "slots enough"


def _has_enough_at_least(facts: SessionFacts, instances: int | None) -> bool:
    """Return whether the minimum number of executors has a slot for each instance."""
    # Spark 4.3 accepts fractions of a CPU, which count as one CPU here.
    cpus = int(float(facts.conf.get("spark.task.cpus", "1")))
    cores = int(facts.conf.get("spark.executor.cores", "1")) // max(1, cpus)
    least = int(facts.conf.get("spark.dynamicAllocation.minExecutors", "0"))
    return instances is not None and least * cores >= instances
