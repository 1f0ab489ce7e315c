"""Derive one verdict from a consumer's view and the progress of its partitions, with the cause and the remedy.

`HealthVerdict` explains each verdict, and when a restart of the process would help. The order of the checks matters: a
state that has ended, then unreachable brokers, then a membership in transition, then the progress of the partitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from consumer_membership.health.progress import RECENT_S, AssignmentProgress, PartitionHealth
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.membership.waits import WaitsFor
from consumer_membership.text import counted
from consumer_membership.types import (
    FENCED_INSTANCE_CODE,
    GROUP_FULL_CODE,
    INVALID_PATTERN_CODE,
    JOIN_EPOCH,
    UNRELEASED_INSTANCE_CODE,
    UNSUPPORTED_VERSION_CODE,
    Instant,
    TopicPartition,
)

if TYPE_CHECKING:  # few consumers have a processor
    from consumer_membership.health.handlers import HandlerHealth

_S = MemberState

#: The states in which each heartbeat response confirms the membership.
_CONFIRMED_STATES = frozenset({_S.RECONCILE, _S.ACK, _S.STABLE})
#: How long the search for the coordinator may take before the brokers count as unreachable, in seconds.
SEARCH_S = 5.0
#: A silence is this many heartbeat intervals without a response, and at least this many seconds.
SILENT_INTERVALS, SILENT_S = 3.0, 5.0
#: The broker's default interval, used while the broker has not sent its value.
ASSUMED_HEARTBEAT_INTERVAL_S = 5.0
#: The part of max.poll.interval.ms after which a missing poll is reported.
POLL_SHARE = 0.5
#: Errors that a new process would also meet: another member has its instance id, it has no permission, or it requests
#: something that does not exist (NOT_AUTHORIZED of topic, group, cluster and transactional id;
#: SASL_AUTHENTICATION_FAILED; INVALID_GROUP_ID and INVALID_SESSION_TIMEOUT).
_SAME_AGAIN = frozenset(
    {FENCED_INSTANCE_CODE, UNRELEASED_INSTANCE_CODE, GROUP_FULL_CODE, INVALID_PATTERN_CODE, UNSUPPORTED_VERSION_CODE}
    | {24, 26, 29, 30, 31, 58}
)


class HealthVerdict(Enum):
    """The health of a consumer.

    `Health.would_restart_help` is true only if the cause is in this process.

    Attributes:
        STARTING: Not in a group yet: the member waits for a subscription or for the next poll. A restart would not
            help.
        JOINING: The member is joining the group. A restart would not help.
        WARM: The application is ready for the partitions of another member, which hands them over. A restart would not
            help.
        REBALANCING: Partitions are being revoked and assigned, within the rebalance timeout. A restart would not help.
        CONSUMING: Records are being consumed. A `GroupMember`: it owns partitions.
        IDLE: There is nothing to consume: no partitions, or no records after the positions.
        PAUSED: The application paused all of its partitions.
        BEHIND: Records are consumed, but more slowly than they are produced. Add members, or make them faster.
        STUCK: A position does not move while its end offset increases or is unknown, a rebalance exceeded its
            timeout, or a handler exceeded `handler_timeout`. A restart helps only if the cause is in this process.
        NOT_POLLED: The application has not polled for half of max.poll.interval.ms or longer. A restart helps only
            after the complete interval, if the member had joined.
        FENCED: The coordinator removed the member; it releases its partitions and joins again. A restart would not
            help.
        UNREACHABLE: The brokers cannot be reached or do not respond, to heartbeats or to fetch requests. A restart
            would not help, because the cause is outside this process.
        FATAL: The membership has ended permanently, or the processor failed. A restart helps only if a new process
            would not fail in the same way; after a failure of the processor, only a restart continues its work.
        CLOSED: The consumer is closed.
    """

    STARTING = "starting"
    JOINING = "joining"
    WARM = "warm"
    REBALANCING = "rebalancing"
    CONSUMING = "consuming"
    IDLE = "idle"
    PAUSED = "paused"
    BEHIND = "behind"
    STUCK = "stuck"
    NOT_POLLED = "not_polled"
    FENCED = "fenced"
    UNREACHABLE = "unreachable"
    FATAL = "fatal"
    CLOSED = "closed"


_V = HealthVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The health of a consumer at one moment; times are of the monotonic clock (`time.monotonic`).

    Attributes:
        verdict: The verdict.
        since: When it began; None: not known.
        why: The cause, as text for people.
        until: When the condition ends automatically; None: never, or not known.
        would_restart_help: Whether a restart of the process would help; the result of a liveness probe.
        partitions: The progress of each assigned partition at `sampled_at`.
        sampled_at: When the partitions were last sampled, at most a few seconds ago; None: not yet.
        handlers: The handlers of the records at this moment; None: the consumer has no processor.
    """

    verdict: HealthVerdict
    since: Instant | None
    why: str
    until: Instant | None
    would_restart_help: bool
    partitions: Mapping[TopicPartition, PartitionHealth]
    sampled_at: Instant | None
    handlers: HandlerHealth | None = None

    @property
    def is_ready(self) -> bool:
        """Whether the consumer has its share of the group's work, or can take one over: a readiness probe's result."""
        return self.verdict in _READY


