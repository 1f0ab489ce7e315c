"""Explain a replayed recording in a paragraph: the last state, the wait, the side that must act, the causes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from consumer_membership.health.handlers import HandlersDisowned, RecordDeadLettered
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
from consumer_membership.text import counted
from consumer_membership.types import Instant

_S = MemberState
#: The side that must act next, for each wait of a reconciliation.
_NEXT_ACTIONS: Mapping[WaitsFor, str] = MappingProxyType(
    {
        WaitsFor.POLL_TO_REVOKE: "The application must act: this step runs inside poll, consume or close.",
        WaitsFor.ON_REVOKE: "The application must act: its callback had not returned, or was not called because the "
        "application did not poll.",
        WaitsFor.ON_ASSIGN: "The application must act: its callback had not returned, or was not called because the "
        "application did not poll.",
        WaitsFor.ON_LOST: "The application must act: its callback had not returned, or was not called because the "
        "application did not poll.",
        WaitsFor.POLL_TO_RETRY_CALLBACK: "The application must act: its callback raised; the next poll calls it again.",
        WaitsFor.COMMIT_BEFORE_REVOKE: "The coordinator must respond.",
        WaitsFor.COMMIT_AFTER_REVOKE: "The coordinator must respond.",
        WaitsFor.COMMITTED_OFFSETS: "The coordinator must respond.",
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
#: A response that is older than this number of seconds is mentioned.
_LONG_S = 2.0
#: A poll that is older than this number of seconds is mentioned: twice the longest interval at which polls are sampled.
_LONG_WITHOUT_POLL_S = 6.0
_SHOWN_TRANSITIONS = 4


def explained(recording: Recording, entries: tuple[Entry, ...], view: MembershipView) -> str:
    """Return the diagnosis after these entries of the recording; `view` is the member's view at that moment."""
    now = entries[-1].at if 0 < len(entries) < len(recording.entries) else recording.known_until
    return " ".join(_sentences(recording, entries, view, now))


def _sentences(recording: Recording, entries: tuple[Entry, ...], view: MembershipView, now: Instant) -> Iterator[str]:
    yield _verdict(recording, entries, view)
    if view.waits_for is not None:
        since = f" for {_lasted(now - view.waits_since)}" if view.waits_since is not None else ""
        until = ""
        if view.waits_until is not None:
            until = f", and would have waited for {_lasted(max(0.0, view.waits_until - now))} more"
        yield f"It had waited{since} for {view.waits_for_text}{until}."
        action = _NEXT_ACTIONS.get(view.waits_for)
        if action is not None:
            yield action
    yield from _about_polls(recording, entries, view, now)
    yield from _about_answers(entries, now)
    yield from _about_handlers(recording, now)
    if view.present_error is not None and view.state is not _S.FATAL:
        yield f"The last error was: {_ended(str(view.present_error))}"
    if view.last_error_over_at is not None:
        over = f"The last error ended {_lasted(now - view.last_error_over_at)} before"
        yield f"{over}: {_ended(str(view.last_error))}"
    if view.transitions:
        latest = view.transitions[-_SHOWN_TRANSITIONS:]
        led = "; ".join(f"{now - one.at:.1f} s before the end, {one.old} to {one.new} ({one.reason})" for one in latest)
        yield f"Latest state changes: {led}."


def _verdict(recording: Recording, entries: tuple[Entry, ...], view: MembershipView) -> str:  # noqa: PLR0911 - a table
    """Return the last state, in one or two sentences."""
    last = entries[-1] if entries else None
    if last is not None and last.error is not None:
        event = type(last.event).__name__
        return f"The core failed with {last.error} on the event {event}, which is a bug of this package."
    limit_s = recording.settings.max_poll_interval_s
    match view.state:
        case _S.FATAL:
            return f"The membership ended permanently: {_ended(str(view.last_error))}"
        case _S.STALE:
            return (
                f"The application did not poll within max.poll.interval.ms ({limit_s:g} s): the member left its group "
                "and lost its partitions."
            )
        case _S.FENCED:
            return "The member was fenced: it releases its partitions, then joins again."
        case _S.UNSUBSCRIBED:
            return "The member was not in its group."
        case _S.UNSUBSCRIBING:
            return "The member was leaving its group."
        case _S.JOINING:
            return "The member was not in its group yet: it was joining."
        case _S.RECONCILE | _S.ACK:
            owned, target = len(view.owned), len(view.target) + view.unresolved
            return f"The member was in a rebalance: it owned {owned} partitions, and its target was {target}."
        case _S.STABLE:
            return (
                f"The membership was stable: the member owned its complete assignment of {len(view.owned)} partitions."
            )


def _about_polls(recording: Recording, entries: tuple[Entry, ...], view: MembershipView, now: Instant) -> Iterator[str]:
    polls = [entry.at for entry in entries if isinstance(entry.event, Polled | StepFinished)]
    if not polls:
        if entries:
            yield "The recording has no poll of the application."
        return
    silent_s = now - polls[-1]
    if silent_s < _LONG_WITHOUT_POLL_S or view.state is _S.STALE:
        return
    yield (
        f"The application last polled {_lasted(silent_s)} before the end; "
        f"max.poll.interval.ms is {recording.settings.max_poll_interval_s:g} s."
    )
    ordered = [effect for entry in entries if entry.at >= polls[-1] for effect in entry.effects]
    if any(isinstance(effect, StepEffect) for effect in ordered):
        yield "Since then a rebalance has waited for its next poll."


def _about_answers(entries: tuple[Entry, ...], now: Instant) -> Iterator[str]:
    """Yield a request of the membership without a response."""
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
        yield f"A {name} request had received no response for {_lasted(now - at)}."
    if answered_at is not None and now - answered_at >= _LONG_S and waiting:
        yield f"The coordinator last responded {_lasted(now - answered_at)} before the end."


def _about_handlers(recording: Recording, now: Instant) -> Iterator[str]:
    """Yield the dead letters and the disowned handlers until then."""
    facts = [(entry.at, entry.fact) for entry in recording.handlers if entry.at <= now]
    dead = [(at, fact) for at, fact in facts if isinstance(fact, RecordDeadLettered)]
    disowned = [(at, fact) for at, fact in facts if isinstance(fact, HandlersDisowned)]
    if dead:
        at, last = dead[-1]
        ago, which = _lasted(now - at), last.text.removeprefix("dead-lettered ")
        yield f"Its processor dead-lettered {counted(len(dead), 'record')}, the last one {ago} before the end: {which}."
    if disowned:
        at, latest = disowned[-1]
        yield f"Its processor {latest.text}, {_lasted(now - at)} before the end."


def _lasted(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60)} s"  # noqa: PLR2004


def _ended(text: str) -> str:
    return text if text.endswith(".") else f"{text}."
