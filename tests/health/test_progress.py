"""What looks at partitions come to: each is judged by itself, and only what surely stands still is stuck."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from consumer_membership.health.progress import (
    IS_FROZEN,
    IS_PAUSED,
    NO_RECORD,
    UNTOLD,
    AssignmentProgress,
    Look,
    PartitionHealth,
    ProgressLog,
)
from consumer_membership.types import TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
STUCK_AFTER_S = 60.0


class Scene:
    """An application that polls, looked at every two seconds."""

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
        after_s: float = 2.0,
    ) -> AssignmentProgress:
        """One look, so many seconds after the one before."""
        self.now += after_s
        seen = Look(
            at=self.now,
            assigned=positions.keys() | ends.keys(),
            positions=positions,
            ends=ends,
            stable_ends=stable_ends or {},
            paused=paused,
            frozen=frozen,
            has_broker=has_broker,
        )
        return self.log.look(seen, self.now if self.polls else None)

    def stand(self, *, seconds: float = 70.0, **how: Mapping[TopicPartition, int]) -> PartitionHealth:
        """P0 stands at 10 while a record is written with each look; how it is at the end."""
        end = 10
        found = self.look({P0: 10}, {P0: end})
        for _ in range(int(seconds // 2)):
            end += 1
            found = self.look({P0: 10}, {P0: end}, **how)  # type: ignore[arg-type]  # what look takes
        return found.partitions[P0]


def test_partition_that_stands_while_its_end_moves_is_stuck() -> None:
    """After the time that is set, and not a look before; since its position stands."""
    assert not Scene().stand(seconds=58).is_stuck
    found = Scene().stand(seconds=62)
    assert (found.is_stuck, found.waits_for, found.since) == (True, NO_RECORD, 1002.0)
    assert (found.position, found.end, found.lag) == (10, 41, 31)


def test_others_that_advance_do_not_hide_it() -> None:
    """Liveness is judged by partition: a sum would see records come."""
    scene = Scene()
    for number in range(40):
        found = scene.look({P0: 10, P1: 100 * number}, {P0: 10 + number, P1: 100 * number})
    assert found.stuck == (P0,)
    assert found.progressed_at == scene.now


def test_idle_topic_is_never_stuck() -> None:
    """Nothing is written: nothing can come, for days; and a transaction's marker at the end is nobody's record."""
    scene = Scene()
    for _ in range(100):
        found = scene.look({P0: 10, P1: 10}, {P0: 10, P1: 11}, after_s=3600.0)
    assert found.stuck == found.behind == ()
    assert found.partitions[P1].lag == 1


def test_partition_of_which_nothing_ever_came_is_stuck_too() -> None:
    """It was assigned, its end moves, and its position is not known."""
    scene = Scene()
    for number in range(40):
        found = scene.look({}, {P0: 10 + number})
    assert found.stuck == (P0,)
    assert found.partitions[P0].position is None


def test_partition_whose_end_nobody_tells_is_stuck() -> None:
    """It has no leader, or is not there: nothing comes of it, and that nobody can write to it is no comfort."""
    scene = Scene()
    scene.look({P0: 10, P1: 5}, {P1: 5})
    early = scene.look({P0: 10, P1: 5}, {P1: 5}, after_s=58.0)
    assert (early.stuck, early.untold) == ((), (P0,))
    late = scene.look({P0: 10, P1: 5}, {P1: 5})
    assert late.stuck == (P0,)
    assert (late.partitions[P0].waits_for, late.partitions[P0].is_readable) == (UNTOLD, False)
    assert not scene.look({P0: 10, P1: 5}, {P0: 10, P1: 5}).stuck
    # An end that was known is asked for again, and a look without an answer is none that lasted.
    assert not scene.look({P0: 10, P1: 5}, {P1: 5}).stuck


def test_end_that_nobody_tells_while_no_broker_is_there_is_no_standstill() -> None:
    """The time counts from the moment that there is one again."""
    scene = Scene()
    for _ in range(100):
        assert scene.look({P0: 10}, {}, has_broker=False).stuck == ()
    assert scene.look({P0: 10}, {}, after_s=STUCK_AFTER_S - 1).stuck == ()
    assert scene.look({P0: 10}, {}, after_s=1).stuck == (P0,)


def test_partition_whose_end_nobody_tells_is_not_stuck_where_nobody_wants_it() -> None:
    """It is paused, or the application does not poll."""
    scene = Scene()
    for _ in range(40):
        assert not scene.look({P0: 10}, {}, paused={P0}).stuck
    scene = Scene()
    scene.polls = False
    for _ in range(40):
        assert not scene.look({P0: 10}, {}).stuck


def test_application_that_does_not_poll_is_not_a_stuck_partition() -> None:
    """Positions stand since nobody takes records."""
    scene = Scene()
    scene.polls = False
    assert not scene.stand(seconds=200).is_stuck


def test_paused_partition_is_not_stuck_and_its_time_does_not_count() -> None:
    """Nor is one that is being revoked. After resume() it has all the time again."""
    scene = Scene()
    paused = scene.stand(seconds=200, paused=(P0,))  # type: ignore[arg-type]  # what look takes
    assert (paused.is_stuck, paused.is_paused, paused.waits_for) == (False, True, IS_PAUSED)
    assert not scene.look({P0: 10}, {P0: 300}).stuck
    assert not scene.look({P0: 10}, {P0: 301}, after_s=57.0).stuck
    assert scene.look({P0: 10}, {P0: 302}).stuck == (P0,)
    assert Scene().stand(seconds=200, frozen=(P0,)).waits_for == IS_FROZEN  # type: ignore[arg-type]


def test_open_transaction_is_named() -> None:
    """Readers of committed records get no further than the last stable offset (KIP-98)."""
    held = Scene().stand(stable_ends={P0: 10})
    assert (held.is_stuck, held.is_held_back) == (True, True)
    assert held.waits_for == "a transaction that is open since offset 10: readers of committed records get no further"
    assert not held.is_readable
    # Committed records are there, and do not come: no transaction's fault.
    free = Scene().stand(stable_ends={P0: 12})
    assert (free.is_held_back, free.is_readable) == (False, True)
    # Nobody has asked its leader yet, or it does not answer.
    unknown = Scene().stand()
    assert (unknown.is_stuck, unknown.is_held_back, unknown.is_readable) == (True, False, False)


def test_partition_that_gets_aborted_records_only_is_not_stuck() -> None:
    """The position moves behind the marker of each transaction, as librdkafka has it, though nobody gets anything."""
    scene = Scene()
    for number in range(60):
        aborted = 10 + number - number % 8
        found = scene.look({P0: aborted}, {P0: 10 + number})
    assert (found.stuck, found.behind, found.partitions[P0].position) == ((), (), 66)


def test_first_look_sees_that_records_came_before_it() -> None:
    """They came between the assignment and the look."""
    log = ProgressLog(STUCK_AFTER_S)
    seen = Look(at=5.0, assigned=[P0, P1], positions={P0: 10, P1: 0}, ends={P0: 10, P1: 0}, begun=[P0])
    assert log.look(seen, 5.0).progressed_at == 5.0
    assert log.latest.partitions[P1].progressed_at is None


def test_partition_that_moves_again_is_not_stuck() -> None:
    """One record is enough."""
    scene = Scene()
    scene.stand()
    found = scene.look({P0: 11}, {P0: 100})
    assert (found.stuck, found.partitions[P0].progressed_at) == ((), scene.now)


def test_partition_whose_lag_never_shrinks_is_behind() -> None:
    """It moves, and more is written than is read."""
    scene = Scene()
    for number in range(40):
        found = scene.look({P0: 10 * number}, {P0: 20 * number})
    assert (found.behind, found.stuck, found.lag) == ((P0,), (), 390)
    assert scene.look({P0: 700}, {P0: 780}).behind == ()


def test_partitions_that_are_given_up_are_forgotten() -> None:
    """One that comes back begins anew."""
    scene = Scene()
    scene.stand()
    assert scene.look({P1: 0}, {P1: 0}).partitions.keys() == {P1}
    assert scene.look({P0: 10}, {P0: 500}).stuck == ()


def test_ends_of_what_stands_are_worth_asking() -> None:
    """Librdkafka knows the end of what it fetches; a partition that it fails to fetch has none that moves."""
    scene = Scene()
    for number in range(16):
        scene.look({P0: 10, P1: number}, {P0: 10, P1: number})
    assert scene.log.suspects(scene.now) == {P0}
