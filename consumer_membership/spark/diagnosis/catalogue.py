"""The text of every finding: what was found, why it matters, and the remedy.

The first line of an entry has its name, its severity, the subject and what was found; then follows the reason, and
after the arrow the remedy. Names in braces are replaced by the arguments of `finding`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from consumer_membership.spark.diagnosis.findings import Finding, Severity

#: In this order: the session, the workers, the cluster, and the caller's arguments.
_TEXTS = """
connect | warning | session | Spark Connect
    a client has no SparkContext, so the number of slots and the number of attempts of a task are unknown
    -> make sure that there is a slot for each instance
slots not known | warning | slots | not known
    instances without a slot wait
    -> make sure that there is a slot for each instance
slots | ok | slots | {s.slots} on {s.master}
slots too few | warning | slots | {s.slots} on {s.master}, for {instances} instances
    an instance occupies its slot as long as it runs: {missing} instances wait until others end, and until then the
    running instances own all partitions
    -> give the application {instances} slots ({more}), or ask for {s.slots} instances
slots all taken | ok | slots | {s.slots} on {s.master}, for {instances} instances
    the instances occupy all slots, so other jobs of this application wait
slots enough | ok | slots | {s.slots} on {s.master}, for {instances} instances
one attempt | warning | spark.task.maxFailures | 1
    a task has only one attempt, so the first lost task ends the run
    -> {how}
attempts | ok | spark.task.maxFailures | {s.max_failures}
    Spark counts the failures of an instance over the whole run, even if they are weeks apart; each drain starts at 0
speculation | error | spark.speculation | true
    Spark starts a copy of a task that seems slow, and the copy takes the member over from the working task
    -> set it to false for this application; `run` and `drain` reject it unless you set allow_speculation=True
no speculation | ok | spark.speculation | false
idle workers killed | error | {prefix}.killOnIdleTimeout | true, after {seconds} s
    Spark kills a worker that exchanges no data with Spark, and a member exchanges data only with Kafka
    -> set it to false, or {prefix}.idleTimeoutSeconds to 0, for this application
allocation | warning | spark.dynamicAllocation.enabled | true
    executors start one after another, and each start causes a rebalance; idle executors are removed, and a later task
    waits for a new executor
    -> set spark.dynamicAllocation.minExecutors to the number that all instances need, or disable dynamic allocation
exclusion | warning | {key} | true
    Spark does not retry a failed task on its executor: if no other executor has a free slot, its partitions wait, and
    with a single executor the run ends
    -> set it to false for this application, or use more executors than the instances need
decommissioning | ok | spark.decommission.enabled | true
    a task is not notified that its executor is decommissioned; it works until the end, and its replacement takes over
other interpreter | warning | spark.sql.execution.pyspark.python | {value}
    DataFrame functions run in this interpreter, but RDD jobs, such as the check of the tasks, run in {s.python!r}
    -> remove it, and set PYSPARK_PYTHON (spark.pyspark.python), which applies to both
no reuse | ok | spark.python.worker.reuse | false
    each attempt of a task starts a new process, which takes a little longer; nothing else changes
kill timeout | ok | spark.python.task.killTimeout | {value}
    a cancelled task may work for this time and up to two seconds more before it is killed; until then, only the fence
    of its sink keeps it from writing after its replacement
own daemon | warning | spark.python.daemon.module | {value}
    workers are forked from this module's process, so clients and threads that it creates do not work in them
    -> let it only import modules, and create clients in tasks
job too late | warning | job over the slots | no end after {seconds:.0f} s, when {begun} of {w.tasks} small tasks had \
begun
    the tasks could not be checked: machines are busy, no slot is free, no executor has registered yet, or the
    interpreter {python!r} does not start there
    -> check again with a longer timeout_s; free the slots that other jobs occupy, and read the executors' log (stderr)
job failed | error | job over the slots | {error}
    every job with Python tasks would fail in this way; the interpreter is {python!r}
    -> read the executors' log
slots held | warning | job over the slots | {w.at_once} of {w.tasks} tasks ran at the same time, on {hosts}
    other jobs occupy slots, or executors are still starting, so the remaining instances wait
    -> make sure that the slots are free when the job starts
at once | ok | job over the slots | {w.at_once} of {w.tasks} tasks ran at the same time, on {hosts}
wrong Python | error | Python | {error}
    {meaning}
    -> set PYSPARK_PYTHON (spark.pyspark.python) to an interpreter of the driver's version that every executor has, or
    ship the driver's environment (venv-pack and spark.archives)
same Python | ok | Python | {own} on the {w.here}, {others} in the tasks
package missing | error | {own.name} | cannot be imported on {failed} ({error})
    members in tasks need it
    -> install it for {first.executable}: {how}; or ship an environment that has it (venv-pack and spark.archives); or
    set PYSPARK_PYTHON to an interpreter that has it
package differs | warning | {own.name} | {version} on the {w.here}, {others} in the tasks
    tasks receive objects of the {w.here}'s version, which another version may not be able to read
    -> {how}
package | ok | {own.name} | {version} on the {w.here}, {others} in the tasks
driver not reached | error | driver's address | {address[0]}:{address[1]} cannot be reached from {failed} ({error})
    tasks connect to the driver to send reports and to receive the order to stop
    -> set spark.driver.host, or control_host of run and drain, to an address that executors can reach (and
    spark.driver.bindAddress to an address of the driver), and allow connections from executors to the driver in the
    firewall
