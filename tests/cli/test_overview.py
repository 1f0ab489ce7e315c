"""`list` and `lag`: filters, tables, JSON and rates, and both commands on a real broker."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from confluent_kafka import Consumer as RawConsumer
from confluent_kafka import TopicPartition as Partition

from consumer_membership.admin import GroupListing, GroupReport, ListedGroup, PartitionProgress
from consumer_membership.cli import main
from consumer_membership.cli.groups import GroupQuery
from consumer_membership.cli.overview import (
    LagOptions,
    ListOptions,
    chosen,
    duration,
    lag_json,
    lag_text,
    listed_json,
    listed_text,
    positions,
    show_lag,
)
from consumer_membership.devbroker import Broker
from consumer_membership.observe.rates import Rates
from consumer_membership.types import BrokerAddress
from tests.admin.builders import group
from tests.support.kafka import create_topic, produce, unique


def listed(name: str, state: str | None, kind: str | None, protocol_type: str = "consumer") -> ListedGroup:
    """Return one listed group."""
    return ListedGroup(group_id=name, protocol_type=protocol_type, state=state, kind=kind)


LISTING = GroupListing(
    groups=(
        listed("a", "Stable", "consumer"),
        listed("b", "Empty", "classic"),
        listed("c", "Stable", "classic", "connect"),
        listed("d", None, None),
    ),
    errors={BrokerAddress(node_id=2, host="h", port=1): "no answer"},
)


@pytest.mark.parametrize(
    ("states", "types", "expected"),
    [
        ((), (), "abcd"),
        (("stable",), (), "ac"),
        (("Stable", "EMPTY"), ("classic",), "bc"),
        ((), ("share",), ""),
    ],
)
def test_list_filters_require_state_and_type(states: tuple[str, ...], types: tuple[str, ...], expected: str) -> None:
    """A group matches one of the states, in any letter case, and one of the types."""
    options = ListOptions(config={}, states=frozenset(states), types=frozenset(types))
    assert "".join(one.group_id for one in chosen(LISTING, options)) == expected


def test_list_prints_table_or_json() -> None:
    """Values that an old broker lacks are a dash or null; only protocol types other than "consumer" appear."""
    assert list(listed_text(LISTING, ListOptions(config={}))) == [
        "GROUP  STATE   TYPE      PROTOCOL TYPE",
        "a      Stable  consumer  -",
        "b      Empty   classic   -",
        "c      Stable  classic   connect",
        "d      -       -         -",
    ]
    document = json.loads(listed_json(LISTING, ListOptions(config={})))
    assert document["groups"][3] == {"group_id": "d", "state": None, "type": None, "protocol_type": "consumer"}
    assert document["errors"] == [{"broker": "h:1 (id 2)", "error": "no answer"}]
    nothing = ListOptions(config={}, states=frozenset({"Dead"}))
    assert list(listed_text(LISTING, nothing)) == ["No groups match."]


def test_list_limits_width_of_group_column() -> None:
    """A long id shifts only its own row, is shortened on a terminal, and is complete in JSON."""
    listing = GroupListing(groups=(listed("a", "Stable", "consumer"), listed("x" * 300, "Empty", "classic")), errors={})
    options = ListOptions(config={})
    assert list(listed_text(listing, options)) == [
        f"{'GROUP':60}  STATE   TYPE",
        f"{'a':60}  Stable  consumer",
        f"{'x' * 300}  Empty   classic",
    ]
    assert list(listed_text(listing, options, cuts=True))[2] == f"{'x' * 59}…  Empty   classic"
    assert json.loads(listed_json(listing, options))["groups"][1]["group_id"] == "x" * 300


def report(*lags: tuple[int | None, int]) -> GroupReport:
    """Return a report on partitions with these committed and end offsets."""
    rows = tuple(
        PartitionProgress(
            topic="t",
            partition=number,
            committed=committed,
            end=end,
            lag=None if committed is None else end - committed,
            owner="m" if number == 0 else None,
            next_owner=None,
            note="" if committed is not None else "nothing committed",
        )
        for number, (committed, end) in enumerate(lags)
    )
    return GroupReport(group=group(), coordinator=BrokerAddress(node_id=1, host="h", port=1), partitions=rows)


def test_lag_lists_largest_lag_first_with_rates_after_two_samples() -> None:
    """A partition that has unread records and no progress is marked."""
    rates = Rates()
    rates.add(0.0, positions(report((0, 100), (10, 1_000), (None, 5))))
    now = report((50, 100), (10, 1_200), (None, 5))
    rates.add(5.0, positions(now))
    assert list(lag_text(now, rates)) == [
        "Group g: Stable, lag 1,240, consumed 10.0/s, produced 40.0/s, lag does not shrink",
        "",
        "TOPIC  PARTITION  COMMITTED    END    LAG  CONSUMED/S  PRODUCED/S  DRAINED IN  OWNER  NOTE",
        "t              1         10  1,200  1,190         0.0        40.0       never  -      stalled for 5 s",
        "t              0         50    100     50        10.0         0.0         5 s  m      -",
        "t              2          -      5      -           -           -           -  -      nothing committed",
    ]
    document = json.loads(lag_json(now, rates, watches=True))
    total = {key: document[key] for key in ("lag", "consumed_per_s", "produced_per_s", "drained_in_s")}
    assert total == {"lag": 1_240, "consumed_per_s": 10.0, "produced_per_s": 40.0, "drained_in_s": None}
    first, second, _ = document["partitions"]
    assert (first["consumed_per_s"], first["produced_per_s"]) == (10.0, 0.0)
    assert (second["committed_offset"], second["end_offset"], second["stalled_for_s"]) == (10, 1_200, 5.0)


def test_lag_rates_count_offsets_that_are_finished_beyond_the_committed_offset() -> None:
    """The lag is drained when the remaining records are finished, although the committed offset does not move."""
    rates, before = Rates(), report((0, 100))
    rates.add(0.0, positions(before))
    now = replace(before, partitions=(replace(before.partitions[0], finished_beyond=50),))
    rates.add(5.0, positions(now))
    assert list(lag_text(now, rates)) == [
        "Group g: Stable, lag 100, consumed 10.0/s, produced 0.0/s, drained in 5 s",
        "",
        "TOPIC  PARTITION  COMMITTED  END  LAG  FINISHED BEYOND  CONSUMED/S  PRODUCED/S  DRAINED IN  OWNER",
        "t              0          0  100  100               50        10.0         0.0         5 s  m",
    ]
    assert json.loads(lag_json(now, rates, watches=False))["drained_in_s"] == 5.0


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0.0, "0 s"), (59.4, "59 s"), (185, "3 min 5 s"), (7_620, "2 h 7 min"), (None, "never")]
)
def test_duration_has_at_most_two_units(seconds: float | None, expected: str) -> None:
    """A duration is shown with at most two units."""
    assert duration(seconds) == expected


@pytest.mark.integration
@pytest.mark.slow
def test_lag_and_list_show_real_group(kafka: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    """The group commits between two samples, so the second sample has a rate."""
    servers = kafka.bootstrap_servers
    topic, name = create_topic(servers, unique("topic"), 2), unique("group")
    produce(servers, topic, 20)
    consumer = RawConsumer({"bootstrap.servers": servers, "group.id": name})
    consumer.commit(offsets=[Partition(topic, 0, 4)], asynchronous=False)
    query = GroupQuery(config={"bootstrap.servers": servers}, group=name, is_json=True)
    out, err = io.StringIO(), io.StringIO()

    def go_on(_: float) -> None:
        consumer.commit(offsets=[Partition(topic, 0, 10)], asynchronous=False)

    assert show_lag(LagOptions(query=query, watches=True, samples=2), out, err, go_on) == 0
    first, second = map(json.loads, out.getvalue().splitlines())
    assert (first["lag"], first["consumed_per_s"], second["lag"]) == (6, None, 0)
    assert second["consumed_per_s"] > 0
    assert second["drained_in_s"] == 0.0
    consumer.close()
    assert main(["list", "-b", servers, "--state", "empty", "--type", "classic", "--json"]) == 0
    assert name in {one["group_id"] for one in json.loads(capsys.readouterr().out)["groups"]}
    assert main(["list", "-b", servers, "--state", "Stable", "--json"]) == 0
    assert name not in {one["group_id"] for one in json.loads(capsys.readouterr().out)["groups"]}
