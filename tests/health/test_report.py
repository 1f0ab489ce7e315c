"""Probe responses: which verdicts mean not live or not ready, and their text and JSON forms."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from consumer_membership.health.handlers import HandlerHealth, RunningHandler, UnfinishedRecord
from consumer_membership.health.progress import PartitionHealth, PartitionWaitsFor
from consumer_membership.health.report import ConsumerReport, ProbeQuestion, ProcessReport
from consumer_membership.health.verdict import Health, HealthVerdict
from consumer_membership.membership.states import MemberState
from consumer_membership.types import TopicPartition
from tests.support.views import view_of

V = HealthVerdict
NOW, EPOCH_S = 1_000.0, 1_767_225_600.0


def consumer(verdict: HealthVerdict = V.CONSUMING, *, helps: bool = False, **changes: object) -> ConsumerReport:
    """Return the report of a consumer in the group `orders`."""
    health = Health(
        verdict=verdict,
        since=NOW - 12,
        why="records come",
        until=None,
        would_restart_help=helps,
        partitions={},
        sampled_at=NOW - 1,
    )
    changed = replace(health, **changes)  # type: ignore[arg-type]  # fields of `Health`
    return ConsumerReport(client_id="client", view=view_of(MemberState.STABLE, group_id="orders"), health=changed)


def report(*consumers: ConsumerReport) -> ProcessReport:
    """Return the report of one process."""
    return ProcessReport(process=7, at=NOW, written_at=EPOCH_S, consumers=consumers)


@pytest.mark.parametrize("verdict", HealthVerdict)
@pytest.mark.parametrize("helps", [True, False])
def test_liveness_fails_only_if_a_restart_would_help(*, verdict: HealthVerdict, helps: bool) -> None:
    """Liveness depends only on whether a restart would help; readiness depends only on the verdict."""
    found = report(consumer(verdict, helps=helps))
    assert found.answer(ProbeQuestion.IS_LIVE) is not helps
    is_ready = verdict in {V.WARM, V.CONSUMING, V.IDLE, V.PAUSED, V.BEHIND, V.REBALANCING}
    assert found.answer(ProbeQuestion.IS_READY) is is_ready


def test_process_is_live_and_ready_only_if_all_consumers_are() -> None:
    """A process is live and ready only if each of its consumers is."""
    well, joins, hangs = consumer(), consumer(V.JOINING), consumer(V.NOT_POLLED, helps=True)
    assert [report(well, joins).answer(question) for question in ProbeQuestion] == [True, False]
    assert [report(well, hangs).answer(question) for question in ProbeQuestion] == [False, False]
    assert [report(well, well).answer(question) for question in ProbeQuestion] == [True, True]
    assert [report().answer(question) for question in ProbeQuestion] == [True, False]


def test_text_shows_the_result_then_each_consumer() -> None:
    """The text shows the result, then one line per consumer with duration, deadline and whether a restart would help.

    The verbose form adds the partitions.
    """
    partitions = {
        TopicPartition("orders", 1): PartitionHealth(
            position=5, end=9, lag=4, progressed_at=NOW - 70, waits_for=PartitionWaitsFor.RECORDS
        ),
        TopicPartition("orders", 0): PartitionHealth(position=None, end=None, lag=None, progressed_at=None),
    }
    found = report(consumer(partitions=partitions), consumer(V.NOT_POLLED, helps=True, why="no poll", until=NOW + 3))
    assert found.text(ProbeQuestion.IS_LIVE) == (
        "live: no\n"
        "[+] orders/client consuming for 12 s: records come\n"
        "[-] orders/client not_polled for 12 s: no poll; until 3 s from now; a restart would help\n"
    )
    assert found.text(ProbeQuestion.IS_READY, is_verbose=True).splitlines()[:4] == [
        "ready: no",
        "[+] orders/client consuming for 12 s: records come",
        "    orders-0: position ?, end ?, lag ?",
        "    orders-1: position 5, end 9, lag 4, moved 70 s ago, waits for records",
    ]


def test_text_escapes_line_ends_and_control_characters() -> None:
    """Each consumer is one line. Group names and broker messages may contain line ends and control characters."""
    odd = replace(
        consumer(why="two\nlines \x1b[2J"), view=view_of(MemberState.STABLE, group_id="a\r\nb\x07" + 90 * "x")
    )
    (_, line) = report(odd).text(ProbeQuestion.IS_LIVE).splitlines()
    assert line == f"[+] a b\\x07{35 * 'x'}.../client consuming for 12 s: two lines \\x1b[2J"


def test_json_has_verdicts_and_wall_clock_times() -> None:
    """The JSON has wall-clock times; the summary omits the partitions, and the details include them."""
    moved = PartitionHealth(position=5, end=9, lag=4, progressed_at=NOW - 0.5)
    found = report(consumer(partitions={TopicPartition("orders", 3): moved}, until=NOW + 60))
    summary, details = json.loads(found.summary()), json.loads(found.details())
    assert summary == {
        "process": 7,
        "written_at": "2026-01-01T00:00:00.000Z",
        "live": True,
        "ready": True,
        "consumers": [
            {
                "group_id": "orders",
                "client_id": "client",
                "instance_id": None,
                "member_id": "m",
                "member_epoch": 0,
                "protocol": "consumer",
                "state": "STABLE",
                "verdict": "consuming",
                "why": "records come",
                "since": "2025-12-31T23:59:48.000Z",
                "until": "2026-01-01T00:01:00.000Z",
                "would_restart_help": False,
                "is_ready": True,
            }
        ],
    }
    assert found.summary().count('"ready": true') == 1
    (more,) = details["consumers"]
    assert more.items() >= summary["consumers"][0].items()
    assert more["partitions"] == [
        {
            "topic": "orders",
            "partition": 3,
            "position": 5,
            "end": 9,
            "lag": 4,
            "progressed_at": "2025-12-31T23:59:59.500Z",
            "is_paused": False,
            "is_stuck": False,
            "is_held_back": False,
            "is_readable": False,
            "is_behind": False,
            "waits_for": None,
            "waits_for_detail": None,
            "since": None,
            "oldest_unfinished": None,
        }
    ]


def test_report_shows_handlers_beyond_their_timeout_and_the_oldest_unfinished_records() -> None:
    """The JSON has the stack of each stuck handler, and the error of the oldest unfinished record of a partition."""
    stuck = RunningHandler(
        partition=TopicPartition("orders", 3),
        offset=42,
        key=b"customer-7",
        attempt=2,
        began_at=NOW - 320,
        deadline=NOW - 20,
        stack='  File "/app/orders.py", line 12, in handle\n    time.sleep(3600)\n',
    )
    oldest = UnfinishedRecord(offset=42, since=NOW - 400, attempt=2, last_error="TimeoutError: slow")
    held = PartitionHealth(position=50, end=50, lag=0, progressed_at=None, oldest_unfinished=oldest)
    found = report(
        consumer(
            V.STUCK,
            helps=True,
            handlers=HandlerHealth(stuck=(stuck,)),
            partitions={TopicPartition("orders", 3): held},
        )
    )
    (shown,) = json.loads(found.details())["consumers"]
    assert shown["stuck_handlers"] == [
        {
            "topic": "orders",
            "partition": 3,
            "offset": 42,
            "key": "customer-7",
            "attempt": 2,
            "began_at": "2025-12-31T23:54:40.000Z",
            "deadline": "2025-12-31T23:59:40.000Z",
            "can_be_cancelled": False,
            "is_disowned": False,
            "stack": ['  File "/app/orders.py", line 12, in handle', "    time.sleep(3600)"],
        }
    ]
    assert shown["partitions"][0]["oldest_unfinished"] == {
        "offset": 42,
        "since": "2025-12-31T23:53:20.000Z",
        "attempt": 2,
        "last_error": "TimeoutError: slow",
    }
    assert found.text(ProbeQuestion.IS_LIVE, is_verbose=True).splitlines()[-1] == (
        "    orders-3: position 50, end 50, lag 0, unfinished for 400 s: offset 42 (attempt 2; TimeoutError: slow)"
    )
    assert "stuck_handlers" not in json.loads(report(consumer()).summary())["consumers"][0]
