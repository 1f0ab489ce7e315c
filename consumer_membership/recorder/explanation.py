"""A replayed recording in a paragraph: how the member ended, what it waited for, whose turn it was, what led there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from consumer_membership.membership.classic.exchanges import (
    ClassicHeartbeatAnswered,
    ClassicHeartbeatRejected,
    ExchangeFailed,
    JoinAnswered,
    JoinRejected,
    SendClassicHeartbeat,
    SendJoin,
    SendSync,
    SyncAnswered,
    SyncRejected,
)
from consumer_membership.membership.effects import SendHeartbeat, StepEffect
from consumer_membership.membership.events import (
    HeartbeatAnswered,
    HeartbeatFailed,
    HeartbeatRejected,
    Polled,
    StepFinished,
)
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.membership.waits import WaitsFor
from consumer_membership.recorder.recording import Recording
from consumer_membership.recorder.ring import Entry
from consumer_membership.types import Instant

_S = MemberState
#: Whose turn it is in each phase of a reconciliation.
_TURNS: Mapping[WaitsFor, str] = MappingProxyType(
    {
        WaitsFor.POLL_TO_REVOKE: "It is the application's turn: that happens inside poll, consume or close.",
        WaitsFor.ON_REVOKE: "It is the application's turn: its callback had not returned, or was not called since the "
        "application did not poll.",
        WaitsFor.ON_ASSIGN: "It is the application's turn: its callback had not returned, or was not called since the "
        "application did not poll.",
        WaitsFor.ON_LOST: "It is the application's turn: its callback had not returned, or was not called since the "
        "application did not poll.",
        WaitsFor.POLL_TO_RETRY_CALLBACK: "It is the application's turn: its callback raised; the next poll calls it "
        "again.",
        WaitsFor.COMMIT_BEFORE_REVOKE: "It is the coordinator's turn.",
        WaitsFor.COMMIT_AFTER_REVOKE: "It is the coordinator's turn.",
        WaitsFor.COMMITTED_OFFSETS: "It is the coordinator's turn.",
    }
)
_SENT = SendHeartbeat | SendClassicHeartbeat | SendJoin | SendSync
_ANSWERS = (
    HeartbeatAnswered
    | HeartbeatRejected
    | HeartbeatFailed
    | ClassicHeartbeatAnswered
    | ClassicHeartbeatRejected
    | JoinAnswered
    | JoinRejected
    | SyncAnswered
    | SyncRejected
    | ExchangeFailed
)
#: A poll that is older than this is worth a sentence.
_LONG_S = 2.0
_TOLD_TRANSITIONS = 4


def explained(recording: Recording, entries: tuple[Entry, ...], view: MembershipView) -> str:
    """What was the matter after these entries of the recording; `view` is the member's then."""
    now = entries[-1].at if 0 < len(entries) < len(recording.entries) else recording.known_until
    return " ".join(_sentences(recording, entries, view, now))


def _sentences(recording: Recording, entries: tuple[Entry, ...], view: MembershipView, now: Instant) -> Iterator[str]:
    yield _verdict(recording, entries, view)
    if view.waits_for is not None:
        since = f" for {_lasted(now - view.waits_since)}" if view.waits_since is not None else ""
        until = ""
        if view.waits_until is not None:
            until = f"; it would have waited for {_lasted(max(0.0, view.waits_until - now))} more"
        yield f"It had waited{since} for {view.waits_for_text}{until}."
        turn = _TURNS.get(view.waits_for)
        if turn is not None:
            yield turn
    yield from _about_polls(recording, entries, view, now)
    yield from _about_answers(entries, now)
    if view.present_error is not None and view.state is not _S.FATAL:
        yield f"The last error was: {_ended(str(view.present_error))}"
    if view.last_error_over_at is not None:
        over = f"The last error was over for {_lasted(now - view.last_error_over_at)}"
        yield f"{over}: {_ended(str(view.last_error))}"
    if view.transitions:
        latest = view.transitions[-_TOLD_TRANSITIONS:]
        led = "; ".join(f"{now - one.at:.1f} s before, {one.old} to {one.new} ({one.reason})" for one in latest)
        yield f"What led there: {led}."


def _verdict(recording: Recording, entries: tuple[Entry, ...], view: MembershipView) -> str:  # noqa: PLR0911 - a table
    """How it ended, in one sentence or two."""
    last = entries[-1] if entries else None
    if last is not None and last.error is not None:
        event = type(last.event).__name__
        return f"The core failed with {last.error} when it was told {event}: that is a bug of this package."
    limit_s = recording.settings.max_poll_interval_s
    match view.state:
        case _S.FATAL:
            return f"The membership ended for good: {_ended(str(view.last_error))}"
        case _S.STALE:
            return (
                f"The application did not poll within max.poll.interval.ms ({limit_s:g} s): the member left its group "
                "and lost its partitions."
            )
        case _S.FENCED:
            return "The coordinator does not count the member in any more: it gives up its partitions, then joins anew."
        case _S.UNSUBSCRIBED:
            return "The member was not in its group."
        case _S.UNSUBSCRIBING:
            return "The member was leaving its group."
        case _S.JOINING:
            return "The member was not in its group yet: it was joining."
        case _S.RECONCILE | _S.ACK:
            owned, target = len(view.owned), len(view.target) + view.unresolved
            return f"The member was in the middle of a rebalance: it owned {owned} partitions, and was to own {target}."
        case _S.STABLE:
            return f"The membership was in order: {len(view.owned)} partitions, all that the member was to have."


def _about_polls(recording: Recording, entries: tuple[Entry, ...], view: MembershipView, now: Instant) -> Iterator[str]:
    polls = [entry.at for entry in entries if isinstance(entry.event, Polled | StepFinished)]
    if not polls:
        if entries:
            yield "The application did not poll in all that was recorded."
        return
    silent_s = now - polls[-1]
    if silent_s < _LONG_S or view.state is _S.STALE:
        return
    yield (
        f"The application was last seen polling {_lasted(silent_s)} before; "
        f"max.poll.interval.ms is {recording.settings.max_poll_interval_s:g} s."
    )
    ordered = [effect for entry in entries if entry.at >= polls[-1] for effect in entry.effects]
    if any(isinstance(effect, StepEffect) for effect in ordered):
        yield "Since then it was ordered to take part in a rebalance, and did not."


def _about_answers(entries: tuple[Entry, ...], now: Instant) -> Iterator[str]:
    """A request of the membership that nobody had answered."""
    open_since: dict[int, tuple[Instant, str]] = {}
    answered_at: Instant | None = None
    for entry in entries:
        if isinstance(entry.event, _ANSWERS):
            is_answer = not isinstance(entry.event, HeartbeatFailed | ExchangeFailed)
            answered_at = entry.at if is_answer else answered_at
            open_since.pop(entry.event.request_id, None)
        for effect in entry.effects:
            if isinstance(effect, _SENT):
                open_since[effect.request_id] = (entry.at, type(effect).__name__.removeprefix("Send"))
    waiting = [(at, name) for at, name in open_since.values() if now - at >= _LONG_S]
    if waiting:
        at, name = min(waiting)
        yield f"The coordinator had not answered a {name} for {_lasted(now - at)}."
    if answered_at is not None and now - answered_at >= _LONG_S and waiting:
        yield f"It was last heard of {_lasted(now - answered_at)} before."


def _lasted(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60)} s"  # noqa: PLR2004


def _ended(text: str) -> str:
    return text if text.endswith(".") else f"{text}."
