"""The script: what happens to the group, step by step, and what each step must lead to."""

from __future__ import annotations

from collections.abc import Sequence

from consumer_membership.demo.stage import Stage, TooLateError

#: Generous: bounds against hanging. What a step really takes is shown.
_JOIN_S = 30.0
_LEAVE_S = 15.0
_DRAIN_S = 20.0
#: How long after the end of a dead member's session its partitions may take to move.
_TAKEOVER_S = 20.0


def titles(partitions: int) -> Sequence[str]:
    """The steps in words, as the screens show them."""
    return (
        f"one member takes all {partitions} partitions",
        "two more members join",
        "member-2 leaves cleanly (SIGTERM)",
        "member-3 dies (kill -9), member-4 replaces it",
        "the stream stops; drain and leave",
    )


def play(stage: Stage, *, hold_s: float) -> None:
    """Play the script; after each change, `hold_s` seconds to look at it.

    Raises:
        ScenarioError: the group did not come to what a step is to show.
    """
    with stage.step(0) as outcome:
        stage.crew.start()
        stage.stream.start()
        took = stage.until(lambda: stage.is_balanced, "the first member owns everything", _JOIN_S)
        outcome.append(f"STABLE {took:.1f} s after its process started")
        stage.watch(hold_s)
    with stage.step(1) as outcome:
        stage.crew.start()
        stage.crew.start()
        took = stage.until(lambda: stage.is_balanced, "three members share the partitions", _JOIN_S)
        outcome.append(f"balanced {took:.1f} s after their processes started")
        stage.watch(hold_s)
    with stage.step(2) as outcome:
        leaver = stage.crew.members[1]
        stage.crew.leave(leaver)
        took = stage.until(lambda: stage.is_balanced, "the others own what member-2 gave up", _LEAVE_S)
        outcome.append(f"balanced {took:.1f} s after the signal")
        stage.until(lambda: leaver.has_ended, "member-2's process ends", _LEAVE_S)
        stage.watch(hold_s)
    with stage.step(3) as outcome:
        stage.crew.kill(stage.crew.members[2])
        session_s = stage.cluster.session_timeout_s
        stage.tell(f"member-3  killed; the broker waits for the end of its session, {session_s:.0f} s")
        stage.crew.start()
        took = stage.until(lambda: stage.is_balanced, "the others own what member-3 had", session_s + _TAKEOVER_S)
        outcome.append(f"balanced {took:.1f} s after the kill (session: {session_s:.0f} s)")
        stage.watch(hold_s)
    with stage.step(4) as outcome:
        stage.stream.stop()
        outcome.append(_drain(stage))
        for member in stage.active:
            stage.crew.leave(member)
        stage.until(lambda: all(m.has_ended for m in stage.crew.members), "all members' processes end", _LEAVE_S)


def _drain(stage: Stage) -> str:
    produced = stage.stream.produced
    try:
        took = stage.until(lambda: stage.ledger.seen >= produced, "every record is seen", _DRAIN_S)
    except TooLateError as late:
        # The check says which records are missing.
        return str(late)
    return f"drained {took:.1f} s after the last record"
