"""The rules of the checker: a correct history breaks no rule, and a history that breaks one rule is reported for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.chaos import history as h
from tests.chaos.checker import Rule, check
from tests.chaos.history import Entry, Epoch, Event, Offset, Partition

P = Partition("orders", 0)
S = 1_000_000_000


def at(seconds: float, process: str, event: Event) -> Entry:
    """Return an entry. If `begun_ns` of the event is negative, it is replaced by the time of the entry."""
    at_ns = round(seconds * S)
    if isinstance(event, h.Received | h.Statement) and event.begun_ns < 0:
        event = replace(event, begun_ns=at_ns)
    return Entry(at_ns=at_ns, process=process, event=event)


def started(seconds: float, process: str, **fields: object) -> Entry:
    """Return the event of a member that begins."""
    return at(seconds, process, h.Started(group="g", kind="poll", pid=1, **fields))  # type: ignore[arg-type]  # fields


def produced(*offsets: int, seconds: float = 0.0) -> list[Entry]:
    """Return the events of acknowledged records; the number of each record is its offset."""
    return [at(seconds, "producer", h.Produced(partition=P, offset=o, number=o, key=f"k{o % 2}")) for o in offsets]


def assigned(seconds: float, process: str, epoch: int = 1) -> Entry:
    """Return the event of the partition's assignment."""
    return at(seconds, process, h.Assigned(member_id=process, epochs=(Epoch("orders", 0, epoch),)))


def received(seconds: float, process: str, *offsets: int, lease_s: float | None = None) -> list[Entry]:
    """Return the events of a member that receives these records at the same time."""
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
    """Return the events of a commit and of its response, 0.1 s later."""
    return [
        at(seconds, process, h.CommitBegun(commit=offset, offsets=(Offset("orders", 0, offset),))),
        at(seconds + 0.1, process, h.CommitEnded(commit=offset, **answer)),  # type: ignore[arg-type]  # its fields
    ]


def revoked(seconds: float, process: str) -> Entry:
    """Return the event of the partition's revocation."""
    return at(seconds, process, h.Revoked(partitions=(P,)))


def lost(seconds: float, process: str) -> Entry:
    """Return the event of the partition's loss."""
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
    """Return a sample of `membership()` and `health()`; without an `epoch`, the member owns no partition."""
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
    """Return the rules that these entries, sorted by time, break."""
    flat = [one for entry in entries for one in (entry if isinstance(entry, list) else [entry])]
    return set(check(sorted(flat, key=lambda entry: entry.at_ns)).rules)


#: Process a commits and releases the partition, and process b owns it afterwards.
A_OWNS = [started(0, "a"), *produced(0, 1, 2, 3), assigned(1, "a"), *received(2, "a", 0, 1)]
A_GIVES_UP = [*committed(3, "a", 2), revoked(4, "a")]
B_OWNS = [started(0, "b"), assigned(5, "b", 2), *received(6, "b", 2, 3)]


def test_checker_reports_no_rule_for_a_change_of_owner_after_commit_and_revocation() -> None:
    """A member may commit and release a partition, which another member may then own; the figures count this."""
    entries = sorted([*A_OWNS, *A_GIVES_UP, *B_OWNS, *committed(7, "b", 4), SETTLED], key=lambda entry: entry.at_ns)
    verdict = check(entries)
    assert verdict.violations == ()
    figures = verdict.figures
    assert (figures.records, figures.received, figures.repeated, figures.hand_overs) == (4, 4, 0, 1)
    assert figures.worst_stall_s == 4.0
    assert verdict.client_of == {"a": "consumer-membership", "b": "consumer-membership"}


# ---- lost and skipped records ----


def test_record_that_no_member_received_is_lost() -> None:
    """Each group must receive each acknowledged record."""
    assert broken(A_OWNS, SETTLED) == {Rule.LOST}


def test_records_of_a_deleted_topic_need_not_be_received() -> None:
    """Records that were produced before a topic was deleted and created again are not lost."""
    recreated = at(3, "harness", h.Recreated(topic="orders"))
    assert broken(A_OWNS, recreated, produced(0, seconds=4), received(5, "a", 0), SETTLED) == set()


def test_history_that_did_not_settle_is_reported() -> None:
    """A history without `Settled` is a failure, because missing records may be late or lost."""
    assert broken(A_OWNS) == {Rule.NOT_SETTLED}


