"""The scenarios of Kafka's system tests for consumer groups, reimplemented from their descriptions.

Sources, in apache/kafka: `consumer_test.py` (OffsetValidationTest, AssignmentValidationTest),
`consumer_rolling_upgrade_test.py` and `consumer_protocol_migration_test.py` in `tests/kafkatest/tests/client`. Each
`Case` is one of Kafka's tests with one combination of its parameters, and has the name of that test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from tests.kafkatest.clients import Client, GroupProtocol, MemberOptions, Strategy
from tests.kafkatest.environment import Environment
from tests.kafkatest.group import Group, Member
from tests.kafkatest.ledger import MemberState

_PROTOCOLS = tuple(GroupProtocol)
_CLASSIC, _CONSUMER = _PROTOCOLS
_RANGE, _COOPERATIVE = Strategy.RANGE, Strategy.COOPERATIVE_STICKY
_POLICY = "group.consumer.migration.policy"
#: After this time without a process, static members of the consumer protocol lose their partitions; default: 45 s.
_SHORT_SESSION = {"group.consumer.session.timeout.ms": "10000", "group.consumer.min.session.timeout.ms": "10000"}
#: In the consumer protocol, a newer Java member fails while another member uses its instance id. With this policy, this
#: package's newer member also fails; by default it would take the id over, as in a classic group.
_NEWER_FAILS = {"group.instance.id.conflict.policy": "fail"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One combination of a scenario's parameters.

    Attributes:
        test: The name of Kafka's test.
        parameters: The parameters of the test, as text.
        run: Runs the scenario; raises AssertionError if it fails.
        nodes: The number of brokers.
        partitions: The number of the topic's partitions.
        properties: Properties of the brokers.
        config: Configuration for the properties file of this package's members; other clients receive no file.
        unsupported: The clients that lack a feature of the case, each with the missing feature.
    """

    test: str
    parameters: str
    run: Callable[[Environment], None]
    nodes: int = 1
    partitions: int = 1
    properties: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    unsupported: Mapping[Client, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The case's name in tables and on command lines."""
        return f"{self.test}[{self.parameters}]"


def _require(condition: object, text: str, group: Group) -> None:
    if not condition:
        raise AssertionError(f"{text}\n{group.report()}")


# ---- common steps ---------------------------------------------------------------------------------------------------


def _start_all(environment: Environment, group: Group, *, is_settled: bool = False) -> None:
    group.start(*group.members)
    group.await_joined(len(group.members))
    if is_settled:
        _await_settled(environment, group)


def _await_settled(environment: Environment, group: Group) -> None:
    environment.await_state("STABLE")
    group.await_valid_assignment()


def _bounce_one_by_one(group: Group, members: Iterable[Member]) -> None:
    for member in members:
        group.stop(member)
        group.start(member)
        group.await_joined(len(group.members))
        group.await_consumed()


def _bounce_together(group: Group, members: Iterable[Member]) -> None:
    bounced = list(members)
    group.stop(*bounced)
    group.start(*bounced)
    group.await_joined(len(group.members))
    group.await_consumed()


_BOUNCES: Mapping[str, Callable[[Group, Iterable[Member]], None]] = {
    "rolling": _bounce_one_by_one,
    "all": _bounce_together,
}


def _restart_brokers(environment: Environment, group: Group) -> None:
    for _ in environment.restart_nodes():
        group.await_joined(len(group.members))
        group.await_consumed()


def _check_positions(group: Group, *, is_committed: bool) -> None:
    """Check that each record was reported once and, with `is_committed`, that all reported records are committed."""
    position = group.ledger.position
    _require(
        sum(position.values()) == group.consumed,
        f"{group.consumed} records were reported, but the positions are {position}",
        group,
    )
    if is_committed:
        committed = group.ledger.committed
        _require(committed == position, f"{committed} are committed, but the positions are {position}", group)


# ---- consumer_test.py -----------------------------------------------------------------------------------------------


def _broker_rolling_bounce(environment: Environment, *, protocol: GroupProtocol) -> None:
    options = MemberOptions(protocol=protocol, session_timeout_s=30)
    with environment.group(options) as group, environment.producer() as producer:
        producer.await_acknowledged()
        _start_all(environment, group, is_settled=True)
        before = group.rebalances
        for _ in range(environment.bounces):
            _restart_brokers(environment, group)
        _require(group.rebalances == before, f"{group.rebalances - before} rebalances while brokers restarted", group)
        group.stop(*group.members)
        _check_positions(group, is_committed=True)


def _consumer_bounce(environment: Environment, *, protocol: GroupProtocol, bounce: str) -> None:
    with environment.group(MemberOptions(protocol=protocol)) as group, environment.producer() as producer:
        producer.await_acknowledged()
        _start_all(environment, group)
        for _ in range(environment.bounces):
            _BOUNCES[bounce](group, group.members)
        group.stop(*group.members)
        _check_positions(group, is_committed=False)


def _static_bounce_with_eager_assignment(environment: Environment, *, is_static: bool, bounce: str) -> None:
    options = MemberOptions(session_timeout_s=60)
    with environment.group(options, is_static=is_static) as group, environment.producer() as producer:
        producer.await_acknowledged()
        _start_all(environment, group)
        survivor = group.members[0].ledger
        # Not its revocations: with more members than partitions it may own none, and then it has none to revoke.
        before = survivor.assigned_count
        for _ in range(environment.bounces):
            _BOUNCES[bounce](group, group.members[1:])
        rebalances = survivor.assigned_count - before
        _require((rebalances == 0) == is_static, f"the running member took part in {rebalances} rebalances", group)
        group.stop(*group.members)
        _check_positions(group, is_committed=False)


def _static_persisted_after_rejoin(environment: Environment, *, protocol: GroupProtocol, bounce: str) -> None:
    options = MemberOptions(protocol=protocol, session_timeout_s=60)
    with environment.group(options, is_static=True) as group, environment.producer() as producer:
        producer.await_acknowledged()
        _start_all(environment, group)
        _BOUNCES[bounce](group, group.members)
        _restart_brokers(environment, group)


def _fencing_static(environment: Environment, *, protocol: GroupProtocol, conflicts: int, moment: str) -> None:
    options = MemberOptions(protocol=protocol, session_timeout_s=60)
    with environment.group(options, is_static=True) as group, environment.producer() as producer:
        producer.await_acknowledged()
        first = list(group.members)
        newer = [
            group.add(environment.client, instance_id=environment.instance_id(index)) for index in range(conflicts)
        ]
        if moment == "all":
            group.start(*group.members)
            group.await_joined(len(first))
            group.wait(lambda: len(_ended(group.members)) == conflicts, f"the end of {conflicts} fenced members")
            group.await_joined(len(first))
            return
        group.start(*first)
        group.await_joined(len(first), first)
        _await_settled(environment, group)
        before = group.rebalances
        group.start(*newer)
        if protocol is _CLASSIC:
            # The newer member gets the instance id, and the older member is fenced.
            group.await_joined(conflicts, newer)
            group.wait(lambda: len(_ended(first)) == conflicts, f"the end of {conflicts} fenced members")
            group.await_joined(len(first) - conflicts, first)
            return
        # The older member keeps the instance id, and the newer member fails.
        group.wait(lambda: len(_ended(newer)) == conflicts, f"the end of {conflicts} newer members")
        group.await_consumed()
        _require(group.rebalances == before, "the newer members caused a rebalance", group)
        group.await_joined(len(first), first)
        group.stop(*first)
        group.start(*newer)
        group.await_joined(conflicts, newer)


def _ended(members: Iterable[Member]) -> list[Member]:
    return [member for member in members if member.process is not None and member.process.poll() is not None]


def _consumer_failure(environment: Environment, *, protocol: GroupProtocol, is_auto_commit: bool) -> None:
    options = MemberOptions(protocol=protocol, is_auto_commit=is_auto_commit)
    with environment.group(options) as group:
        _start_all(environment, group, is_settled=True)
        owner = group.owner(0)
        assert owner is not None
        with environment.producer() as producer:
            producer.await_acknowledged()
            group.stop(owner)
            group.await_joined(len(group.members) - 1)
            group.wait(lambda: group.owner(0) is not None, "another owner of the partition")
            group.await_consumed(1000)
            group.stop(*(member for member in group.members if member is not owner))
        _check_positions(group, is_committed=not is_auto_commit)


def _broker_failure(environment: Environment, *, protocol: GroupProtocol, is_auto_commit: bool, is_clean: bool) -> None:
    options = MemberOptions(protocol=protocol, is_auto_commit=is_auto_commit)
    node = environment.broker.node_ids[0]
    with environment.group(options) as group, environment.producer():
        _start_all(environment, group, is_settled=True)
        before = group.rebalances
        try:
            if is_clean:
                environment.broker.stop_node(node)
            else:
                environment.broker.kill_node(node)
            group.await_consumed(1000)
            _require(group.rebalances == before, "the end of a broker caused a rebalance", group)
            group.stop(*group.members)
        finally:
            environment.broker.start_node(node)
            environment.broker.wait_ready()
        _check_positions(group, is_committed=not is_auto_commit)


def _group_consumption(environment: Environment, *, protocol: GroupProtocol) -> None:
    with environment.group(MemberOptions(protocol=protocol)) as group, environment.producer():
        for number, member in enumerate(group.members, 1):
            group.start(member)
            group.await_joined(number)
            group.await_consumed()
        for number, member in enumerate(group.members, 1):
            group.stop(member)
            if number < len(group.members):
                group.await_joined(len(group.members) - number)
                group.await_consumed()
        _check_positions(group, is_committed=True)


def _valid_assignment(environment: Environment, *, options: MemberOptions) -> None:
    with environment.group(options) as group:
        for number, member in enumerate(group.members, 1):
            group.start(member)
            group.await_joined(number)
            group.await_valid_assignment()


# ---- consumer_rolling_upgrade_test.py -------------------------------------------------------------------------------

_BY_RANGE = {frozenset({0, 1}), frozenset({2, 3})}
_BY_ROUNDROBIN = {frozenset({0, 2}), frozenset({1, 3})}


def _rolling_update(environment: Environment) -> None:
    with environment.group(MemberOptions(strategies=(_RANGE,)), members=2) as group:
        first, second = group.members
        _start_all(environment, group)
        _await_shares(group, _BY_RANGE)
        group.options = MemberOptions(strategies=(Strategy.ROUNDROBIN, _RANGE))
        _restart(group, first)
        _await_shares(group, _BY_RANGE)
        _restart(group, second)
        _await_shares(group, _BY_ROUNDROBIN)
        group.options = MemberOptions(strategies=(Strategy.ROUNDROBIN,))
        for member in group.members:
            _restart(group, member)
            _await_shares(group, _BY_ROUNDROBIN)


def _restart(group: Group, member: Member) -> None:
    group.stop(member)
    group.start(member)
    group.await_joined(len(group.members))


def _await_shares(group: Group, shares: set[frozenset[int]]) -> None:
    group.wait(
        lambda: (
            set(group.assignment.values()) == shares and len(group.in_state(MemberState.JOINED)) == len(group.members)
        ),
        f"the shares {sorted(map(sorted, shares))}",
    )


# ---- consumer_protocol_migration_test.py ----------------------------------------------------------------------------


def _offline_migration(environment: Environment, *, strategy: Strategy, is_static: bool) -> None:
    options = MemberOptions(strategies=(strategy,), is_auto_commit=True)
    with environment.group(options, is_static=is_static) as group, environment.producer() as producer:
        producer.await_acknowledged()
        _start_all(environment, group)
        group.await_consumed()
        environment.await_type(_CLASSIC)
        for protocol in (_CONSUMER, _CLASSIC):
            group.stop(*group.members)
            # Static members stay in the group until their sessions expire.
            environment.await_state("EMPTY")
            group.options = replace(options, protocol=protocol)
            group.start(*group.members)
            group.await_joined(len(group.members))
            group.await_consumed()
            environment.await_type(protocol)


def _rolling_migration(environment: Environment, *, before: GroupProtocol, strategy: Strategy, is_static: bool) -> None:
    options = MemberOptions(protocol=before, strategies=(strategy,), is_auto_commit=True)
    after = _CONSUMER if before is _CLASSIC else _CLASSIC
    with environment.group(options, is_static=is_static) as group, environment.producer() as producer:
        producer.await_acknowledged()
        _start_all(environment, group)
        group.await_consumed()
        environment.await_type(before)
        group.options = replace(options, protocol=after)
        _bounce_one_by_one(group, group.members)
        environment.await_type(after)
        group.stop(*group.members)


# ---- the matrix -----------------------------------------------------------------------------------------------------


def _offset_cases() -> Iterator[Case]:
    for protocol in _PROTOCOLS:
        yield Case(
            test="broker_rolling_bounce",
            parameters=protocol,
            nodes=3,
            run=partial(_broker_rolling_bounce, protocol=protocol),
        )
        for bounce in _BOUNCES:
            yield Case(
                test="consumer_bounce",
                parameters=f"{protocol}-{bounce}",
                run=partial(_consumer_bounce, protocol=protocol, bounce=bounce),
            )
        for is_auto in (False, True):
            commits = "auto" if is_auto else "manual"
            yield Case(
                test="consumer_failure",
                parameters=f"{protocol}-{commits}",
                run=partial(_consumer_failure, protocol=protocol, is_auto_commit=is_auto),
            )
            for is_clean in (True, False):
                yield Case(
                    test="broker_failure",
                    parameters=f"{protocol}-{commits}-{'clean' if is_clean else 'killed'}",
                    nodes=3,
                    run=partial(_broker_failure, protocol=protocol, is_auto_commit=is_auto, is_clean=is_clean),
                )
        yield Case(test="group_consumption", parameters=protocol, run=partial(_group_consumption, protocol=protocol))


def _static_cases() -> Iterator[Case]:
    for bounce in _BOUNCES:
        for is_static in (True, False):
            yield Case(
                test="static_consumer_bounce_with_eager_assignment",
                parameters=f"{'static' if is_static else 'dynamic'}-{bounce}",
                run=partial(_static_bounce_with_eager_assignment, is_static=is_static, bounce=bounce),
            )
        for protocol in _PROTOCOLS:
            yield Case(
                test="static_consumer_persisted_after_rejoin",
                parameters=f"{protocol}-{bounce}",
                nodes=3,
                run=partial(_static_persisted_after_rejoin, protocol=protocol, bounce=bounce),
            )
    for protocol in _PROTOCOLS:
        for moment in ("stable", "all"):
            for conflicts in (1, 2):
                yield Case(
                    test="fencing_static_consumer",
                    parameters=f"{protocol}-{moment}-{conflicts}",
                    config=_NEWER_FAILS if protocol is _CONSUMER else {},
                    run=partial(_fencing_static, protocol=protocol, conflicts=conflicts, moment=moment),
                )


def _assignment_cases() -> Iterator[Case]:
    for strategy in Strategy:
        lacking = {Client.CONFLUENT: "no sticky assignor"} if strategy is Strategy.STICKY else {}
        yield Case(
            test="valid_assignment",
            parameters=f"classic-{strategy}",
            partitions=6,
            run=partial(_valid_assignment, options=MemberOptions(strategies=(strategy,))),
            unsupported=lacking,
        )
    for remote in ("range", "uniform"):
        options = MemberOptions(protocol=_CONSUMER, remote_assignor=remote)
        yield Case(
            test="valid_assignment",
            parameters=f"consumer-{remote}",
            partitions=6,
            run=partial(_valid_assignment, options=options),
        )
    yield Case(test="rolling_update", parameters="range-roundrobin", partitions=4, run=_rolling_update)


def _migration_cases() -> Iterator[Case]:
    for strategy in (_RANGE, _COOPERATIVE):
        for is_static in (False, True):
            kind = f"{'static' if is_static else 'dynamic'}-{strategy}"
            yield Case(
                test="consumer_offline_migration",
                parameters=f"disabled-{kind}",
                partitions=6,
                properties={_POLICY: "disabled", **_SHORT_SESSION},
                run=partial(_offline_migration, strategy=strategy, is_static=is_static),
            )
            for policy in ("bidirectional", "upgrade"):
                yield Case(
                    test="consumer_rolling_upgrade",
                    parameters=f"{policy}-{kind}",
                    partitions=6,
                    properties={_POLICY: policy},
                    run=partial(_rolling_migration, before=_CLASSIC, strategy=strategy, is_static=is_static),
                )
            yield Case(
                test="consumer_rolling_downgrade",
                parameters=f"downgrade-{kind}",
                partitions=6,
                properties={_POLICY: "downgrade"},
                run=partial(_rolling_migration, before=_CONSUMER, strategy=strategy, is_static=is_static),
            )


CASES: tuple[Case, ...] = (*_offset_cases(), *_static_cases(), *_assignment_cases(), *_migration_cases())