driver | ok | driver's address | {address[0]} can be reached from {hosts}
broker not reached | error | broker {at[0]}:{at[1]} | cannot be reached from {failed} ({error})
    each task connects to bootstrap.servers, and then to every broker at its advertised address
    -> use bootstrap.servers and advertised addresses (advertised.listeners) that executors can reach, and allow
    connections from executors to the brokers in the firewall
spare broker not reached | warning | broker {at[0]}:{at[1]} | cannot be reached from {failed} ({error})
    tasks use the other bootstrap.servers, and cannot start while those are not available
    -> remove it from bootstrap.servers, or make it reachable from the executors
broker | ok | broker {at[0]}:{at[1]} | can be reached from {hosts}
file missing | error | {key} | {path} cannot be read on {failed} ({error})
    each task opens its own connections, and reads the file on its host
    -> put it at that path on every executor{instead}
file | ok | {key} | {path} exists on {hosts}
sink not read | error | sink | cannot be read on {failed} ({error})
    a sink is sent as the name of its module, which tasks must be able to import
    -> ship the module: spark.sparkContext.addPyFile(...), spark.submit.pyFiles, or an environment that has it
    (spark.archives)
clock | ok | clock of {host} | {seconds:.1f} s {direction} the {w.here}'s
    only the {w.here}'s clock orders attempts; times in logs and results are those of the tasks
brokers away | error | brokers | none at {servers} responded ({c.failure})
    nothing can be consumed, and topics, group and ACLs could not be checked
    -> check the addresses (bootstrap.servers), and that the brokers run and advertise addresses that can be reached
    from here (advertised.listeners)
brokers | ok | brokers | {number} found with {servers}: {listed}
protocol not known | warning | group.protocol | not known
    the broker did not respond in time
    -> check again
consumer | ok | group.protocol | consumer: the brokers support KIP-848
no consumer | error | group.protocol | consumer, but the brokers do not support KIP-848
    no member could join
    -> remove group.protocol, or set it to auto or classic; brokers of Apache Kafka 4.0 or later support it with
    group.version=1 (kafka-features.sh upgrade --feature group.version=1) and consumer among
    group.coordinator.rebalance.protocols
classic instead | warning | group.protocol | classic: the brokers do not support KIP-848
    members use the classic protocol: while a member joins or leaves, the others wait, and the partitions of a lost
    member wait for its replacement or for the end of its session
    -> brokers of Apache Kafka 4.0 or later support it with group.version=1 (kafka-features.sh upgrade --feature
    group.version=1) and consumer among group.coordinator.rebalance.protocols; or set group.protocol to classic to
    accept this
classic | ok | group.protocol | classic, as configured
topic missing | error | topic {t.name} | does not exist
    there is nothing to consume, or the user is not authorized to see the topic
    -> check the spelling, or create it: kafka-topics.sh --bootstrap-server {servers} --create --topic {t.name}
topic not known | warning | topic {t.name} | not known ({t.error})
    the brokers did not respond in time
    -> check again
topic not described | error | topic {t.name} | {t.error}
    the brokers did not describe it
    -> read the brokers' log
topic | ok | topic {t.name} | {t.partitions} partitions
right missing | error | {kind} {name} | {error}
    each member needs the ACL operations READ and DESCRIBE on it
    -> kafka-acls.sh --bootstrap-server {servers} --add --allow-principal {c.principal} --operation READ
    --operation DESCRIBE --{kind} {name}; remove any ACL that denies it
idle instances | warning | instances | {instances} for {partitions} partitions
    a partition has one owner, so {idle} of them are idle, each in its own slot
    -> use at most {partitions} instances, or add partitions to the topics
instances | ok | instances | {instances} for {partitions} partitions
foreign group | error | group {g.name} | is not a consumer group
    a share group, a streams group or another kind of group has this name
    -> give this pipeline its own group
group not described | warning | group {g.name} | not described: {error}
    its members could not be checked
    -> fix this error, and check again
new group | ok | group {g.name} | does not exist yet; the first member creates it
group | ok | group {g.name} | {g.answer.protocol.value} protocol, {members} members
copy at work | warning | pipeline {pipeline} | {held} of its instance ids are held: {listed}
    another run of this pipeline is active, or was killed a moment ago: a new run takes its members over
    -> stop the other run first, or use another pipeline name
sink | ok | sink | can be sent to the tasks, {size:,} bytes
no sink | error | sink | is a {kind}
    the sink is called with each batch
    -> give a function or an object with __call__: sink(batch, context)
output | ok | sink's output | {found}
output not known | warning | sink's output | could not be checked ({error})
    the tasks may be able to reach it; if they cannot, the first batch fails
    -> check that the executors can reach it, and that its user has the privileges
refused | error | {refusal.key} | {refusal.value!r}
    -> {refusal.remedy}
"""


def finding(name: str, /, **values: object) -> Finding:
    """Return the finding with this name; `values` replace the names in braces."""
    entry = _catalogue()[name]
    subject, found, why, remedy = (
        text.format(**values) for text in (entry.subject, entry.found, entry.why, entry.remedy)
    )
    return Finding(severity=entry.severity, subject=subject, found=found, why=why, remedy=remedy)


@cache
def _catalogue() -> Mapping[str, Finding]:
    entries = {}
    for entry in re.split(r"\n(?=\S)", _TEXTS.strip()):
        heading, *rest = entry.splitlines()
        name, severity, subject, found = heading.split(" | ")
        why, _, remedy = " ".join(map(str.strip, rest)).partition("-> ")
        entries[name] = Finding(
            severity=Severity(severity), subject=subject, found=found, why=why.strip(), remedy=remedy
        )
    return entries