def test_owner_that_receives_a_later_record_first_skips_the_earlier_one() -> None:
    """An owner must not skip a record, even if another member receives the record."""
    skips = [started(0, "a"), *produced(0, 1, 2), assigned(1, "a"), *received(2, "a", 0, 2), lost(3, "a")]
    rest = [started(0, "b"), assigned(4, "b", 2), *received(5, "b", 0, 1, 2)]
    assert broken(skips, rest, SETTLED) == {Rule.SKIPPED}


def test_offsets_without_a_record_are_not_skipped() -> None:
    """Transaction markers have offsets but are not records, so an owner may skip their offsets."""
    assert broken(started(0, "a"), produced(0, 2), assigned(1, "a"), received(2, "a", 0, 2), SETTLED) == set()


def test_owner_that_begins_after_uncommitted_records_skips_them() -> None:
    """The next owner must begin at the committed offset, not after the last received record."""
    assert broken(A_OWNS, lost(4, "a"), B_OWNS, SETTLED) == {Rule.SKIPPED}


@pytest.mark.parametrize("answer", [{"error": "NOT_COORDINATOR"}, {"is_unknown": True}, {"error": "REQUEST_TIMED_OUT"}])
def test_owner_may_begin_at_a_commit_that_was_not_acknowledged(answer: dict[str, object]) -> None:
    """If the response to a commit is lost, the next owner may begin at its offset or at an earlier one."""
    gives_up = [*committed(3, "a", 2, **answer), lost(4, "a")]
    assert broken(A_OWNS, gives_up, B_OWNS, SETTLED) == set()
    again = [started(0, "b"), assigned(5, "b", 2), *received(6, "b", 0, 1, 2, 3)]
    assert broken(A_OWNS, gives_up, again, SETTLED) == set()


# ---- repeated records ----


def test_uncommitted_records_may_be_repeated() -> None:
    """The figures count repeats of uncommitted records, which break no rule."""
    again = [started(0, "b"), assigned(5, "b", 2), *received(6, "b", 0, 1, 2, 3)]
    entries = sorted([*A_OWNS, lost(4, "a"), *again, SETTLED], key=lambda entry: entry.at_ns)
    assert (check(entries).violations, check(entries).figures.repeated) == ((), 2)


def test_committed_record_must_not_be_repeated() -> None:
    """If a commit is acknowledged before the assignment, the next owner must not receive the committed records."""
    again = [started(0, "b"), assigned(5, "b", 2), *received(6, "b", 1, 2, 3)]
    assert broken(A_OWNS, A_GIVES_UP, again, SETTLED) == {Rule.REPEATED}


def test_records_may_be_repeated_after_their_offsets_were_deleted() -> None:
    """After the offsets are deleted, earlier commits are void."""
    reset = at(4.5, "harness", h.OffsetsReset(group="g", partitions=(P,)))
    again = [started(0, "b"), assigned(5, "b", 1), *received(6, "b", 0, 1, 2, 3), *committed(7, "b", 1)]
    assert broken(A_OWNS, A_GIVES_UP, reset, again, SETTLED) == set()


def test_record_twice_in_one_ownership_is_a_repeat() -> None:
    """During one ownership, a record must not be received twice."""
    assert broken(A_OWNS, received(3, "a", 1, 2, 3), SETTLED) == {Rule.REPEATED}


def test_records_must_not_be_repeated_after_an_automatic_commit_in_a_round_without_faults() -> None:
    """A member that commits automatically must commit before it releases its partitions."""
    first = [started(0, "a", commits_automatically=True), *produced(0, 1), assigned(1, "a"), *received(2, "a", 0)]
    again = [started(0, "b"), assigned(5, "b", 2), *received(6, "b", 0, 1)]
    fault = at(3, "harness", h.FaultBegan(fault="stop", target="a"))
    assert broken(first, revoked(4, "a"), again, SETTLED) == {Rule.REPEATED}
    assert broken(first, lost(4, "a"), again, SETTLED) == set()
    assert broken(first, fault, revoked(4, "a"), again, SETTLED) == set()


# ---- order ----


def test_records_in_another_order_are_reported() -> None:
    """During one ownership, offsets of received records must increase."""
    assert broken(A_OWNS, received(3, "a", 2, 3), received(4, "a", 1), SETTLED) == {Rule.ORDER}


