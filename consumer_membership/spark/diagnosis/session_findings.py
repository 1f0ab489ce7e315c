"""What a session's configuration means for tasks that are members of a group for hours."""

from __future__ import annotations

from collections.abc import Iterator

from consumer_membership.spark.diagnosis.findings import Finding, error, ok, warning
from consumer_membership.spark.diagnosis.session import SessionFacts

_SLOTS = "slots"
_IDLE_PREFIXES = ("spark.python.worker", "spark.sql.execution.pyspark.udf")


def session_findings(facts: SessionFacts, instances: int | None) -> Iterator[Finding]:
    """One finding for everything that was looked at; `instances` None: it is not known how many there will be."""
    if facts.is_connect:
        yield _connect()
    else:
        yield _slots(facts, instances)
        yield _max_failures(facts)
    yield _speculation(facts)
    yield from _idle(facts)
    yield from _executors(facts, instances)
    yield from _workers(facts)


def _connect() -> Finding:
    return warning(
        "session",
        "Spark Connect",
        "there is no SparkContext: `run` and `drain` do not take such a session; how many tasks run at once and how "
        "often one is tried again cannot be read, and no task was asked for its Python, its packages and its network",
        "use a classic session, on the driver; foreachPartition(member_task(...)) needs no driver here",
    )


def _slots(facts: SessionFacts, instances: int | None) -> Finding:
    if facts.slots is None:
        return warning(
            _SLOTS, "not known", "instances without a slot wait", "see to it that each instance has a core of its own"
        )
    counted = f"{facts.slots} on {facts.master}"
    if instances is None:
        return ok(_SLOTS, counted)
    if facts.slots < instances:
        more = f"local[{instances}]" if _is_local(facts) else "cores of all executors, divided by spark.task.cpus"
        return warning(
            _SLOTS,
            f"{counted}, for {instances} instances",
            f"an instance holds its slot as long as it runs: {instances - facts.slots} of them have to wait until "
            "others end, and those that run have all partitions meanwhile",
            f"give the application {instances} slots ({more}), or ask for {facts.slots} instances",
        )
    taken = "all of them are taken: other jobs of this application wait" if facts.slots == instances else ""
    return ok(_SLOTS, f"{counted}, for {instances} instances", taken)


def _is_local(facts: SessionFacts) -> bool:
    return facts.master == "local" or facts.master.startswith("local[")


def _max_failures(facts: SessionFacts) -> Finding:
    key = "spark.task.maxFailures"
    if facts.max_failures == 1:
        local = "give a local master its number of attempts, local[N,F]"
        how = local if _is_local(facts) else "set it to 4 or more"
        return warning(key, "1", "the first task that is lost ends the run: there is no other attempt", how)
    return ok(
        key,
        str(facts.max_failures),
        "failures of one instance are counted over the whole run, weeks apart or not; a bounded drain begins anew",
    )


def _speculation(facts: SessionFacts) -> Finding:
    key = "spark.speculation"
    if facts.flag(key):
        return error(
            key,
            "true",
            "Spark starts a second copy of a task that it takes for slow; the copy takes the member over from the one "
            "that works",
            "set it to false for this application; `run` and `drain` refuse it unless allow_speculation=True is given",
        )
    return ok(key, "false")


def _idle(facts: SessionFacts) -> Iterator[Finding]:
    for prefix in _IDLE_PREFIXES:
        kill, after = f"{prefix}.killOnIdleTimeout", f"{prefix}.idleTimeoutSeconds"
        timeout = facts.conf.get(after, "0").strip()
        # Seconds, which may come with their unit.
        if facts.flag(kill) and timeout.rstrip("s") != "0":
            yield error(
                kill,
                f"true, after {timeout.rstrip('s')} s",
                "a worker that exchanges no data with Spark is killed, and a member exchanges its data with Kafka",
                f"set it to false, or {after} to 0, for this application",
            )


def _executors(facts: SessionFacts, instances: int | None) -> Iterator[Finding]:
    key = "spark.dynamicAllocation.enabled"
    if facts.flag(key) and not _has_enough_at_least(facts, instances):
        yield warning(
            key,
            "true",
            "executors come one after another, and with each of them more members join; idle ones go, and a later task "
            "waits for new ones",
            "set spark.dynamicAllocation.minExecutors to what all instances need, or switch it off",
        )
    for key in ("spark.excludeOnFailure.enabled", "spark.excludeOnFailure.taskAndStage.enabled"):
        if facts.flag(key):
            yield warning(
                key,
                "true",
                "a task that failed is not tried again on its executor: where no other one has a free slot, its "
                "partitions wait, and with a single executor the run ends",
                "set it to false for this application, or have more executors than instances need",
            )
    if facts.flag("spark.decommission.enabled"):
        yield ok(
            "spark.decommission.enabled",
            "true",
            "a task is not told that its executor goes; it works on to the end, and its replacement takes it over",
        )


def _has_enough_at_least(facts: SessionFacts, instances: int | None) -> bool:
    """Whether the executors that are always there have a slot for each instance."""
    cores = int(facts.conf.get("spark.executor.cores", "1")) // max(1, _cpus(facts))
    least = int(facts.conf.get("spark.dynamicAllocation.minExecutors", "0"))
    return instances is not None and least * cores >= instances


def _cpus(facts: SessionFacts) -> int:
    """CPUs a task; Spark 4.3 takes fractions, which count as one here."""
    return int(float(facts.conf.get("spark.task.cpus", "1")))


def _workers(facts: SessionFacts) -> Iterator[Finding]:
    key = "spark.sql.execution.pyspark.python"
    python = facts.conf.get(key)
    if python is not None and python != facts.python:
        yield warning(
            key,
            python,
            f"functions of DataFrames, members among them, run in this interpreter; jobs of RDDs, the one that looked "
            f"at the tasks among them, in {facts.python!r}",
            "leave it out, and set PYSPARK_PYTHON (spark.pyspark.python) for both",
        )
    if facts.conf.get("spark.python.worker.reuse", "true").strip().lower() == "false":
        yield ok(
            "spark.python.worker.reuse",
            "false",
            "each attempt of a task has a process of its own: it starts a little later, and nothing else changes",
        )
    killed_after = facts.conf.get("spark.python.task.killTimeout", "2s")
    yield ok(
        "spark.python.task.killTimeout",
        killed_after,
        "a cancelled task works on for up to two seconds and this long, then it is killed without a word; what keeps "
        "it from writing after its replacement is the fence in its sink",
    )
    daemon = facts.conf.get("spark.python.daemon.module")
    if daemon is not None:
        yield warning(
            "spark.python.daemon.module",
            daemon,
            "workers are forked from it: a client or a thread that it makes does not work in them",
            "let it import modules only, and make clients in tasks",
        )
