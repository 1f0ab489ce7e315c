"""The rules of the built-in assignors, shown with small groups."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, replace

import pytest

from consumer_membership.assignors import BUILT_IN, claim_reader
from consumer_membership.assignors.assignor import Assignor, MemberSubscription, RebalanceProtocol, Topics
from consumer_membership.assignors.sticky import decode, encode
from consumer_membership.assignors.validation import protocol_claim
from consumer_membership.types import TopicPartition
from tests.assignors.groups import (
    GOLDEN,
    Subscriptions,
    balance_score,
    member,
    out_of_rack,
    partitions,
    sizes,
)

EAGER, COOPERATIVE = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE


def assigned(assignor: str, topics: Topics, subscriptions: Subscriptions) -> dict[str, frozenset[TopicPartition]]:
    """Return the partitions that this assignor assigns to each member."""
    result = BUILT_IN[assignor].assign(topics, subscriptions)
    return {name: frozenset(some) for name, some in result.items()}  # type: ignore[arg-type]  # built-in assignors assign TopicPartitions


def plain(**counts: int) -> Topics:
    """Return topics with these numbers of partitions."""
    return Topics(partitions=counts)


def test_names_and_protocols_equal_javas() -> None:
    """Only cooperative-sticky supports the cooperative protocol.

    It also supports the eager protocol, for rolling upgrades.
    """
    assert {name: assignor.protocols for name, assignor in BUILT_IN.items()} == {
        "range": {EAGER},
        "roundrobin": {EAGER},
        "sticky": {EAGER},
        "cooperative-sticky": {COOPERATIVE, EAGER},
    }
    assert all(isinstance(assignor, Assignor) for assignor in BUILT_IN.values())


@pytest.mark.parametrize("assignor", BUILT_IN)
@pytest.mark.parametrize(
    ("topics", "subscriptions"),
    [
        (plain(), {}),
        (plain(), {"a": member("orders")}),
        (plain(orders=0), {"a": member("orders")}),
        (plain(orders=2), {"a": member("")}),
    ],
    ids=["nobody", "no metadata", "no partitions", "not subscribed"],
)
def test_assign_without_partitions_gives_every_member_an_empty_list(
    assignor: str, topics: Topics, subscriptions: Subscriptions
) -> None:
    """Topics without metadata are skipped, as in Java, and members without partitions still receive an empty list."""
    assert assigned(assignor, topics, subscriptions) == dict.fromkeys(subscriptions, frozenset())


def test_range_splits_each_topic_and_gives_the_first_members_more() -> None:
    """`range` gives the assignment of the example in Java's documentation."""
    subscriptions = {"C0": member("t0 t1"), "C1": member("t0 t1")}
    assert assigned("range", plain(t0=3, t1=3), subscriptions) == {
        "C0": partitions("t0:0,1 t1:0,1"),
        "C1": partitions("t0:2 t1:2"),
    }


def test_static_members_are_ordered_first_by_instance_id() -> None:
    """A static member keeps its range after a restart, although its member id is different (KIP-345)."""
    subscriptions = {"a": member("t"), "z": member("t", instance="i1"), "m": member("t", instance="i2")}
    expected = {"z": partitions("t:0"), "m": partitions("t:1"), "a": partitions("t:2")}
    assert assigned("range", plain(t=3), subscriptions) == expected
    assert assigned("roundrobin", plain(t=3), subscriptions) == expected


def test_members_are_ordered_as_java_orders_strings() -> None:
    """Members are ordered by UTF-16 code units: a surrogate pair comes before the last 16-bit characters."""
    subscriptions = {"\uff5e": member("t"), "\U0001f600": member("t")}
    assert assigned("range", plain(t=1), subscriptions)["\U0001f600"] == partitions("t:0")


def test_roundrobin_skips_members_that_do_not_subscribe() -> None:
    """`roundrobin` gives the assignment of the example in Java's documentation."""
    subscriptions = {"C0": member("t0"), "C1": member("t0 t1"), "C2": member("t0 t1 t2")}
    assert assigned("roundrobin", plain(t0=1, t1=2, t2=3), subscriptions) == {
        "C0": partitions("t0:0"),
        "C1": partitions("t1:0"),
        "C2": partitions("t1:1 t2:0,1,2"),
    }


def test_sticky_balances_better_than_roundrobin() -> None:
    """`sticky` assigns 1, 2 and 3 partitions to the same group, where roundrobin assigns 1, 1 and 4."""
    subscriptions = {"C0": member("t0"), "C1": member("t0 t1"), "C2": member("t0 t1 t2")}
    assert sizes(assigned("sticky", plain(t0=1, t1=2, t2=3), subscriptions)) == [1, 2, 3]


