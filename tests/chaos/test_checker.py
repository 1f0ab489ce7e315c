"""Each rule of the checker: a correct history passes, and a history that breaks one rule is reported for that rule."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.chaos import history as h
from tests.chaos.checker import Rule, check
from tests.chaos.history import Entry, Epoch, Event, Offset, Partition

P = Partition("orders", 0)
S = 1_000_000_000


def at(seconds: float, process: str, event: Event) -> Entry:
    """An entry; `begun_ns` of events without one is their own time."""
    at_ns = round(seconds * S)
    if isinstance(event, h.Received | h.Statement) and event.begun_ns < 0:
        event = replace(event, begun_ns=at_ns)
    return Entry(at_ns=at_ns, process=process, event=event)


def started(seconds: float, process: str, **words: object) -> Entry:
    """A member begins."""
    return at(seconds, process, h.Started(group="g", kind="poll", pid=1, **words))  # type: ignore[arg-type]  # fields


def produced(*offsets: int, seconds: float = 0.0) -> list[Entry]:
    """Acknowledged records, whose numbers are their offsets."""
    return [at(seconds, "producer", h.Produced(partition=P, offset=o, number=o, key=f"k{o % 2}")) for o in offsets]


def assigned(seconds: float, process: str, epoch: int = 1) -> Entry:
    """The partition is assigned."""
    return at(seconds, process, h.Assigned(member_id=process, epochs=(Epoch("orders", 0, epoch),)))


def received(seconds: float, process: str, *offsets: int, lease_s: float | None = None) -> list[Entry]:
    """Records are received at one moment."""
    until = None if lease_s is None else round(lease_s * S)
    return [
        at(
            seconds,
            process,
            h.Received(partition=P, offset=o, number=o, begun_ns=-1, lease_until_ns=until, key=f"k{o % 2}"),
        )
        for o in offsets
    ]


def committed(seconds: float, process: str, offset: int, **answer: object) -> list[Entry]:
    """A commit and its response, 0.1 s later."""
    return [
        at(seconds, process, h.CommitBegun(commit=offset, offsets=(Offset("orders", 0, offset),))),
        at(seconds + 0.1, process, h.CommitEnded(commit=offset, **answer)),  # type: ignore[arg-type]  # its fields
    ]


def revoked(seconds: float, process: str) -> Entry:
    """The partition is given up."""
    return at(seconds, process, h.Revoked(partitions=(P,)))


def lost(seconds: float, process: str) -> Entry:
    """The partition is lost."""
    return at(seconds, process, h.Lost(partitions=(P,)))


def statement(
    seconds: float,
    process: str,
    epoch: int | None = 1,
    *,
    state: str = "STABLE",
    verdict: str = "consuming",
    lease_s: float | None = None,
    would_restart_help: bool = False,
) -> Entry:
    """A sample of `membership()` and `health()`; `epoch` is None if it owns nothing."""
    return at(
        seconds,
        process,
        h.Statement(
            begun_ns=-1,
            state=state,
            member_id=process,
            member_epoch=epoch or 0,
            owned=() if epoch is None else (Epoch("orders", 0, epoch),),
            lease_until_ns=None if lease_s is None else round(lease_s * S),
            verdict=verdict,
            would_restart_help=would_restart_help,
        ),
    )


SETTLED = at(100.0, "harness", h.Settled())


def broken(*entries: Entry | list[Entry]) -> set[Rule]:
    """The rules that these entries break, in the order of their times."""
    flat = [one for entry in entries for one in (entry if isinstance(entry, list) else [entry])]
    return set(check(sorted(flat, key=lambda entry: entry.at_ns)).rules)


#: Process a gives the partition to process b in order.
A_OWNS = [started(0, "a"), *produced(0, 1, 2, 3), assigned(1, "a"), *received(2, "a", 0, 1)]
A_GIVES_UP = [*committed(3, "a", 2), revoked(4, "a")]
B_OWNS = [started(0, "b"), assigned(5, "b", 2), *received(6, "b", 2, 3)]


def test_hand_over_in_order_breaks_no_rule() -> None:
    """A member that commits, revokes, and is followed by another one is correct; the figures count it."""
    entries = sorted([*A_OWNS, *A_GIVES_UP, *B_OWNS, *committed(7, "b", 4), SETTLED], key=lambda entry: entry.at_ns)
    verdict = check(entries)
    assert verdict.violations == ()
    figures = verdict.figures
    assert (figures.records, figures.received, figures.repeated, figures.hand_overs) == (4, 4, 0, 1)
    assert figures.worst_stall_s == 4.0
    assert verdict.client_of == {"a": "consumer-membership", "b": "consumer-membership"}


# ---- lost and skipped records ----


def test_record_that_no_member_received_is_lost() -> None:
    """Each acknowledged record has to be received by each group."""
    assert broken(A_OWNS, SETTLED) == {Rule.LOST}


def test_records_of_a_recreated_topic_need_not_arrive() -> None:
    """Records of a deleted topic need not be received."""
    recreated = at(3, "harness", h.Recreated(topic="orders"))
    assert broken(A_OWNS, recreated, produced(0, seconds=4), received(5, "a", 0), SETTLED) == set()


def test_history_that_did_not_settle_is_reported() -> None:
    """A round without an end is no proof that records were only late."""
    assert broken(A_OWNS) == {Rule.NOT_SETTLED}


def test_owner_that_goes_over_a_record_skips_it() -> None:
    """A record is skipped within an ownership even if another member receives it."""
    skips = [started(0, "a"), *produced(0, 1, 2), assigned(1, "a"), *received(2, "a", 0, 2), lost(3, "a")]
    rest = [started(0, "b"), assigned(4, "b", 2), *received(5, "b", 0, 1, 2)]
    assert broken(skips, rest, SETTLED) == {Rule.SKIPPED}


def test_offsets_without_a_record_are_not_skipped() -> None:
    """The markers of transactions have offsets, but are no records."""
    assert broken(started(0, "a"), produced(0, 2), assigned(1, "a"), received(2, "a", 0, 2), SETTLED) == set()


def test_owner_that_begins_after_uncommitted_records_skips_them() -> None:
    """The next owner begins at the committed offset, not after the received records."""
    assert broken(A_OWNS, lost(4, "a"), B_OWNS, SETTLED) == {Rule.SKIPPED}


@pytest.mark.parametrize("answer", [{"error": "NOT_COORDINATOR"}, {"is_unknown": True}, {"error": "REQUEST_TIMED_OUT"}])
def test_owner_may_begin_at_a_commit_that_was_not_acknowledged(answer: dict[str, object]) -> None:
    """A commit may have been processed although its response was lost: the next owner may begin at it, or before."""
    gives_up = [*committed(3, "a", 2, **answer), lost(4, "a")]
    assert broken(A_OWNS, gives_up, B_OWNS, SETTLED) == set()
    again = [started(0, "b"), assigned(5, "b", 2), *received(6, "b", 0, 1, 2, 3)]
    assert broken(A_OWNS, gives_up, again, SETTLED) == set()


# ---- repeated records ----


def test_uncommitted_records_may_be_repeated() -> None:
    """The figures count the repeats, and no rule is broken."""
    again = [started(0, "b"), assigned(5, "b", 2), *received(6, "b", 0, 1, 2, 3)]
    entries = sorted([*A_OWNS, lost(4, "a"), *again, SETTLED], key=lambda entry: entry.at_ns)
    assert (check(entries).violations, check(entries).figures.repeated) == ((), 2)


def test_committed_record_must_not_be_repeated() -> None:
    """An acknowledged commit before the assignment protects the next owner from its records."""
    again = [started(0, "b"), assigned(5, "b", 2), *received(6, "b", 1, 2, 3)]
    assert broken(A_OWNS, A_GIVES_UP, again, SETTLED) == {Rule.REPEATED}


def test_records_may_be_repeated_after_their_offsets_were_deleted() -> None:
    """A reset of the offsets makes earlier commits void."""
    reset = at(4.5, "harness", h.OffsetsReset(group="g", partitions=(P,)))
    again = [started(0, "b"), assigned(5, "b", 1), *received(6, "b", 0, 1, 2, 3), *committed(7, "b", 1)]
    assert broken(A_OWNS, A_GIVES_UP, reset, again, SETTLED) == set()


def test_record_twice_in_one_ownership_is_a_repeat() -> None:
    """Within one ownership no record is received twice."""
    assert broken(A_OWNS, received(3, "a", 1, 2, 3), SETTLED) == {Rule.REPEATED}


def test_automatic_commit_of_a_revocation_prevents_repeats_unless_there_are_faults() -> None:
    """A member that commits automatically commits before it gives its partitions up."""
    first = [started(0, "a", commits_automatically=True), *produced(0, 1), assigned(1, "a"), *received(2, "a", 0)]
    again = [started(0, "b"), assigned(5, "b", 2), *received(6, "b", 0, 1)]
    fault = at(3, "harness", h.FaultBegan(fault="stop", target="a"))
    assert broken(first, revoked(4, "a"), again, SETTLED) == {Rule.REPEATED}
    assert broken(first, lost(4, "a"), again, SETTLED) == set()
    assert broken(first, fault, revoked(4, "a"), again, SETTLED) == set()


# ---- order ----


def test_records_in_another_order_are_reported() -> None:
    """Within one ownership offsets only increase."""
    assert broken(A_OWNS, received(3, "a", 2, 3), received(4, "a", 1), SETTLED) == {Rule.ORDER}


def finished(seconds: float, process: str, *offsets: int) -> list[Entry]:
    """Handlers returned."""
    return [at(seconds, process, h.Finished(partition=P, offset=o)) for o in offsets]


PROCESSOR = [started(0, "a", is_processor=True, commits_automatically=True), *produced(0, 1, 2, 3), assigned(1, "a")]


def test_processor_may_handle_keys_side_by_side_and_retry() -> None:
    """Records of different keys may overtake each other, and a failed handler is called again."""
    assert (
        broken(PROCESSOR, received(2, "a", 1, 0, 0), finished(3, "a", 0, 1), received(4, "a", 3, 2), SETTLED) == set()
    )


def test_processor_must_keep_the_order_of_a_key() -> None:
    """Offsets 0 and 2 have one key."""
    assert broken(PROCESSOR, received(2, "a", 2, 0, 1, 3), SETTLED) == {Rule.ORDER}


def test_processor_must_not_repeat_a_finished_record() -> None:
    """A record whose handler returned is not handled again by this owner."""
    repeats = [*received(2, "a", 0), *finished(3, "a", 0), *received(4, "a", 0, 1, 2, 3)]
    assert broken(PROCESSOR, repeats, SETTLED) == {Rule.REPEATED}


def test_next_processor_may_skip_finished_records() -> None:
    """The metadata of a commit has the finished records behind its offset."""
    first = [*received(2, "a", 0, 1), *finished(3, "a", 1), lost(4, "a")]
    second = [started(0, "b", is_processor=True), assigned(5, "b", 2), *received(6, "b", 0, 2, 3)]
    assert broken(PROCESSOR, first, second, SETTLED) == set()


def test_processor_must_not_commit_beyond_an_unfinished_record() -> None:
    """A received record is not a finished record."""
    entries = [*received(2, "a", 0, 1, 2, 3), *finished(3, "a", 1, 2, 3), *committed(4, "a", 4)]
    assert broken(PROCESSOR, entries, SETTLED) == {Rule.COMMIT_UNREAD}


def test_processor_may_commit_after_records_of_an_owner_that_commits_automatically() -> None:
    """Handlers of another program do not matter, and some of its commits are not in the history."""
    first = [started(0, "a", commits_automatically=True), *produced(0, 1, 2, 3), assigned(1, "a")]
    first += [*received(2, "a", 0, 1), revoked(3, "a")]
    second = [started(0, "b", is_processor=True, commits_automatically=True), assigned(5, "b", 2)]
    handles = [*received(6, "b", 2, 3), *finished(7, "b", 3)]
    assert broken(first, second, handles, finished(7, "b", 2), committed(8, "b", 4), SETTLED) == set()
    assert broken(first, second, handles, committed(8, "b", 4), SETTLED) == {Rule.COMMIT_UNREAD}


# ---- ownership ----


def test_record_of_a_revoked_partition_is_reported() -> None:
    """No record is received after on_revoke, or before on_assign."""
    assert broken(A_OWNS, revoked(3, "a"), received(4, "a", 2, 3), SETTLED) == {Rule.NOT_OWNED}


def test_client_without_callbacks_may_receive_without_an_assignment() -> None:
    """Rules about facts that a client does not write are not applied."""
    assert broken(started(0, "a", has_callbacks=False), produced(0), received(2, "a", 0), SETTLED) == set()


def test_partition_must_not_be_assigned_at_an_epoch_that_is_not_newer() -> None:
    """The epoch grows with each change of owner."""
    assert broken(A_OWNS, A_GIVES_UP, started(0, "b"), assigned(5, "b", 1), received(6, "b", 2, 3), SETTLED) == {
        Rule.OWNERS_BY_EPOCH
    }


def test_replacement_with_the_instance_id_has_the_same_epoch() -> None:
    """A restarted static member continues at its epoch."""
    first = [started(0, "a.1", instance_id="a"), *produced(0, 1), assigned(1, "a.1"), *received(2, "a.1", 0)]
    second = [started(3, "a.2", instance_id="a"), assigned(4, "a.2"), *received(5, "a.2", 0, 1)]
    assert broken(first, second, SETTLED) == set()


LEASED = [
    started(0, "a", has_leases=True),
    *produced(0, 1, 2, 3),
    assigned(1, "a"),
    *received(2, "a", 0, 1, lease_s=8.0),
]


def test_partition_must_not_be_assigned_while_the_lease_of_its_owner_lasts() -> None:
    """The coordinator, or the leave of another member, must not free a partition that is in use."""
    takes = [started(0, "b"), assigned(5, "b", 2), *received(6, "b", 0, 1, 2, 3)]
    assert broken(LEASED, takes, statement(5.5, "a", lease_s=8.0), SETTLED) == {Rule.OWNERS_BY_EPOCH}
    assert broken(LEASED, takes, received(5.5, "a", 2), SETTLED) == {Rule.OWNERS_BY_EPOCH}
    revoking = [statement(5.5, "a", None, state="RECONCILE"), revoked(6, "a")]
    assert broken(LEASED, takes, revoking, SETTLED) == {Rule.OWNERS_BY_EPOCH}


def test_owner_that_left_may_be_replaced_before_its_callback_runs() -> None:
    """A member that does not poll leaves its group, and calls on_lost when it polls again."""
    takes = [started(0, "b"), assigned(5, "b", 2), *received(6, "b", 0, 1, 2, 3)]
    left = statement(5.5, "a", None, state="STALE", verdict="not_polled")
    assert broken(LEASED, takes, left, lost(9, "a"), SETTLED) == set()
    assert broken(LEASED, takes, lost(9, "a"), SETTLED) == set()


@pytest.mark.parametrize("event", [h.Evicted(member="a"), h.Killed(member="a")])
def test_removed_or_killed_owner_may_be_replaced_during_its_lease(event: Event) -> None:
    """An administrator may break a lease, and the guardian of a dead process may leave for it."""
    takes = [started(0, "b"), assigned(5, "b", 2), *received(6, "b", 0, 1, 2, 3)]
    assert broken(LEASED, at(4, "harness", event), takes, SETTLED) == set()


def test_process_may_be_removed_before_it_writes_its_start() -> None:
    """The harness removes all processes that live, also those that are starting."""
    takes = [started(0, "b"), assigned(5, "b", 2), *received(6, "b", 0, 1, 2, 3)]
    removed = at(-1, "harness", h.Evicted(member="a"))
    assert broken(removed, LEASED, takes, statement(5.5, "a", lease_s=8.0), SETTLED) == set()


def test_attempts_of_tasks_are_killed_and_removed_with_their_driver() -> None:
    """The processes of Spark tasks are named after the driver, and no other process is."""
    owns = [started(0, "a-0-7", has_leases=True), assigned(1, "a-0-7"), *received(2, "a-0-7", 0, 1, lease_s=8.0)]
    takes = [started(0, "b"), assigned(5, "b", 2), *received(6, "b", 0, 1, 2, 3)]
    uses = received(5.5, "a-0-7", 2)
    removed = at(4, "harness", h.Evicted(member="a"))
    other = at(4, "harness", h.Evicted(member="a-0"))
    assert broken(produced(0, 1, 2, 3), owns, removed, takes, uses, SETTLED) == set()
    assert broken(produced(0, 1, 2, 3), owns, takes, uses, SETTLED) == {Rule.OWNERS_BY_EPOCH}
    assert broken(produced(0, 1, 2, 3), owns, other, takes, uses, SETTLED) == set()


def test_lease_of_more_than_a_session_is_reported() -> None:
    """It is renewed by heartbeats that were sent before."""
    begin = [*produced(0), started(0, "a", has_leases=True, session_s=3.0), assigned(1, "a")]
    assert broken(begin, received(2, "a", 0, lease_s=4.9), SETTLED) == set()
    assert broken(begin, received(2, "a", 0, lease_s=5.1), SETTLED) == {Rule.STATEMENT}
    sample = statement(2, "a", lease_s=5.1)
    assert broken(begin, received(1.5, "a", 0), sample, SETTLED) == {Rule.STATEMENT}


def test_record_after_the_lease_is_reported() -> None:
    """A call that begins after the end of the lease returns no record."""
    assert broken(LEASED, received(9, "a", 2, 3), SETTLED) == {Rule.OWNERS_BY_LEASE}
    renewed_during_the_call = received(9, "a", 2, 3, lease_s=10.0)
    assert broken(LEASED, renewed_during_the_call, SETTLED) == set()


def test_record_after_a_renewed_lease_is_correct() -> None:
    """A renewal moves the end."""
    renewed = at(7, "a", h.LeaseRenewed(until_ns=10 * S))
    assert broken(LEASED, renewed, received(9, "a", 2, 3), SETTLED) == set()


def test_record_after_the_first_one_of_a_newer_owner_is_reported_with_leases_only() -> None:
    """Without leases the overlap is a figure."""
    takes = [started(0, "b"), assigned(8.5, "b", 2), *received(8.6, "b", 0, 1, 2, 3)]
    without = [started(0, "a"), *produced(0, 1, 2, 3), assigned(1, "a"), *received(2, "a", 0, 1)]
    entries = sorted([*without, *takes, *received(9.6, "a", 2, 3), SETTLED], key=lambda entry: entry.at_ns)
    assert (check(entries).violations, check(entries).figures.overlap_s) == ((), 1.0)
    assert broken(LEASED, takes, received(9.6, "a", 2, 3, lease_s=20.0), SETTLED) == {Rule.OWNERS_BY_LEASE}


# ---- commits ----


def test_commit_of_unread_records_is_reported() -> None:
    """A commit is not ahead of the records that the members received."""
    assert broken(A_OWNS, committed(3, "a", 4), received(4, "a", 2, 3), SETTLED) == {Rule.COMMIT_UNREAD}


def test_commit_after_the_revocation_is_reported() -> None:
    """A late commit of a partition that was given up has to be refused."""
    assert broken(A_OWNS, revoked(4, "a"), committed(4.2, "a", 2), B_OWNS, SETTLED) == {Rule.COMMIT_NOT_OWNED}
    refused = committed(4.2, "a", 2, error="STALE_MEMBER_EPOCH")
    assert broken(A_OWNS, revoked(4, "a"), refused, B_OWNS, SETTLED) == set()


def test_automatic_commit_may_be_reported_after_the_revocation() -> None:
    """`on_commit` runs after the commit, when the partition may have been given up."""
    first = [started(0, "a", commits_automatically=True), *produced(0, 1, 2, 3), assigned(1, "a")]
    entries = [*first, *received(2, "a", 0, 1), revoked(4, "a"), *committed(4.2, "a", 2)]
    assert broken(entries, B_OWNS, committed(7, "b", 4), committed(8, "a", 1), SETTLED) == set()


def test_commit_that_goes_back_is_reported() -> None:
    """A lower offset after an acknowledged higher one would repeat records."""
    assert broken(A_OWNS, committed(3, "a", 2), committed(4, "a", 1), received(5, "a", 2, 3), SETTLED) == {
        Rule.OFFSETS_BACK
    }


def test_observed_offsets_that_go_back_are_reported() -> None:
    """An administrator sees committed offsets only increase, except after a reset."""
    seen = [
        at(s, "harness", h.OffsetsObserved(group="g", offsets=(Offset("orders", 0, o),))) for s, o in ((8, 4), (9, 3))
    ]
    rest = received(3, "a", 2, 3)
    assert broken(A_OWNS, rest, seen, SETTLED) == {Rule.OFFSETS_BACK}
    reset = at(8.5, "harness", h.OffsetsReset(group="g", partitions=(P,)))
    assert broken(A_OWNS, rest, seen, reset, SETTLED) == set()


# ---- transactions ----


@pytest.mark.parametrize(("times", "rules"), [(0, {Rule.TRANSACTIONS}), (1, set()), (2, {Rule.TRANSACTIONS})])
def test_each_record_has_one_result_in_transactions(times: int, rules: set[Rule]) -> None:
    """A missing result and a second one break the promise."""
    member = [started(0, "a", is_transactional=True), *produced(0), assigned(1, "a"), *received(2, "a", 0)]
    outputs = [at(3, "harness", h.Output(group="g", partition=P, number=0))] * times
    assert broken(member, outputs, SETTLED) == rules


def test_transactional_processor_may_handle_a_finished_record_again() -> None:
    """The result of a finished record is gone if its transaction was aborted."""
    member = [started(0, "a", is_transactional=True, is_processor=True), *produced(0), assigned(1, "a")]
    again = [*received(2, "a", 0), *finished(3, "a", 0), *received(4, "a", 0), *finished(5, "a", 0)]
    output = at(6, "harness", h.Output(group="g", partition=P, number=0))
    assert broken(member, again, output, SETTLED) == set()


def test_records_may_have_two_results_after_their_offsets_were_deleted() -> None:
    """The group processes them again, because it does not know that it has processed them."""
    member = [started(0, "a", is_transactional=True), *produced(0), assigned(1, "a"), *received(2, "a", 0)]
    reset = at(3, "harness", h.OffsetsReset(group="g", partitions=(P,)))
    outputs = [at(4, "harness", h.Output(group="g", partition=P, number=0))] * 2
    assert broken(member, outputs, reset, SETTLED) == set()
    assert broken(member, reset, SETTLED) == {Rule.TRANSACTIONS}


# ---- manual assignment ----

MANUAL = [started(0, "a.1", is_manual=True), *produced(0, 1, 2, 3), assigned(1, "a.1", -1)]


def test_manual_member_reads_each_record_once() -> None:
    """A restart begins at the committed offset, and other members of the group do not matter."""
    first = [*received(2, "a.1", 0, 1), *committed(3, "a.1", 2), at(4, "harness", h.Killed(member="a.1"))]
    second = [started(5, "a.2", is_manual=True), assigned(6, "a.2", -1), *received(7, "a.2", 2, 3)]
    assert broken(MANUAL, first, second, SETTLED) == set()


def test_manual_member_must_not_lose_skip_or_repeat_records() -> None:
    """The rules of records hold without a group."""
    first = [*received(2, "a.1", 0, 1), *committed(3, "a.1", 2)]
    begins = [started(5, "a.2", is_manual=True), assigned(6, "a.2", -1)]
    assert broken(MANUAL, first, SETTLED) == {Rule.LOST}
    assert broken(MANUAL, received(2, "a.1", 0, 3), received(4, "a.1", 1, 2), SETTLED) == {Rule.SKIPPED, Rule.ORDER}
    assert broken(MANUAL, first, begins, received(7, "a.2", 1, 2, 3), SETTLED) == {Rule.REPEATED}


# ---- statements ----


def test_statements_of_a_hand_over_in_order_are_true() -> None:
    """A member states what its callbacks named, in STABLE; other states are transitions."""
    stated = [statement(2.5, "a"), statement(3.5, "a", state="RECONCILE"), statement(4.5, "a", None, verdict="idle")]
    assert broken(A_OWNS, stated, A_GIVES_UP, B_OWNS, statement(6.5, "b", 2), SETTLED) == set()


def test_stable_member_that_owns_other_partitions_than_its_callbacks_named_is_reported() -> None:
    """The view and the callbacks have one ownership."""
    assert broken(A_OWNS, A_GIVES_UP, B_OWNS, statement(4.5, "a"), SETTLED) == {Rule.STATEMENT}
    assert broken(A_OWNS, A_GIVES_UP, B_OWNS, statement(2.5, "a", None), SETTLED) == {Rule.STATEMENT}


def test_claim_with_a_lease_while_a_newer_owner_receives_is_reported() -> None:
    """`membership()` must not claim a partition for certain that another member works on."""
    takes = [started(0, "b"), assigned(5, "b", 2), *received(6, "b", 2, 3)]
    cut_off = [*A_OWNS, *committed(3, "a", 2)]
    assert broken(cut_off, takes, statement(7, "a", lease_s=6.5), SETTLED) == {Rule.STATEMENT}
    assert broken(cut_off, takes, statement(7, "a", lease_s=4.5), SETTLED) == set()
    assert broken(cut_off, takes, statement(7, "a"), SETTLED) == set()


def test_restart_that_would_help_a_member_at_work_is_reported() -> None:
    """A liveness probe must not end a process that receives records."""
    restarts = statement(2.5, "a", would_restart_help=True, verdict="stuck")
    assert broken(A_OWNS, restarts, received(3, "a", 2, 3), SETTLED) == {Rule.STATEMENT}
    assert broken(A_OWNS, restarts, received(9, "a", 2, 3), SETTLED) == set()


def test_consuming_without_progress_is_reported() -> None:
    """`consuming` and `idle` are false if unread records do not arrive for long."""
    for verdict, rules in (("consuming", {Rule.STATEMENT}), ("idle", {Rule.STATEMENT}), ("stuck", set())):
        stalled = statement(40, "a", verdict=verdict)
        assert broken(A_OWNS, stalled, received(50, "a", 2, 3), SETTLED) == rules


def test_member_that_is_not_in_a_steady_state_at_the_end_is_reported() -> None:
    """After the faults each live member is STABLE and consumes."""
    done = [*A_OWNS, *received(3, "a", 2, 3)]
    assert broken(done, statement(99, "a"), SETTLED) == set()
    assert broken(done, statement(99, "a", state="JOINING", verdict="joining"), SETTLED) == {Rule.NOT_SETTLED}
    assert broken(done, statement(99, "a", verdict="stuck"), SETTLED) == {Rule.NOT_SETTLED}
    assert broken(done, statement(50, "a", verdict="stuck"), SETTLED) == set()


def test_unknown_writer_is_an_error() -> None:
    """A member that did not write its start cannot be judged."""
    with pytest.raises(ValueError, match="before it has started"):
        check(received(1, "a", 0))