_READY = frozenset({_V.WARM, _V.CONSUMING, _V.IDLE, _V.PAUSED, _V.BEHIND, _V.REBALANCING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """The input of a verdict.

    `polled_at`: when the application last polled, as far as known; None: never. `subscribed_at`: since when partitions
    come from the group; None: the application assigns them. `broker_lost_since`: since when librdkafka has no broker to
    fetch from. `handlers`: the state of the processor's handlers; None: there is no processor. `fetches`: whether the
    member fetches records; a `GroupMember` does not.
    """

    view: MembershipView
    progress: AssignmentProgress
    subscribed_at: Instant | None
    is_closed: bool
    polled_at: Instant | None
    max_poll_interval_s: float
    broker_lost_since: Instant | None = None
    handlers: HandlerHealth | None = None
    fetches: bool = True


#: Verdict, since, why, until, whether a restart would help.
_Found: TypeAlias = tuple[HealthVerdict, Instant | None, str, Instant | None, bool]


def health_of(now: Instant, of: Circumstances) -> Health:
    """Return the health of a consumer in these circumstances."""
    verdict, since, why, until, helps = (
        _failed(now, of)
        or _ended(of)
        or _handlers(now, of)
        or _unreachable(now, of)
        or _in_transition(now, of)
        or (_consumption(now, of) if of.fetches else _ownership(of.view))
    )
    return Health(
        verdict=verdict,
        since=since,
        why=why,
        until=until,
        would_restart_help=helps,
        partitions=of.progress.partitions,
        sampled_at=of.progress.at,
        handlers=of.handlers,
    )


def is_silent(now: Instant, view: MembershipView) -> bool:
    """Return whether a member in its group has received no heartbeat response for too long."""
    last_heartbeat_at = view.last_heartbeat_at
    if last_heartbeat_at is None or view.state not in _CONFIRMED_STATES:
        return False
    return now - last_heartbeat_at >= max(
        SILENT_S, SILENT_INTERVALS * (view.heartbeat_interval_s or ASSUMED_HEARTBEAT_INTERVAL_S)
    )


def _since(view: MembershipView) -> Instant | None:
    return view.transitions[-1].at if view.transitions else None


def _failed(now: Instant, of: Circumstances) -> _Found | None:
    """Return the verdict on a failed processor, also after it closed its consumer; a stuck handler comes first."""
    if of.handlers is None or of.handlers.failure is None:
        return None
    stuck = _handlers(now, of)
    if stuck is not None:
        verdict, since, why, until, _ = stuck
        return verdict, since, f"{why}; the processor ends", until, True
    return _V.FATAL, of.handlers.failed_at, of.handlers.failure, None, True


def _ended(of: Circumstances) -> _Found | None:
    """Return the verdict on a state that has ended, permanently or until another event."""
    view = of.view
    if of.is_closed:
        return _V.CLOSED, _since(view), "the consumer is closed", None, False
    if view.state is _S.FATAL:
        error = view.last_error
        helps = error is None or error.code not in _SAME_AGAIN
        return _V.FATAL, _since(view), str(error) if error is not None else "the membership has ended", None, helps
    if view.state is _S.STALE:
        limit_ms = round(of.max_poll_interval_s * 1000)
        why = f"the application did not poll within max.poll.interval.ms={limit_ms}; it rejoins with the next poll"
        return _V.NOT_POLLED, of.polled_at, why, None, True
    if view.state is _S.FENCED:
        cause = f" ({view.last_error})" if view.last_error is not None else ""
        why = f"the member was fenced{cause}; it rejoins after it has released its partitions"
        return _V.FENCED, _since(view), why, None, False
    return None


def _handlers(now: Instant, of: Circumstances) -> _Found | None:
    """Return the verdict on a handler that exceeded its timeout; a restart helps unless the processor can end it."""
    if of.handlers is None or not of.handlers.stuck:
        return None
    # A handler that only a restart ends comes first.
    ordered = sorted(of.handlers.stuck, key=lambda one: one.can_be_cancelled)
    first = ordered[0]
    others = f"; {len(ordered) - 1} more stuck" if len(ordered) > 1 else ""
    location = f", at {first.location}" if first.location else ""
    gone = ", of a partition that was given up" if first.is_disowned else ""
    why = (
        f"a handler exceeded handler_timeout: {first.place}, key {first.key_text}, attempt {first.attempt}, running "
        f"for {now - first.began_at:.0f} s{location}{gone}{others}"
    )
    return _V.STUCK, first.deadline, why, None, not first.can_be_cancelled


def _unreachable(now: Instant, of: Circumstances) -> _Found | None:
    """Return the verdict on unreachable brokers and missing heartbeat responses; the cause is outside this process."""
    view = of.view
    cause = f": {view.present_error}" if view.present_error is not None else ""
    if view.coordinator is None and view.state is not _S.UNSUBSCRIBED:
        since = _missed_since(view)
        if since is not None and now - since >= SEARCH_S:
            return _V.UNREACHABLE, since, f"waits for {view.waits_for_text}{cause}", view.lease_until, False
    last_heartbeat_at = view.last_heartbeat_at
    if last_heartbeat_at is not None and is_silent(now, view):
        why = f"no heartbeat response for {now - last_heartbeat_at:.0f} s{cause}"
        return _V.UNREACHABLE, last_heartbeat_at, why, view.lease_until, False
    if of.broker_lost_since is not None and now - of.broker_lost_since >= SEARCH_S:
        return _V.UNREACHABLE, of.broker_lost_since, "waits for a broker that librdkafka can fetch from", None, False
    return None


def _missed_since(view: MembershipView) -> Instant | None:
    """Return since when the coordinator is missing, or None if there is no search for it.

    The search begins when a request has waited for its complete timeout, so the coordinator of a member in its group is
    missing since the next heartbeat's response was due.
    """
    since, last_heartbeat_at = view.waits_since, view.last_heartbeat_at
    if since is None or last_heartbeat_at is None or view.state not in _CONFIRMED_STATES:
        return since
    return min(since, last_heartbeat_at + (view.heartbeat_interval_s or ASSUMED_HEARTBEAT_INTERVAL_S))


def _in_transition(now: Instant, of: Circumstances) -> _Found | None:
    """Return the verdict on a membership that changes, or on an application that does not poll."""
    view = of.view
    waits = f"waits for {view.waits_for_text}" if view.waits_for is not None else "on its way"
    match view.state:
        case _S.UNSUBSCRIBED if of.subscribed_at is not None:
            return _not_joined(now, of, of.subscribed_at)
        case _S.UNSUBSCRIBED if not of.progress.partitions:
            return _V.STARTING, _since(view), "no subscription and no assignment", None, False
        case _S.RECONCILE | _S.UNSUBSCRIBING:
            return _rebalance(now, of, waits)
        case _S.JOINING | _S.ACK | _S.STABLE if (found := _not_polled(now, of)) is not None:
            return found
        case _S.JOINING if view.member_epoch > JOIN_EPOCH:
            # A classic member that keeps its member id from one generation to the next.
            return _rebalance(now, of, waits)
        case _S.JOINING:
            # Warm is ready: a deployment may end the predecessor only when a successor is ready.
            verdict, since = (_V.WARM, view.waits_since) if view.is_warm else (_V.JOINING, _since(view))
            return verdict, since, waits, view.waits_until, False
        case _S.ACK:
            return _V.REBALANCING, _since(view), waits, view.waits_until, False
        case _:
            return None


def _not_joined(now: Instant, of: Circumstances, subscribed_at: Instant) -> _Found:
    """Return the verdict on a member that subscribed but has not polled, and so holds no partitions."""
    left_at = _since(of.view)
    since = subscribed_at if left_at is None else max(subscribed_at, left_at)
    silent_since = since if of.polled_at is None else max(since, of.polled_at)
    if now - silent_since < POLL_SHARE * of.max_poll_interval_s:
        waited_for = of.view.waits_for_text or WaitsFor.POLL_TO_JOIN
        return _V.STARTING, since, f"waits for {waited_for}", None, False
    why = "the application has not polled since it subscribed; the member joins with the next poll"
    return _V.NOT_POLLED, silent_since, why, None, False


def _rebalance(now: Instant, of: Circumstances, waits: str) -> _Found:
    """Return the verdict on a rebalance, healthy until its deadline: max.poll.interval.ms after the last poll."""
    view = of.view
    since = _since(view)
    begun = max((moment for moment in (since, of.polled_at) if moment is not None), default=now)
    until = view.waits_until if view.waits_until is not None else begun + of.max_poll_interval_s
    if now < until:
        return _V.REBALANCING, since, waits, until, False
    is_ours_to_end = view.waits_for is not None and view.waits_for.is_application
    return _V.STUCK, since, f"the rebalance exceeded its timeout: {waits}", None, is_ours_to_end


def _not_polled(now: Instant, of: Circumstances) -> _Found | None:
    polled_at, limit_s = of.polled_at, of.max_poll_interval_s
    if polled_at is None or now - polled_at < POLL_SHARE * limit_s:
        return None
    until = polled_at + limit_s
    why = (
        f"the application has not polled for {now - polled_at:.0f} s; max.poll.interval.ms is {limit_s:g} s, then the "
        "member leaves its group"
    )
    return _V.NOT_POLLED, polled_at, why, until, now >= until


def _consumption(now: Instant, of: Circumstances) -> _Found:
    """Return the verdict on the progress of a stable member, or of a consumer with assigned partitions."""
    view, progress = of.view, of.progress
    if progress.at is None:
        return (
            _V.CONSUMING if view.owned else _V.IDLE,
            _since(view),
            "the partitions have not been sampled yet",
            None,
            False,
        )
    if not progress.partitions and of.handlers is not None and of.handlers.oldest:
        return _unmoved(of)  # the partitions are newer than the sample
    if not progress.partitions:
        why = f"waits for {view.waits_for_text}" if view.waits_for is not None else "no partitions are assigned"
        return _V.IDLE, view.waits_since or _since(view), why, None, False
    if progress.stuck or progress.late:
        return _stuck(progress) if progress.stuck else _late(now, progress)
    if progress.paused == len(progress.partitions):
        return _V.PAUSED, None, "the application paused all of its partitions", None, False
    if progress.behind:
        first = progress.behind[0]
        others = f" and {len(progress.behind) - 1} more" if len(progress.behind) > 1 else ""
        why = (
            f"the lag of {_named(first)}{others} increases: records are produced faster than consumed; "
            f"total lag {progress.lag}"
        )
        return _V.BEHIND, None, why, None, False
    moved_at = progress.progressed_at
    if moved_at is not None and now - moved_at < RECENT_S:
        return _V.CONSUMING, None, f"records are being consumed; lag {progress.lag}", None, False
    return _unmoved(of)


def _ownership(view: MembershipView) -> _Found:
    """Return the verdict on a stable member that fetches nothing: what its partitions mean is up to the application."""
    if view.owned:
        return _V.CONSUMING, _since(view), f"owns {counted(len(view.owned), 'partition')}", None, False
    why = f"waits for {view.waits_for_text}" if view.waits_for is not None else "no partitions are assigned"
    return _V.IDLE, view.waits_since or _since(view), why, None, False


def _unmoved(of: Circumstances) -> _Found:
    """Return the verdict on positions that have not moved recently: handlers are busy, or there is nothing to read."""
    progress = of.progress
    if of.handlers is not None and of.handlers.oldest:
        partition, record = min(of.handlers.oldest.items(), key=lambda one: (one[1].since, one[0]))
        why = f"records are being handled; the oldest unfinished record is {_named(partition)} {record.text}"
        return _V.CONSUMING, record.since, why, None, False
    if progress.pending:
        why = f"lag {progress.lag}, but no record was consumed in the last {RECENT_S:g} s"
        return _V.CONSUMING, progress.progressed_at, why, None, False
    return _V.IDLE, progress.progressed_at, _why_idle(progress), None, False


def _why_idle(progress: AssignmentProgress) -> str:
    without_end = progress.without_end
    if not without_end:
        return "no records after the current positions"
    if len(without_end) == 1:
        return f"the end offset of {_named(without_end[0])} is not known yet"
    return f"the end offsets of {_named(without_end[0])} and {len(without_end) - 1} more are not known yet"


def _stuck(progress: AssignmentProgress) -> _Found:
    # A partition that this process holds up comes before one that a transaction holds up, because a restart would help
    # it. Until the leader has reported readable records, the cause may be a transaction or the leader itself.
    first = min(progress.stuck, key=lambda partition: (not progress.partitions[partition].is_readable, partition))
    seen = progress.partitions[first]
    others = f"; {len(progress.stuck) - 1} more stuck" if len(progress.stuck) > 1 else ""
    known = f"{_named(first)} is stuck at offset {seen.position} with lag {seen.lag}"
    what = f"no records arrive from {_named(first)}" if seen.end is None else known
    why = f"{what}: waits for {seen.waits_for_text}{others}"
    return _V.STUCK, seen.since, why, None, seen.is_readable


def _late(now: Instant, progress: AssignmentProgress) -> _Found:
    first = min(progress.late, key=lambda partition: (progress.partitions[partition].since or now, partition))
    seen = progress.partitions[first]
    since = seen.since if seen.since is not None else now
    others = f"; {len(progress.late) - 1} more wait" if len(progress.late) > 1 else ""
    why = (
        f"no record of {_named(first)} has arrived for {now - since:.0f} s, lag {seen.lag}: waits for "
        f"{seen.waits_for_text}{others}"
    )
    return _V.UNREACHABLE, since, why, None, False


def _named(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"