def test_sticky_finds_a_chain_of_moves_that_java_does_not() -> None:
    """Member a cannot give partitions to c, but to b, which can.

    The result is [2, 2, 2]; single moves end at [3, 2, 1].
    """
    subscriptions = {
        "a": member("x", "x:0,1,2", 3, "sticky"),
        "b": member("x y", "y:0,1", 3, "sticky"),
        "c": member("y z", "z:0", 3, "sticky"),
    }
    assert sizes(assigned("sticky", plain(x=3, y=2, z=1), subscriptions)) == [2, 2, 2]


def test_members_read_from_replicas_in_their_rack() -> None:
    """Assignors balance the partitions first and match racks second (KIP-881)."""
    racks = {TopicPartition("t", number): frozenset({"east" if number % 2 else "west"}) for number in range(4)}
    topics = Topics(partitions={"t": 4}, racks=racks)
    for assignor in ("range", "sticky", "cooperative-sticky"):
        subscriptions = {"a": member("t", rack="east"), "b": member("t", rack="west")}
        assert assigned(assignor, topics, subscriptions) == {"a": partitions("t:1,3"), "b": partitions("t:0,2")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Sums over a rolling restart: moves away from running members, reads from other racks, and balance scores."""

    moved: int
    remote: int
    imbalance: int


def rolling_restart(topics: Topics, before: Subscriptions, new_topics: str) -> Restart:
    """Stop each member and start it with another member id and these topics; the group rebalances after each step."""
    members = before
    owners: dict[TopicPartition, str] = {}
    gone: set[str] = set()
    moved = remote = imbalance = 0

    def rebalance() -> None:
        nonlocal members, owners, moved, remote, imbalance
        result = assigned("sticky", topics, members)
        moved += sum(owners.get(one, name) not in {name, *gone} for name, some in result.items() for one in some)
        remote += out_of_rack(topics, members, result)
        imbalance += balance_score(result)
        owners = {one: name for name, some in result.items() for one in some}
        members = {
            name: replace(one, user_data=BUILT_IN["sticky"].user_data(one.topics, result[name], 1))
            for name, one in members.items()
        }

    rebalance()
    for name in before:
        gone.add(name)
        stopped = members.pop(name)
        rebalance()
        members[f"{name}, restarted"] = replace(stopped, topics=frozenset(new_topics.split()), user_data=None)
        rebalance()
    return Restart(moved=moved, remote=remote, imbalance=imbalance)


def test_sticky_reads_within_the_rack_during_a_rolling_restart() -> None:
    """With two replicas in three racks, no member reads from another rack, and few partitions move."""
    pairs = ("ab", "bc", "ca")
    racks = {
        TopicPartition(topic, number): frozenset(pairs[(number * 7 + number // 5) % 3])
        for topic, count in (("orders", 24), ("items", 12))
        for number in range(count)
    }
    topics = Topics(partitions={"orders": 24, "items": 12}, racks=racks)
    before = {f"m{number}": member("orders items", rack="abc"[number % 3], assignor="sticky") for number in range(6)}
    restart = rolling_restart(topics, before, "orders items")
    # Without `returns`: 42 moves, and 19 reads of a partition from another rack.
    assert (restart.moved <= 39, restart.remote, restart.imbalance) == (True, 0, 24)


def test_sticky_moves_few_partitions_while_a_new_version_adds_a_topic() -> None:
    """A rolling deployment that subscribes one more topic keeps the best balance with few moves."""
    before = {f"m{number}": member("orders", assignor="sticky") for number in range(6)}
    restart = rolling_restart(plain(orders=24, items=12), before, "orders items")
    # Without `returns`: 37 moves. Without chains: an imbalance of 130.
    assert (restart.moved <= 30, restart.imbalance) == (True, 84)


def test_single_stale_claim_is_kept() -> None:
    """A member that missed two generations keeps a partition that no other member claims (KIP-792)."""
    subscriptions = {"a": member("t", "t:0", 3), "b": member("t", "t:2", 5), "c": member("t")}
    assert assigned("cooperative-sticky", plain(t=3), subscriptions) == {
        "a": partitions("t:0"),
        "b": partitions("t:2"),
        "c": partitions("t:1"),
    }


def test_newest_generation_keeps_a_partition_that_several_claim() -> None:
    """The member with the newest claim keeps the partition; the other member does not receive it in the result."""
    subscriptions = {"a": member("t", "t:0", 3), "b": member("t", "t:0", 5)}
    assert assigned("cooperative-sticky", plain(t=2), subscriptions) == {
        "a": partitions("t:1"),
        "b": partitions("t:0"),
    }


def test_partition_claimed_in_equal_generations_waits_for_a_round() -> None:
    """A partition with equal claims is assigned one round later, because both members may still be fetching it."""
    subscriptions = {"a": member("t", "t:0,1", 5), "b": member("t", "t:0", 5)}
    first = assigned("cooperative-sticky", plain(t=2), subscriptions)
    assert first == {"a": partitions("t:1"), "b": frozenset()}
    second = {"a": member("t", "t:1", 6), "b": member("t", "", 6)}
    assert assigned("cooperative-sticky", plain(t=2), second) == {"a": partitions("t:1"), "b": partitions("t:0")}


def test_generation_of_an_older_client_comes_from_its_user_data() -> None:
    """The generation of an older client is read from its user data, where cooperative-sticky sent it before KIP-792."""
    subscriptions = {"a": member("t", "t:0", 4), "b": member("t", "t:0", 7, is_old=True)}
    assert assigned("cooperative-sticky", plain(t=2), subscriptions)["b"] == partitions("t:0")


@pytest.mark.parametrize("data", [None, b"", b"\x00", b"\x00\x00\x07"])
def test_claim_of_an_older_client_without_a_generation_is_the_oldest(data: bytes | None) -> None:
    """A claim without a generation is kept only if no other member contradicts it."""
    old = MemberSubscription(topics=frozenset({"t"}), user_data=data, owned=partitions("t:0 t:1"), version=1)
    result = assigned("cooperative-sticky", plain(t=4), {"a": old, "b": member("t", "t:0", 0)})
    assert (partitions("t:1") <= result["a"], partitions("t:0") <= result["b"]) == (True, True)


def test_sticky_ignores_the_protocols_owned_partitions() -> None:
    """`sticky` reads claims from user data, because an eager member has revoked all partitions before it joins."""
    mistaken = MemberSubscription(
        topics=frozenset({"t"}), user_data=encode(partitions("t:1"), 4), owned=partitions("t:0"), generation=9
    )
    assert assigned("sticky", plain(t=2), {"a": mistaken, "b": member("t", "t:0", 4, "sticky")}) == {
        "a": partitions("t:1"),
        "b": partitions("t:0"),
    }


def test_user_data_equals_javas() -> None:
    """`sticky` writes partitions and generation, cooperative-sticky only the generation, and others nothing."""
    owned = partitions("t0:0,2")
    written = {name: a.user_data(frozenset({"t0"}), owned, 7) for name, a in BUILT_IN.items()}
    assert written == {
        "range": None,
        "roundrobin": None,
        "sticky": bytes.fromhex("00000001 0002 7430 00000002 00000000 00000002 00000007"),
        "cooperative-sticky": bytes.fromhex("00000007"),
    }
    assert BUILT_IN["sticky"].user_data(frozenset({"t0"}), frozenset(), -1) is None


def test_first_version_of_stickys_user_data_has_no_generation() -> None:
    """Clients before 2.3 send no generation, but their owned partitions are read."""
    claim = decode(encode(partitions("t0:0,2 t1:1"), 7)[:-4])
    assert (claim.owned, claim.generation) == (partitions("t0:0,2 t1:1"), -1)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00",
        bytes.fromhex("ffffffff"),
        bytes.fromhex("7fffffff 0001 74"),
        bytes.fromhex("00000001 ffff"),
        bytes.fromhex("00000001 0001 ff 00000000"),
        bytes.fromhex("00000001 0001 74 00000002 00000000"),
        bytes.fromhex("00000001 0001 74 fffffffe"),
    ],
)
def test_invalid_user_data_owns_nothing(data: bytes) -> None:
    """Invalid user data of another client does not stop a rebalance."""
    assert decode(data) == decode(None)


def test_claims_are_read_in_the_form_of_the_assignor() -> None:
    """Sticky assignors read claims from user data, and a user's assignor reads the protocol's fields."""
    told_here = member("t", "t:0", 7, is_old=True)
    assert claim_reader(BUILT_IN["cooperative-sticky"])(told_here).generation == 7
    assert claim_reader(BUILT_IN["range"])(told_here) == protocol_claim(told_here)


@pytest.mark.slow
def test_result_does_not_depend_on_the_hash_seed() -> None:
    """Any leader process computes the same result for the golden groups."""
    code = (
        "from tests.assignors.groups import golden, BUILT_IN\n"
        "import hashlib\n"
        "text = repr([[sorted(a.assign(g.topics, g.subscriptions(n)).items()) for n, a in BUILT_IN.items()]"
        " for g in golden()])\n"
        "print(hashlib.sha256(text.encode()).hexdigest())"
    )
    root = GOLDEN.parents[3]
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1
