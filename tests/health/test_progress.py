"""`ProgressLog` judges each partition separately and reports as stuck only partitions that certainly stall."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from consumer_membership.health.handlers import UnfinishedRecord
from consumer_membership.health.progress import (
    AssignmentProgress,
    PartitionHealth,
    PartitionWaitsFor,
    ProgressLog,
    ProgressSample,
)
from consumer_membership.types import BrokerAddress, TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
STUCK_AFTER_S = 60.0
LEADER = BrokerAddress(node_id=2, host="broker", port=9092)


class Scene:
    """An application that polls and is sampled every two seconds."""

    def __init__(self) -> None:
        self.log = ProgressLog(STUCK_AFTER_S)
        self.now = 1000.0
        self.polls = True

    def look(
        self,
        positions: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        *,
        stable_ends: Mapping[TopicPartition, int] | None = None,
        paused: Collection[TopicPartition] = (),
        frozen: Collection[TopicPartition] = (),
        has_broker: bool = True,
        unfinished: Mapping[TopicPartition, UnfinishedRecord] | None = None,
        leaders: Mapping[TopicPartition, BrokerAddress] | None = None,
        after_s: float = 2.0,
    ) -> AssignmentProgress:
        """Take one sample, `after_s` seconds after the previous one."""
        self.now += after_s
        seen = ProgressSample(
            at=self.now,
            assigned=positions.keys() | ends.keys(),
            positions=positions,
            ends=ends,
            stable_ends=stable_ends or {},
            paused=paused,
            frozen=frozen,
            has_broker=has_broker,
            unfinished=unfinished,
            leaders=leaders or {},
        )
        return self.log.add(seen, self.now if self.polls else None)

    def wait_for_fetch(self, seconds: float, *, stable_end: int = 12, **how: object) -> AssignmentProgress:
        """Keep P0 at offset 10 while its leader reports a later end than the fetch connection."""
        self.look({P0: 10}, {P0: 10})
        for _ in range(int(seconds // 2)):
            found = self.look({P0: 10}, {P0: 12}, stable_ends={P0: stable_end}, leaders={P0: LEADER}, **how)  # type: ignore[arg-type]  # arguments of `look`
        return found

    def stand(self, *, seconds: float = 70.0, **how: object) -> PartitionHealth:
        """Keep P0 at offset 10 while its end increases by one in each sample, and return its final health."""
        end = 10
        found = self.look({P0: 10}, {P0: end})
        for _ in range(int(seconds // 2)):
            end += 1
            found = self.look({P0: 10}, {P0: end}, **how)  # type: ignore[arg-type]  # arguments of `look`
        return found.partitions[P0]


def test_partition_is_stuck_after_the_limit_while_its_end_advances() -> None:
    """A partition is stuck once its position has not moved for the configured time while its end advances."""
    assert not Scene().stand(seconds=58).is_stuck
    found = Scene().stand(seconds=62)
    assert (found.is_stuck, found.waits_for, found.since) == (True, PartitionWaitsFor.RECORDS, 1002.0)
    assert (found.position, found.end, found.lag) == (10, 41, 31)


def test_stuck_partition_is_reported_although_another_one_advances() -> None:
    """Each partition is judged separately, because a sum of positions would hide the stuck one."""
    scene = Scene()
    for number in range(40):
        found = scene.look({P0: 10, P1: 100 * number}, {P0: 10 + number, P1: 100 * number})
    assert found.stuck == (P0,)
    assert found.progressed_at == scene.now


def test_partition_of_an_idle_topic_is_never_stuck() -> None:
    """A partition without new records is never stuck.

    A transaction marker at its end occupies an offset but is never delivered.
    """
    scene = Scene()
    for _ in range(100):
        found = scene.look({P0: 10, P1: 10}, {P0: 10, P1: 11}, after_s=3600.0)
    assert found.stuck == found.behind == ()
    assert found.partitions[P1].lag == 1


def test_partition_without_a_position_is_stuck_while_its_end_advances() -> None:
    """An assigned partition that never delivered a record is stuck if its end advances."""
    scene = Scene()
    for number in range(40):
        found = scene.look({}, {P0: 10 + number})
    assert found.stuck == (P0,)
    assert found.partitions[P0].position is None


def test_partition_with_unknown_end_is_stuck_after_the_limit() -> None:
    """A partition whose end offset stays unknown is stuck, because it has no leader or does not exist."""
    scene = Scene()
    scene.look({P0: 10, P1: 5}, {P1: 5})
    early = scene.look({P0: 10, P1: 5}, {P1: 5}, after_s=58.0)
    assert (early.stuck, early.without_end) == ((), (P0,))
    late = scene.look({P0: 10, P1: 5}, {P1: 5})
    assert late.stuck == (P0,)
    assert (late.partitions[P0].waits_for, late.partitions[P0].is_readable) == (PartitionWaitsFor.END_OFFSET, False)
    assert not scene.look({P0: 10, P1: 5}, {P0: 10, P1: 5}).stuck
    # A known end restarts the time limit, even if only one sample has it.
    assert not scene.look({P0: 10, P1: 5}, {P1: 5}).stuck


def test_unknown_end_without_a_broker_does_not_count_as_stuck() -> None:
    """The time limit for an unknown end offset starts when a broker is connected again."""
    scene = Scene()
    for _ in range(100):
        assert scene.look({P0: 10}, {}, has_broker=False).stuck == ()
    assert scene.look({P0: 10}, {}, after_s=STUCK_AFTER_S - 1).stuck == ()
    assert scene.look({P0: 10}, {}, after_s=1).stuck == (P0,)


def test_unknown_end_of_a_paused_or_unpolled_partition_is_not_stuck() -> None:
    """A partition with an unknown end is not stuck while it is paused or the application does not poll."""
    scene = Scene()
    for _ in range(40):
        assert not scene.look({P0: 10}, {}, paused={P0}).stuck
    scene = Scene()
    scene.polls = False
    for _ in range(40):
        assert not scene.look({P0: 10}, {}).stuck


def test_partition_of_an_unpolled_consumer_is_not_stuck() -> None:
    """Positions that do not move are not stuck while the application does not poll."""
    scene = Scene()
    scene.polls = False
    assert not scene.stand(seconds=200).is_stuck


def test_paused_partition_is_not_stuck_and_its_limit_restarts_after_resume() -> None:
    """A partition that is paused or being revoked is not stuck, and its time limit starts again after resume()."""
    scene = Scene()
    paused = scene.stand(seconds=200, paused=(P0,))
    assert (paused.is_stuck, paused.is_paused, paused.waits_for) == (False, True, PartitionWaitsFor.RESUME)
    assert not scene.look({P0: 10}, {P0: 300}).stuck
    assert not scene.look({P0: 10}, {P0: 301}, after_s=57.0).stuck
    assert scene.look({P0: 10}, {P0: 302}).stuck == (P0,)
    assert Scene().stand(seconds=200, frozen=(P0,)).waits_for == PartitionWaitsFor.REVOCATION


def test_stuck_partition_names_the_open_transaction() -> None:
    """A partition that is stuck at the last stable offset names the open transaction (KIP-98)."""
    held = Scene().stand(stable_ends={P0: 10})
    assert (held.is_stuck, held.is_held_back) == (True, True)
    assert held.waits_for_text == (
        "open transaction: a transaction is open from offset 10; read_committed consumers cannot read past it"
    )
    assert not held.is_readable
    # Committed records exist but are not delivered, so no transaction is the cause.
    free = Scene().stand(stable_ends={P0: 12})
    assert (free.is_held_back, free.is_readable) == (False, True)
    # The last stable offset is not known yet, or the leader does not respond.
    unknown = Scene().stand()
    assert (unknown.is_stuck, unknown.is_held_back, unknown.is_readable) == (True, False, False)


def test_partition_with_aborted_records_only_is_not_stuck() -> None:
    """A partition of aborted records is not stuck, because librdkafka advances its position past them."""
    scene = Scene()
    for number in range(60):
        aborted = 10 + number - number % 8
        found = scene.look({P0: aborted}, {P0: 10 + number})
    assert (found.stuck, found.behind, found.partitions[P0].position) == ((), (), 66)


def test_first_sample_reports_progress_made_before_it() -> None:
    """The first sample reports partitions that delivered records between the assignment and the sample."""
    log = ProgressLog(STUCK_AFTER_S)
    seen = ProgressSample(at=5.0, assigned=[P0, P1], positions={P0: 10, P1: 0}, ends={P0: 10, P1: 0}, begun=[P0])
    assert log.add(seen, 5.0).progressed_at == 5.0
    assert log.latest.partitions[P1].progressed_at is None


def test_stuck_partition_recovers_after_one_record() -> None:
    """A stuck partition is no longer stuck after one delivered record."""
    scene = Scene()
    scene.stand()
    found = scene.look({P0: 11}, {P0: 100})
    assert (found.stuck, found.partitions[P0].progressed_at) == ((), scene.now)


def test_partition_whose_lag_never_shrinks_is_behind() -> None:
    """A partition is behind if it advances but its lag never shrinks."""
    scene = Scene()
    for number in range(40):
        found = scene.look({P0: 10 * number}, {P0: 20 * number})
    assert (found.behind, found.stuck, found.lag) == ((P0,), (), 390)
    assert scene.look({P0: 700}, {P0: 780}).behind == ()


def test_revoked_partition_is_forgotten_and_starts_over_when_assigned_again() -> None:
    """A revoked partition is dropped from the log, and its time limit starts again with the next assignment."""
    scene = Scene()
    scene.stand()
    assert scene.look({P1: 0}, {P1: 0}).partitions.keys() == {P1}
    assert scene.look({P0: 10}, {P0: 500}).stuck == ()


def test_suspects_are_partitions_whose_position_and_end_stand_still() -> None:
    """`suspects` returns partitions whose end offset must be requested from the broker.

    librdkafka updates the end only of partitions that it fetches.
    """
    scene = Scene()
    for number in range(16):
        scene.look({P0: 10, P1: number}, {P0: 10, P1: number})
    assert scene.log.suspects(scene.now) == {P0}


def test_partition_waits_for_a_fetch_response_if_its_leader_reports_records_and_none_arrives() -> None:
    """Records that the leader reported on another connection should arrive within a twelfth of the limit."""
    scene = Scene()
    assert scene.wait_for_fetch(6).late == ()
    found = scene.look({P0: 10}, {P0: 12}, stable_ends={P0: 12}, leaders={P0: LEADER})
    partition = found.partitions[P0]
    assert (found.late, found.stuck) == ((P0,), ())
    assert (partition.waits_for, partition.since, partition.lag) == (PartitionWaitsFor.FETCH_RESPONSE, 1004.0, 2)
    detail = "broker broker:9092 (id 2) reported records up to offset 12, and its fetch connection returns none"
    assert partition.waits_for_detail == detail
    assert scene.look({P0: 11}, {P0: 12}, stable_ends={P0: 12}).late == ()


def test_partition_at_a_marker_that_an_earlier_fetch_reported_waits_for_no_response() -> None:
    """A transaction marker at the end of a partition is never delivered, so its offset is no evidence."""
    scene = Scene()
    for _ in range(100):
        assert scene.look({P0: 10}, {P0: 11}, stable_ends={P0: 11}).late == ()


def test_partition_that_is_not_requested_waits_for_no_fetch_response() -> None:
    """Paused partitions, partitions with open transactions, and partitions of an unpolled consumer are not late."""
    assert Scene().wait_for_fetch(40, paused={P0}).late == ()
    assert Scene().wait_for_fetch(40, frozen={P0}).late == ()
    assert Scene().wait_for_fetch(40, stable_end=10).late == ()
    silent = Scene()
    silent.polls = False
    assert silent.wait_for_fetch(40).late == ()


def test_partition_without_a_fetch_response_is_stuck_after_the_limit() -> None:
    """After `stuck_after_s` the partition is stuck, and a restart, which opens a new connection, helps."""
    found = Scene().wait_for_fetch(64)
    assert (found.late, found.stuck, found.partitions[P0].is_readable) == ((), (P0,), True)


# ---- with a processor ------------------------------------------------------------------------------------------------

OLDEST = UnfinishedRecord(offset=4, since=900.0, attempt=2, last_error="ValueError: no")


def test_partition_that_the_processor_paused_waits_for_a_handler_and_is_not_stuck() -> None:
    """A full partition has the oldest unfinished record, and neither counts as paused by the application nor stuck."""
    scene = Scene()
    for end in range(10, 90):
        found = scene.look({P0: 10}, {P0: end}, paused=(P0,), unfinished={P0: OLDEST})
    health = found.partitions[P0]
    assert (health.waits_for, health.since) == (PartitionWaitsFor.HANDLER, 900.0)
    assert health.waits_for_detail == "the oldest unfinished record is offset 4 (attempt 2; ValueError: no)"
    assert (health.is_paused, health.is_stuck, found.paused, found.stuck) == (False, False, 0, ())
    assert health.oldest_unfinished == OLDEST


def test_partition_whose_handlers_are_slower_than_its_producers_falls_behind() -> None:
    """The lag of a partition that the processor pauses counts, unlike the lag of one that the application paused."""
    behind = {}
    for unfinished in ({P0: OLDEST}, None):
        scene = Scene()
        for number in range(70):
            found = scene.look({P0: 10 + number}, {P0: 10 + 3 * number}, paused=(P0,), unfinished=unfinished)
        behind[unfinished is not None] = found.partitions[P0].is_behind
    assert behind == {True: True, False: False}


def test_partition_is_stuck_by_fetch_although_a_processor_handles_its_records() -> None:
    """A partition that is not paused and gets no records is stuck, whatever its handlers do."""
    assert Scene().stand(unfinished={P0: OLDEST}).is_stuck