def finished(seconds: float, process: str, *offsets: int) -> list[Entry]:
    """Return the events of handlers that return."""
    return [at(seconds, process, h.Finished(partition=P, offset=o)) for o in offsets]


PROCESSOR = [started(0, "a", is_processor=True, commits_automatically=True), *produced(0, 1, 2, 3), assigned(1, "a")]


def test_processor_may_handle_keys_concurrently_and_retry() -> None:
    """Records of different keys may be handled in any order, and a failed handler may be called again."""
    assert (
        broken(PROCESSOR, received(2, "a", 1, 0, 0), finished(3, "a", 0, 1), received(4, "a", 3, 2), SETTLED) == set()
    )


def test_processor_must_keep_the_order_of_a_key() -> None:
    """Offsets 0 and 2 have the same key, so 2 must not be handled before 0."""
    assert broken(PROCESSOR, received(2, "a", 2, 0, 1, 3), SETTLED) == {Rule.ORDER}


def test_processor_must_not_repeat_a_finished_record() -> None:
    """An owner must not handle a record again after its handler has returned."""
    repeats = [*received(2, "a", 0), *finished(3, "a", 0), *received(4, "a", 0, 1, 2, 3)]
    assert broken(PROCESSOR, repeats, SETTLED) == {Rule.REPEATED}


def test_next_processor_may_skip_finished_records() -> None:
    """The next processor may skip finished records, because the metadata of a commit has those beyond its offset."""
    first = [*received(2, "a", 0, 1), *finished(3, "a", 1), lost(4, "a")]
    second = [started(0, "b", is_processor=True), assigned(5, "b", 2), *received(6, "b", 0, 2, 3)]
    assert broken(PROCESSOR, first, second, SETTLED) == set()


def test_processor_must_not_commit_beyond_an_unfinished_record() -> None:
    """A processor must not commit a record that it has received but not finished."""
    entries = [*received(2, "a", 0, 1, 2, 3), *finished(3, "a", 1, 2, 3), *committed(4, "a", 4)]
    assert broken(PROCESSOR, entries, SETTLED) == {Rule.COMMIT_UNREAD}


def test_processor_may_commit_after_records_of_an_owner_that_commits_automatically() -> None:
    """A processor may commit after the records of an earlier consumer, whose commit may be missing in the history."""
    first = [started(0, "a", commits_automatically=True), *produced(0, 1, 2, 3), assigned(1, "a")]
    first += [*received(2, "a", 0, 1), revoked(3, "a")]
    second = [started(0, "b", is_processor=True, commits_automatically=True), assigned(5, "b", 2)]
    handles = [*received(6, "b", 2, 3), *finished(7, "b", 3)]
    assert broken(first, second, handles, finished(7, "b", 2), committed(8, "b", 4), SETTLED) == set()
    assert broken(first, second, handles, committed(8, "b", 4), SETTLED) == {Rule.COMMIT_UNREAD}


# ---- ownership ----


def test_record_of_a_revoked_partition_is_reported() -> None:
    """A member must not receive records of a partition after on_revoke."""
    assert broken(A_OWNS, revoked(3, "a"), received(4, "a", 2, 3), SETTLED) == {Rule.NOT_OWNED}


def test_client_without_callbacks_may_receive_without_an_assignment() -> None:
    """A client that does not write assignments breaks no rule of ownership."""
    assert broken(started(0, "a", has_callbacks=False), produced(0), received(2, "a", 0), SETTLED) == set()


def test_partition_must_not_be_assigned_at_an_epoch_that_is_not_newer() -> None:
    """The epoch must increase with each change of owner."""
    assert broken(A_OWNS, A_GIVES_UP, started(0, "b"), assigned(5, "b", 1), received(6, "b", 2, 3), SETTLED) == {
        Rule.OWNERS_BY_EPOCH
    }


