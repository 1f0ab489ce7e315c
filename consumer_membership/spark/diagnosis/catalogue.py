"""Every finding of the doctor in its words: what was found, why it matters, what to do about it.

An entry reads as `print` shows it: its name here, severity, subject and what was found in the first line, then why, and
behind the arrow the remedy. What stands in braces is filled in by whoever finds it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from consumer_membership.spark.diagnosis.findings import Finding, Severity

#: Of the session, the workers, the cluster, and what the caller gave.
_WORDS = """
connect | warning | session | Spark Connect
    there is no SparkContext: how many tasks run at once, and how often one is tried again, cannot be read from here
    -> see to it that there is a slot for each instance
slots not known | warning | slots | not known
    instances without a slot wait
    -> see to it that each instance has a core of its own
slots | ok | slots | {s.slots} on {s.master}
slots too few | warning | slots | {s.slots} on {s.master}, for {instances} instances
    an instance holds its slot as long as it runs: {missing} of them have to wait until others end, and those that run
    have all partitions meanwhile
    -> give the application {instances} slots ({more}), or ask for {s.slots} instances
slots all taken | ok | slots | {s.slots} on {s.master}, for {instances} instances
    all of them are taken: other jobs of this application wait
slots enough | ok | slots | {s.slots} on {s.master}, for {instances} instances
one attempt | warning | spark.task.maxFailures | 1
    the first task that is lost ends the run: there is no other attempt
    -> {how}
attempts | ok | spark.task.maxFailures | {s.max_failures}
    failures of one instance are counted over the whole run, weeks apart or not; a bounded drain begins anew
speculation | error | spark.speculation | true
    Spark starts a second copy of a task that it takes for slow; the copy takes the member over from the one that works
    -> set it to false for this application; `run` and `drain` refuse it unless allow_speculation=True is given
no speculation | ok | spark.speculation | false
idle workers killed | error | {prefix}.killOnIdleTimeout | true, after {seconds} s
    a worker that exchanges no data with Spark is killed, and a member exchanges its data with Kafka
    -> set it to false, or {prefix}.idleTimeoutSeconds to 0, for this application
allocation | warning | spark.dynamicAllocation.enabled | true
    executors come one after another, and with each of them more members join; idle ones go, and a later task waits for
    new ones
    -> set spark.dynamicAllocation.minExecutors to what all instances need, or switch it off
exclusion | warning | {key} | true
    a task that failed is not tried again on its executor: where no other one has a free slot, its partitions wait, and
    with a single executor the run ends
    -> set it to false for this application, or have more executors than instances need
decommissioning | ok | spark.decommission.enabled | true
    a task is not told that its executor goes; it works on to the end, and its replacement takes it over
other interpreter | warning | spark.sql.execution.pyspark.python | {value}
    functions of DataFrames, members among them, run in this interpreter; jobs of RDDs, the one that looked at the
    tasks among them, in {s.python!r}
    -> leave it out, and set PYSPARK_PYTHON (spark.pyspark.python) for both
no reuse | ok | spark.python.worker.reuse | false
    each attempt of a task has a process of its own: it starts a little later, and nothing else changes
kill timeout | ok | spark.python.task.killTimeout | {value}
    a cancelled task works on for up to two seconds and this long, then it is killed without a word; what keeps it from
    writing after its replacement is the fence in its sink
own daemon | warning | spark.python.daemon.module | {value}
    workers are forked from it: a client or a thread that it makes does not work in them
    -> let it import modules only, and make clients in tasks
job too late | warning | job over the slots | no end after {seconds:.0f} s, when {begun} of {w.tasks} small tasks had \
begun
    nothing is known of the tasks: machines are busy, no slot is free, no executor has registered yet, or the
    interpreter {python!r} does not start there
    -> check again with a longer timeout_s; free the slots that other jobs hold, and look at the executors' log (stderr)
job failed | error | job over the slots | {said}
    so would every job of Python tasks; the interpreter is {python!r}
    -> look at the executors' log
slots held | warning | job over the slots | {w.at_once} of {w.tasks} tasks ran at the same time, on {hosts}
    other jobs hold slots, or executors are still starting: as many instances wait
    -> see to it that the slots are free when the job starts
at once | ok | job over the slots | {w.at_once} of {w.tasks} tasks ran at the same time, on {hosts}
wrong Python | error | Python | {said}
    {meaning}
    -> set PYSPARK_PYTHON (spark.pyspark.python) to an interpreter of the driver's version that every executor has, or
    ship the driver's environment: venv-pack, and spark.archives
same Python | ok | Python | {own} on the {w.here}, {others} in the tasks
package missing | error | {own.name} | cannot be imported on {failed} ({error})
    a member in a task needs it
    -> install it for {first.executable}: {how}; or ship an environment that has it: venv-pack, and spark.archives; or
    set PYSPARK_PYTHON to an interpreter that has it
package differs | warning | {own.name} | {version} on the {w.here}, {others} in the tasks
    what the {w.here} sends is read by another version, which may not know it
    -> {how}
package | ok | {own.name} | {version} on the {w.here}, {others} in the tasks
driver not reached | error | driver's address | {address[0]}:{address[1]} cannot be reached from {failed} ({error})
    tasks report to the driver and are told to stop over a connection that they make to it
    -> set spark.driver.host, or control_host of run and drain, to an address that executors reach (and
    spark.driver.bindAddress to one that the driver has), and let the firewall pass connections from executors to the
    driver
