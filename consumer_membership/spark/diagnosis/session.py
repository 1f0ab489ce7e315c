"""What a Spark session says about itself: its configuration, and how many tasks it runs at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from consumer_membership.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

#: `local`, `local[2]`, `local[*]`, `local[2,3]`: slots, and attempts for each task.
_LOCAL = re.compile(r"local(?:\[\s*(?:\d+|\*)\s*(?:,\s*(\d+)\s*)?\])?")
_DEFAULT_MAX_FAILURES = 4

#: What the findings go by. The keys of `spark.sql` are the session's own; of the others it knows the application's.
KEYS = (
    "spark.decommission.enabled",
    "spark.driver.bindAddress",
    "spark.driver.host",
    "spark.dynamicAllocation.enabled",
    "spark.dynamicAllocation.minExecutors",
    "spark.excludeOnFailure.enabled",
    "spark.excludeOnFailure.taskAndStage.enabled",
    "spark.executor.cores",
    "spark.python.daemon.module",
    "spark.python.task.killTimeout",
    "spark.python.worker.idleTimeoutSeconds",
    "spark.python.worker.killOnIdleTimeout",
    "spark.python.worker.reuse",
    "spark.speculation",
    "spark.sql.execution.pyspark.python",
    "spark.sql.execution.pyspark.udf.idleTimeoutSeconds",
    "spark.sql.execution.pyspark.udf.killOnIdleTimeout",
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
    version: str = ""
    master: str = ""
    slots: int | None = None
    max_failures: int | None = None
    python: str = ""
    conf: Mapping[str, str] = field(default_factory=dict)

    def flag(self, key: str) -> bool:
        """Whether this key is set to true; all of them are false by default but the reuse of workers."""
        return self.conf.get(key, "").strip().lower() == "true"


def session_facts(spark: SparkSession) -> SessionFacts:
    """What this session says.

    Raises:
        ConfigurationError: the session is stopped.
    """
    context = context_of(spark)
    if context is None:
        return SessionFacts(is_connect=True, version=str(spark.version), conf=_conf(spark, {}))
    conf = _conf(spark, dict(context.getConf().getAll()))
    return SessionFacts(
        version=context.version,
        master=str(context.master),
        slots=slots_of(context),
        max_failures=_max_failures(str(context.master), conf),
        python=context.pythonExec,
        conf=conf,
    )


def context_of(spark: SparkSession) -> SparkContext | None:
    """The session's SparkContext; None: it is one of Spark Connect, which has none.

    Raises:
        ConfigurationError: the session is stopped.
    """
    try:
        context = spark.sparkContext
    except AttributeError:  # pyspark's own error for this is one, too
        return None
    if context._jsc is None:  # noqa: SLF001 - nothing else tells
        raise ConfigurationError("spark", "a stopped session", "make a session before it is checked")
    return context


def slots_of(context: SparkContext) -> int | None:
    """How many tasks of one CPU share (`spark.task.cpus`) run at once on the executors that are there now."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # noqa: PLC0415 - comes with pyspark

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


def _conf(spark: SparkSession, application: Mapping[str, str]) -> Mapping[str, str]:
    found = {key: application.get(key) or spark.conf.get(key, None) for key in KEYS}
    return {key: value for key, value in found.items() if value is not None}