def test_restarted_static_member_may_have_the_same_epoch() -> None:
    """A restarted static member may continue at the epoch of its earlier process."""
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
    """A partition must not be assigned to another member while its owner uses it with a lease."""
    takes = [started(0, "b"), assigned(5, "b", 2), *received(6, "b", 0, 1, 2, 3)]
    assert broken(LEASED, takes, statement(5.5, "a", lease_s=8.0), SETTLED) == {Rule.OWNERS_BY_EPOCH}
    assert broken(LEASED, takes, received(5.5, "a", 2), SETTLED) == {Rule.OWNERS_BY_EPOCH}
    revoking = [statement(5.5, "a", None, state="RECONCILE"), revoked(6, "a")]
    assert broken(LEASED, takes, revoking, SETTLED) == {Rule.OWNERS_BY_EPOCH}


def test_owner_that_left_may_be_replaced_before_its_callback_runs() -> None:
    """A member that does not poll leaves its group and calls on_lost when it polls again: no rule is broken."""
    takes = [started(0, "b"), assigned(5, "b", 2), *received(6, "b", 0, 1, 2, 3)]
    left = statement(5.5, "a", None, state="STALE", verdict="not_polled")
    assert broken(LEASED, takes, left, lost(9, "a"), SETTLED) == set()
    assert broken(LEASED, takes, lost(9, "a"), SETTLED) == set()


@pytest.mark.parametrize("event", [h.Evicted(member="a"), h.Killed(member="a")])
def test_removed_or_killed_owner_may_be_replaced_during_its_lease(event: Event) -> None:
    """A partition may be assigned during the lease of its owner if the owner was removed or killed."""
    takes = [started(0, "b"), assigned(5, "b", 2), *received(6, "b", 0, 1, 2, 3)]
    assert broken(LEASED, at(4, "harness", event), takes, SETTLED) == set()


def test_process_may_be_removed_before_it_writes_started() -> None:
    """The harness removes all running processes, also processes that have not yet written `Started`."""
    takes = [started(0, "b"), assigned(5, "b", 2), *received(6, "b", 0, 1, 2, 3)]
    removed = at(-1, "harness", h.Evicted(member="a"))
    assert broken(removed, LEASED, takes, statement(5.5, "a", lease_s=8.0), SETTLED) == set()


def test_removal_of_a_driver_removes_its_task_attempts() -> None:
    """The removal of a Spark driver or of its task voids the leases of the task's attempts."""
    owns = [started(0, "a-0-7", has_leases=True), assigned(1, "a-0-7"), *received(2, "a-0-7", 0, 1, lease_s=8.0)]
    takes = [started(0, "b"), assigned(5, "b", 2), *received(6, "b", 0, 1, 2, 3)]
    uses = received(5.5, "a-0-7", 2)
    removed = at(4, "harness", h.Evicted(member="a"))
    other = at(4, "harness", h.Evicted(member="a-0"))
    assert broken(produced(0, 1, 2, 3), owns, removed, takes, uses, SETTLED) == set()
    assert broken(produced(0, 1, 2, 3), owns, takes, uses, SETTLED) == {Rule.OWNERS_BY_EPOCH}
    assert broken(produced(0, 1, 2, 3), owns, other, takes, uses, SETTLED) == set()


def test_lease_that_is_longer_than_a_session_is_reported() -> None:
    """The remaining lease must be at most one session, because earlier heartbeats renewed it."""
    begin = [*produced(0), started(0, "a", has_leases=True, session_s=3.0), assigned(1, "a")]
    assert broken(begin, received(2, "a", 0, lease_s=4.9), SETTLED) == set()
    assert broken(begin, received(2, "a", 0, lease_s=5.1), SETTLED) == {Rule.STATEMENT}
    sample = statement(2, "a", lease_s=5.1)
    assert broken(begin, received(1.5, "a", 0), sample, SETTLED) == {Rule.STATEMENT}


def test_record_after_the_lease_is_reported() -> None:
    """A call that begins after the end of the lease must return no record."""
    assert broken(LEASED, received(9, "a", 2, 3), SETTLED) == {Rule.OWNERS_BY_LEASE}
    renewed_during_the_call = received(9, "a", 2, 3, lease_s=10.0)
    assert broken(LEASED, renewed_during_the_call, SETTLED) == set()


def test_record_after_a_renewed_lease_is_correct() -> None:
    """After a renewal, records may be received until the new end of the lease."""
    renewed = at(7, "a", h.LeaseRenewed(until_ns=10 * S))
    assert broken(LEASED, renewed, received(9, "a", 2, 3), SETTLED) == set()