driver | ok | driver's address | {address[0]} is reached from {hosts}
broker not reached | error | broker {at[0]}:{at[1]} | cannot be reached from {failed} ({error})
    each task connects to every broker by the address that it advertises, found by way of bootstrap.servers
    -> give bootstrap.servers that executors reach, have the broker advertise such an address (advertised.listeners),
    and let the firewall pass connections from executors to it
spare broker not reached | warning | broker {at[0]}:{at[1]} | cannot be reached from {failed} ({error})
    tasks find the brokers by way of the other bootstrap.servers, unless those are away
    -> take it out of bootstrap.servers, or let executors reach it
broker | ok | broker {at[0]}:{at[1]} | is reached from {hosts}
file missing | error | {key} | {path} cannot be read on {failed} ({error})
    each task makes its own connections, and reads the file where it runs
    -> put it at that path on every executor{instead}
file | ok | {key} | {path} is there on {hosts}
sink not read | error | sink | cannot be read on {failed} ({error})
    it is sent by the name of its module, which has to be importable in the tasks
    -> ship the module: spark.sparkContext.addPyFile(...), spark.submit.pyFiles, or an environment that has it
    (spark.archives)
clock | ok | clock of {host} | {seconds:.1f} s {direction} the {w.here}'s
    attempts are ordered by the {w.here}'s clock alone; times in logs and results are the tasks' own
brokers away | error | brokers | none at {servers} answered ({c.failure})
    nothing can be consumed, and nothing else about Kafka could be looked at
    -> see whether the address is right (bootstrap.servers), and whether the brokers run and advertise addresses that
    can be reached from here (advertised.listeners)
brokers | ok | brokers | {number} by way of {servers}: {listed}
protocol not known | warning | group.protocol | not known
    the broker that was asked did not answer in time
    -> check again
consumer | ok | group.protocol | consumer: the brokers offer KIP-848
no consumer | error | group.protocol | consumer, and the brokers do not offer KIP-848
    no member could join
    -> leave group.protocol out or set it to auto or classic; brokers of Apache Kafka 4.0 or later offer it with
    group.version=1 (kafka-features.sh upgrade --feature group.version=1) and consumer among
    group.coordinator.rebalance.protocols
classic instead | warning | group.protocol | classic: the brokers do not offer KIP-848
    members speak the classic protocol: while one joins or leaves the others wait, and a lost one's partitions wait for
    its replacement or for the end of its session
    -> brokers of Apache Kafka 4.0 or later offer it with group.version=1 (kafka-features.sh upgrade --feature
    group.version=1) and consumer among group.coordinator.rebalance.protocols; or set group.protocol to classic and
    expect this
classic | ok | group.protocol | classic, as the configuration asks for
topic missing | error | topic {t.name} | does not exist
    there is nothing to consume; or it may not be seen
    -> check the spelling, or create it: kafka-topics.sh --bootstrap-server {servers} --create --topic {t.name}
topic not known | warning | topic {t.name} | not known ({t.error})
    the brokers did not answer in time
    -> check again
topic not described | error | topic {t.name} | {t.error}
    the brokers do not describe it
    -> look at the brokers' log
topic | ok | topic {t.name} | {t.partitions} partitions
right missing | error | {kind} {name} | {said}
    each member needs the ACL operations READ and DESCRIBE on it
    -> kafka-acls.sh --bootstrap-server {servers} --add --allow-principal {c.principal} --operation READ
    --operation DESCRIBE --{kind} {name}; a rule that denies it has to go
idle instances | warning | instances | {instances} for {partitions} partitions
    a partition has one owner: {idle} of them idle, each in a slot of its own
    -> ask for {partitions} instances at most, or give the topics more partitions
instances | ok | instances | {instances} for {partitions} partitions
foreign group | error | group {g.name} | is no group of consumers
    a share group, a streams group or another kind of group has this name
    -> give this pipeline a group of its own
group not described | warning | group {g.name} | not described: {error}
    who is in it could not be looked at
    -> see to that, check again
new group | ok | group {g.name} | does not exist yet; the first member makes it
group | ok | group {g.name} | {g.told.protocol.value} protocol, {members} members
copy at work | warning | pipeline {pipeline} | {held} of its instance ids are held: {listed}
    a copy of this pipeline is running, or was killed a moment ago: starting another one takes its members over
    -> stop the other one first, or give this one another pipeline name
sink | ok | sink | can be sent to the tasks, {size:,} bytes
no sink | error | sink | is a {kind}
    it is called with each batch
    -> give a function or an object with __call__: sink(batch, context)
output | ok | sink's output | {found}
output not known | warning | sink's output | not looked at ({error})
    tasks may reach it where the driver does not; if they do not, the first batch fails
    -> see whether it can be reached from the executors, and whether its user has the rights
refused | error | {refusal.key} | {refusal.value!r}
    -> {refusal.remedy}
"""


def finding(name: str, /, **values: object) -> Finding:
    """The finding of this name, with these values in its words."""
    words = _catalogue()[name]
    subject, found, why, remedy = (
        text.format(**values) for text in (words.subject, words.found, words.why, words.remedy)
    )
    return Finding(severity=words.severity, subject=subject, found=found, why=why, remedy=remedy)


@cache
def _catalogue() -> Mapping[str, Finding]:
    entries = {}
    for entry in re.split(r"\n(?=\S)", _WORDS.strip()):
        heading, *rest = entry.splitlines()
        name, severity, subject, found = heading.split(" | ")
        why, _, remedy = " ".join(map(str.strip, rest)).partition("-> ")
        entries[name] = Finding(
            severity=Severity(severity), subject=subject, found=found, why=why.strip(), remedy=remedy
        )
    return entries
