"""The checks of the records that processes handled before they were killed (`tests.support.handler_calls`)."""

from __future__ import annotations

from pathlib import Path

from tests.support.handler_calls import Account, Call, CallLog, Kill, Kind, Place, account, calls_of

A, B, C = ((0, offset) for offset in (10, 11, 13))
RECORDS = {7: [A, B, C]}


def call(process: int, place: Place, began_at: int, ended_at: int | None, *, attempt: int = 1, ok: bool = True) -> Call:
    """Return a call for key 7."""
    return Call(
        process=process,
        place=place,
        key=7,
        attempt=attempt,
        began_at=began_at,
        ended_at=ended_at,
        has_succeeded=ok and ended_at is not None,
    )


def killed(at: int, committed: int, *finished: int) -> dict[int, Kill]:
    """Return the kill of process 1 with this committed offset, and with these finished offsets beyond it."""
    return {1: Kill(at=at, committed={0: committed}, finished={0: frozenset(finished)})}


def checked(*calls: Call, kills: dict[int, Kill] | None = None) -> Account:
    """Return the account of RECORDS after these calls and kills."""
    return account(RECORDS, calls, kills or {})


def test_log_of_a_killed_process_has_its_complete_entries(tmp_path: Path) -> None:
    """A call that has not ended has no end, and an incomplete last entry is ignored."""
    path = tmp_path / "log"
    log = CallLog(path)
    log.note(Kind.BEGAN, 1, 0, 7, 10)
    log.note(Kind.FAILED, 1, 0, 7, 10)
    log.note(Kind.BEGAN, 2, 0, 7, 10)
    log.note(Kind.SUCCEEDED, 2, 0, 7, 10)
    log.note(Kind.BEGAN, 1, 0, 7, 11)
    with path.open("ab") as file:
        file.write(b"\x01\x01")
    calls = calls_of(3, path)
    assert [(one.process, one.place, one.attempt, one.has_succeeded, one.ended_at is None) for one in calls] == [
        (3, A, 1, False, False),
        (3, A, 2, True, False),
        (3, B, 1, False, True),
    ]
    assert calls_of(4, tmp_path / "none") == []


def test_account_of_records_in_order_has_no_complaint() -> None:
    """Each record is handled once, one after the other."""
    found = checked(call(1, A, 0, 1), call(1, B, 1, 2), call(2, C, 3, 4))
    assert found == Account(lost=[], disordered=[], repeated=0, running=0, unexplained=[], in_hand=0)


def test_record_without_a_successful_call_is_lost_unless_it_is_a_dead_letter() -> None:
    """A failed attempt does not count as handled."""
    calls = [call(1, A, 0, 1), call(1, B, 1, 2, ok=False), call(1, C, 3, 4)]
    assert account(RECORDS, calls, {}).lost == [B]
    assert account(RECORDS, calls, {}, dead_letters=[B]).lost == []


def test_retry_in_a_process_is_not_a_repetition() -> None:
    """The next attempt follows in the same process."""
    found = checked(call(1, A, 0, 1, ok=False), call(1, A, 1, 2, attempt=2), call(1, B, 3, 4), call(1, C, 4, 5))
    assert (found.repeated, found.disordered) == (0, [])


def test_repeated_record_is_explained_by_the_kill_that_had_it_in_hand() -> None:
    """Process 1 had finished both records, and committed the first one."""
    calls = (call(1, A, 0, 1), call(1, B, 1, None), call(2, B, 5, 6), call(2, C, 6, 7))
    found = checked(*calls, kills=killed(4, 11))
    assert (found.repeated, found.running, found.unexplained, found.in_hand) == (1, 1, [], 1)
    assert checked(*calls, kills=killed(4, 12)).unexplained == [calls[2]]
    assert checked(*calls, kills=killed(5, 11)).unexplained == []
    assert checked(*calls, kills=killed(6, 11)).unexplained == [calls[2]]


def test_repeated_record_of_a_living_process_is_unexplained() -> None:
    """A live process commits before it releases its partition, so the repetition has no explanation."""
    again = call(2, A, 5, 6)
    assert checked(call(1, A, 0, 1), again, call(2, B, 6, 7), call(2, C, 7, 8)).unexplained == [again]


def test_record_that_the_metadata_names_as_finished_must_not_be_repeated() -> None:
    """The next owner skips the finished records beyond the committed offset."""
    others = (call(1, A, 0, None), call(1, B, 1, 2), call(2, A, 5, 6))
    again = call(2, B, 6, 7)
    records = {7: [A], 8: [B]}
    kills = killed(4, 10, 11)
    found = account(records, [*others, again], kills)
    assert (found.repeated, found.unexplained, found.in_hand) == (2, [again], 1)
    assert account(records, others, kills).unexplained == []
    assert account(records, [*others, again], killed(4, 10)).unexplained == []


def test_call_before_an_earlier_record_of_its_key_is_done_is_disordered() -> None:
    """The earlier record was started first or at the same time, but it is not finished yet."""
    early = call(1, B, 0, 1)
    assert checked(early, call(1, A, 2, 3)).disordered[0] == early
    overlapping = call(2, B, 1, 3)
    assert checked(call(1, A, 0, 2), overlapping, call(2, C, 4, 5)).disordered == [overlapping]
    after_failure = call(1, B, 2, 3)
    calls = [call(1, A, 0, 1, ok=False), after_failure]
    assert account(RECORDS, calls, {}, attempts=2).disordered == [after_failure]


def test_call_after_the_last_attempt_of_a_failed_record_is_in_order() -> None:
    """The failed record has become a dead letter by then."""
    calls = [call(1, A, 0, 1, ok=False), call(1, A, 2, 3, attempt=2, ok=False), call(1, B, 4, 5), call(1, C, 5, 6)]
    found = account(RECORDS, calls, {}, dead_letters=[A], attempts=2)
    assert (found.lost, found.disordered) == ([], [])


def test_next_owner_that_handles_records_backwards_is_disordered() -> None:
    """Repeated records must also be handled in the order of their key."""
    calls = [call(1, A, 0, 1), call(1, B, 1, 2)]
    backwards = call(2, A, 6, 7)
    found = checked(*calls, call(2, B, 5, 6), backwards, call(2, C, 8, 9), kills=killed(4, 10))
    assert found.disordered == [backwards]
    assert checked(*calls, call(2, A, 5, 6), call(2, B, 6, 7), call(2, C, 8, 9), kills=killed(4, 10)).disordered == []