def test_record_after_a_newer_owners_first_record_is_reported_with_leases_only() -> None:
    """With leases, an overlap of two owners breaks a rule; without leases, it is only a figure."""
    takes = [started(0, "b"), assigned(8.5, "b", 2), *received(8.6, "b", 0, 1, 2, 3)]
    without = [started(0, "a"), *produced(0, 1, 2, 3), assigned(1, "a"), *received(2, "a", 0, 1)]
    entries = sorted([*without, *takes, *received(9.6, "a", 2, 3), SETTLED], key=lambda entry: entry.at_ns)
    assert (check(entries).violations, check(entries).figures.overlap_s) == ((), 1.0)
    assert broken(LEASED, takes, received(9.6, "a", 2, 3, lease_s=20.0), SETTLED) == {Rule.OWNERS_BY_LEASE}


# ---- commits ----


def test_commit_of_unread_records_is_reported() -> None:
    """A commit must not be beyond the records that the members received."""
    assert broken(A_OWNS, committed(3, "a", 4), received(4, "a", 2, 3), SETTLED) == {Rule.COMMIT_UNREAD}


def test_commit_after_the_revocation_is_reported() -> None:
    """The broker must reject a commit of a partition that the member has released."""
    assert broken(A_OWNS, revoked(4, "a"), committed(4.2, "a", 2), B_OWNS, SETTLED) == {Rule.COMMIT_NOT_OWNED}
    refused = committed(4.2, "a", 2, error="STALE_MEMBER_EPOCH")
    assert broken(A_OWNS, revoked(4, "a"), refused, B_OWNS, SETTLED) == set()


def test_automatic_commit_may_be_reported_after_the_revocation() -> None:
    """`on_commit` may run after the partition was released, because it runs after the commit."""
    first = [started(0, "a", commits_automatically=True), *produced(0, 1, 2, 3), assigned(1, "a")]
    entries = [*first, *received(2, "a", 0, 1), revoked(4, "a"), *committed(4.2, "a", 2)]
    assert broken(entries, B_OWNS, committed(7, "b", 4), committed(8, "a", 1), SETTLED) == set()


def test_commit_of_a_lower_offset_is_reported() -> None:
    """After an acknowledged commit, a commit of a lower offset breaks a rule, because records would be repeated."""
    assert broken(A_OWNS, committed(3, "a", 2), committed(4, "a", 1), received(5, "a", 2, 3), SETTLED) == {
        Rule.OFFSETS_BACK
    }


def test_observed_offsets_that_decrease_are_reported() -> None:
    """Committed offsets that an admin client reads must not decrease, except after they were deleted."""
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
    """A record without a result or with two results breaks a rule."""
    member = [started(0, "a", is_transactional=True), *produced(0), assigned(1, "a"), *received(2, "a", 0)]
    outputs = [at(3, "harness", h.Output(group="g", partition=P, number=0))] * times
    assert broken(member, outputs, SETTLED) == rules


def test_transactional_processor_may_handle_a_finished_record_again() -> None:
    """A finished record may be handled again, because its result is removed if its transaction is aborted."""
    member = [started(0, "a", is_transactional=True, is_processor=True), *produced(0), assigned(1, "a")]
    again = [*received(2, "a", 0), *finished(3, "a", 0), *received(4, "a", 0), *finished(5, "a", 0)]
    output = at(6, "harness", h.Output(group="g", partition=P, number=0))
    assert broken(member, again, output, SETTLED) == set()


def test_records_may_have_two_results_after_their_offsets_were_deleted() -> None:
    """After its offsets were deleted, the group may process records again."""
    member = [started(0, "a", is_transactional=True), *produced(0), assigned(1, "a"), *received(2, "a", 0)]
    reset = at(3, "harness", h.OffsetsReset(group="g", partitions=(P,)))
    outputs = [at(4, "harness", h.Output(group="g", partition=P, number=0))] * 2
    assert broken(member, outputs, reset, SETTLED) == set()
    assert broken(member, reset, SETTLED) == {Rule.TRANSACTIONS}


# ---- manual assignment ----

MANUAL = [started(0, "a.1", is_manual=True), *produced(0, 1, 2, 3), assigned(1, "a.1", -1)]


def test_manual_member_reads_each_record_once() -> None:
    """A restarted member with `assign` begins at the committed offset."""
    first = [*received(2, "a.1", 0, 1), *committed(3, "a.1", 2), at(4, "harness", h.Killed(member="a.1"))]
    second = [started(5, "a.2", is_manual=True), assigned(6, "a.2", -1), *received(7, "a.2", 2, 3)]
    assert broken(MANUAL, first, second, SETTLED) == set()


def test_manual_member_must_not_lose_skip_or_repeat_records() -> None:
    """The rules about records also apply to members with `assign`."""
    first = [*received(2, "a.1", 0, 1), *committed(3, "a.1", 2)]
    begins = [started(5, "a.2", is_manual=True), assigned(6, "a.2", -1)]
    assert broken(MANUAL, first, SETTLED) == {Rule.LOST}
    assert broken(MANUAL, received(2, "a.1", 0, 3), received(4, "a.1", 1, 2), SETTLED) == {Rule.SKIPPED, Rule.ORDER}
    assert broken(MANUAL, first, begins, received(7, "a.2", 1, 2, 3), SETTLED) == {Rule.REPEATED}


# ---- statements ----


def test_statements_that_match_the_callbacks_break_no_rule() -> None:
    """In STABLE, a member must state the partitions of its callbacks; in other states they may differ."""
    stated = [statement(2.5, "a"), statement(3.5, "a", state="RECONCILE"), statement(4.5, "a", None, verdict="idle")]
    assert broken(A_OWNS, stated, A_GIVES_UP, B_OWNS, statement(6.5, "b", 2), SETTLED) == set()


def test_stable_member_that_states_other_partitions_than_its_callbacks_named_is_reported() -> None:
    """In STABLE, `membership()` and the callbacks must name the same partitions."""
    assert broken(A_OWNS, A_GIVES_UP, B_OWNS, statement(4.5, "a"), SETTLED) == {Rule.STATEMENT}
    assert broken(A_OWNS, A_GIVES_UP, B_OWNS, statement(2.5, "a", None), SETTLED) == {Rule.STATEMENT}


def test_claim_with_a_lease_while_a_newer_owner_receives_is_reported() -> None:
    """`membership()` must not claim a partition with a lease after a newer owner has received a record."""
    takes = [started(0, "b"), assigned(5, "b", 2), *received(6, "b", 2, 3)]
    cut_off = [*A_OWNS, *committed(3, "a", 2)]
    assert broken(cut_off, takes, statement(7, "a", lease_s=6.5), SETTLED) == {Rule.STATEMENT}
    assert broken(cut_off, takes, statement(7, "a", lease_s=4.5), SETTLED) == set()
    assert broken(cut_off, takes, statement(7, "a"), SETTLED) == set()


def test_would_restart_help_is_reported_if_the_member_receives_records() -> None:
    """`would_restart_help` must be false while a process receives records, because probes restart such processes."""
    restarts = statement(2.5, "a", would_restart_help=True, verdict="stuck")
    assert broken(A_OWNS, restarts, received(3, "a", 2, 3), SETTLED) == {Rule.STATEMENT}
    assert broken(A_OWNS, restarts, received(9, "a", 2, 3), SETTLED) == set()


def test_consuming_without_progress_is_reported() -> None:
    """`consuming` and `idle` break a rule if unread records are not received for a long time."""
    for verdict, rules in (("consuming", {Rule.STATEMENT}), ("idle", {Rule.STATEMENT}), ("stuck", set())):
        stalled = statement(40, "a", verdict=verdict)
        assert broken(A_OWNS, stalled, received(50, "a", 2, 3), SETTLED) == rules


def test_member_that_is_not_in_a_steady_state_at_the_end_is_reported() -> None:
    """After the faults, each running member must be STABLE and consume."""
    done = [*A_OWNS, *received(3, "a", 2, 3)]
    assert broken(done, statement(99, "a"), SETTLED) == set()
    assert broken(done, statement(99, "a", state="JOINING", verdict="joining"), SETTLED) == {Rule.NOT_SETTLED}
    assert broken(done, statement(99, "a", verdict="stuck"), SETTLED) == {Rule.NOT_SETTLED}
    assert broken(done, statement(50, "a", verdict="stuck"), SETTLED) == set()


def test_event_of_a_process_without_started_raises() -> None:
    """The checker raises an error for events of a process that has not written `Started`."""
    with pytest.raises(ValueError, match="before `Started`"):
        check(received(1, "a", 0))
