"""What a consumer's view and the progress of its partitions come to: one verdict, the cause in words, what would help.

| verdict | what it means | would a restart help? |
|---|---|---|
| STARTING | not in a group yet: it waits for the application's subscription, or its next poll | no |
| JOINING | on its way into the group | no |
| REBALANCING | partitions are taken and given, within the time that is given for it | no |
| CONSUMING | records come | no |
| IDLE | nothing to consume: no partitions, or nothing behind its positions | no |
| PAUSED | the application paused all of its partitions | no |
| BEHIND | records come, and more are written than are read | no: more members, or quicker ones |
| STUCK | a partition's end moves away or is not told; or a rebalance is beyond its time | not for what others hold up |
| NOT_POLLED | the application does not poll: half of max.poll.interval.ms is over, or all | after all, if it joined |
| FENCED | the coordinator does not count it in any more; it gives up what it has, and joins again | no |
| UNREACHABLE | the brokers are away, or do not answer | no: it is not this process's fault |
| FATAL | the membership has ended for good | not where the same would happen again |
| CLOSED | the consumer is closed | no |
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeAlias

from consumer_membership.health.progress import RECENT_S, AssignmentProgress, PartitionHealth
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.membership.waits import WaitsFor
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

_S = MemberState

#: The states of a member that hears of its coordinator with each heartbeat.
_IN_TOUCH = frozenset({_S.RECONCILE, _S.ACK, _S.STABLE})
#: How long the coordinator may be looked for before the brokers are called unreachable.
SEARCH_S = 5.0
#: So many heartbeat intervals without an answer are a silence; at least so many seconds.
SILENT_INTERVALS, SILENT_S = 3.0, 5.0
#: What the broker tells nobody is 5 s, its default.
ASSUMED_HEARTBEAT_INTERVAL_S = 5.0
#: The part of max.poll.interval.ms after which a missing poll is told.
POLL_SHARE = 0.5
#: Ends that another process would meet in the same way: its place is another's, it has no right, or asks for what there
#: is not (NOT_AUTHORIZED of topic, group, cluster and transactional id; SASL_AUTHENTICATION_FAILED; INVALID_GROUP_ID
#: and INVALID_SESSION_TIMEOUT).
_SAME_AGAIN = frozenset(
    {FENCED_INSTANCE_CODE, UNRELEASED_INSTANCE_CODE, GROUP_FULL_CODE, INVALID_PATTERN_CODE, UNSUPPORTED_VERSION_CODE}
    | {24, 26, 29, 30, 31, 58}
)


class HealthVerdict(Enum):
    """How a consumer is; the table of this module says what each means."""

    STARTING = "starting"
    JOINING = "joining"
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
    """How a consumer is at one moment; times are of the monotonic clock (`time.monotonic`).

    `since` is when that began, None where nobody saw it; `until` when it is given up by itself, None: never, or not
    known. `partitions` are as they were at `looked_at`, at most a few seconds ago; None: nobody has looked yet.
    """

    verdict: HealthVerdict
    since: Instant | None
    why: str
    until: Instant | None
    would_restart_help: bool
    partitions: Mapping[TopicPartition, PartitionHealth]
    looked_at: Instant | None

    @property
    def is_ready(self) -> bool:
        """Whether it has its part of the group's work: what a readiness probe asks."""
        return self.verdict in _READY


_READY = frozenset({_V.CONSUMING, _V.IDLE, _V.PAUSED, _V.BEHIND, _V.REBALANCING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """All that a verdict is made of.

    `polled_at`: when the application was last seen polling, None: never. `subscribed_at`: since when partitions come
    from the group, None: they do not; `broker_lost_since`: since when librdkafka has no broker to fetch from.
    """

    view: MembershipView
    progress: AssignmentProgress
    subscribed_at: Instant | None
    is_closed: bool
    polled_at: Instant | None
    max_poll_interval_s: float
    broker_lost_since: Instant | None = None


#: Verdict, since, why, until, whether a restart would help.
_Found: TypeAlias = tuple[HealthVerdict, Instant | None, str, Instant | None, bool]


def judged(now: Instant, of: Circumstances) -> Health:
    """How a consumer in these circumstances is."""
    verdict, since, why, until, helps = _ended(of) or _away(now, of) or _under_way(now, of) or _consumption(now, of)
    return Health(
        verdict=verdict,
        since=since,
        why=why,
        until=until,
        would_restart_help=helps,
        partitions=of.progress.partitions,
        looked_at=of.progress.at,
    )


def is_silent(now: Instant, view: MembershipView) -> bool:
    """Whether a member that is in its group has not been answered for so long that its heartbeats count as unheard."""
    heard_at = view.last_heartbeat_at
    if heard_at is None or view.state not in _IN_TOUCH:
        return False
    return now - heard_at >= max(
        SILENT_S, SILENT_INTERVALS * (view.heartbeat_interval_s or ASSUMED_HEARTBEAT_INTERVAL_S)
    )


def _since(view: MembershipView) -> Instant | None:
    return view.transitions[-1].at if view.transitions else None


def _ended(of: Circumstances) -> _Found | None:
    """What ended, for good or until something else happens."""
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
        why = f"the coordinator does not count the member in any more{cause}; it rejoins when it has given up all"
        return _V.FENCED, _since(view), why, None, False
    return None


def _away(now: Instant, of: Circumstances) -> _Found | None:
    """Brokers that cannot be reached, and heartbeats that nobody answers: not the fault of this process."""
    view = of.view
    cause = f": {view.present_error}" if view.present_error is not None else ""
    if view.coordinator is None and view.state is not _S.UNSUBSCRIBED:
        since = _missed_since(view)
        if since is not None and now - since >= SEARCH_S:
            return _V.UNREACHABLE, since, f"waits for {view.waits_for_text}{cause}", view.lease_until, False
    heard_at = view.last_heartbeat_at
    if heard_at is not None and is_silent(now, view):
        why = f"no heartbeat was answered for {now - heard_at:.0f} s{cause}"
        return _V.UNREACHABLE, heard_at, why, view.lease_until, False
    if of.broker_lost_since is not None and now - of.broker_lost_since >= SEARCH_S:
        return _V.UNREACHABLE, of.broker_lost_since, "waits for a broker that librdkafka can fetch from", None, False
    return None


def _missed_since(view: MembershipView) -> Instant | None:
    """Since when the coordinator that is searched for is missing; None: there is no search.

    The search begins when a request has waited for its whole time, so the coordinator of a member in its group is
    missing from the moment at which the next heartbeat's answer was due.
    """
    since, heard_at = view.waits_since, view.last_heartbeat_at
    if since is None or heard_at is None or view.state not in _IN_TOUCH:
        return since
    return min(since, heard_at + (view.heartbeat_interval_s or ASSUMED_HEARTBEAT_INTERVAL_S))


def _under_way(now: Instant, of: Circumstances) -> _Found | None:
    """A membership that changes, and an application that does not poll."""
    view = of.view
    waits = f"waits for {view.waits_for_text}" if view.waits_for is not None else "on its way"
    match view.state:
        case _S.UNSUBSCRIBED if of.subscribed_at is not None:
            return _not_joined(now, of, of.subscribed_at)
        case _S.UNSUBSCRIBED if not of.progress.partitions:
            return _V.STARTING, _since(view), "nothing is subscribed or assigned", None, False
        case _S.RECONCILE | _S.UNSUBSCRIBING:
            return _rebalance(now, of, waits)
        case _S.JOINING | _S.ACK | _S.STABLE if (found := _not_polled(now, of)) is not None:
            return found
        case _S.JOINING if view.member_epoch > JOIN_EPOCH:
            # A classic member that keeps its place from one generation to the next.
            return _rebalance(now, of, waits)
        case _S.JOINING:
            return _V.JOINING, _since(view), waits, view.waits_until, False
        case _S.ACK:
            return _V.REBALANCING, _since(view), waits, view.waits_until, False
        case _:
            return None


def _not_joined(now: Instant, of: Circumstances, subscribed_at: Instant) -> _Found:
    """Subscribed, and in no group before the next poll: it holds nothing from others, however long that takes."""
    left_at = _since(of.view)
    since = subscribed_at if left_at is None else max(subscribed_at, left_at)
    silent_since = since if of.polled_at is None else max(since, of.polled_at)
    if now - silent_since < POLL_SHARE * of.max_poll_interval_s:
        waited_for = of.view.waits_for_text or WaitsFor.POLL_TO_JOIN
        return _V.STARTING, since, f"waits for {waited_for}", None, False
    why = "the application has subscribed and not polled since; the member joins with the next poll"
    return _V.NOT_POLLED, silent_since, why, None, False


def _rebalance(now: Instant, of: Circumstances, waits: str) -> _Found:
    """Healthy until its deadline: the rebalance timeout is max.poll.interval.ms, counted from the last poll."""
    view = of.view
    since = _since(view)
    begun = max((moment for moment in (since, of.polled_at) if moment is not None), default=now)
    until = view.waits_until if view.waits_until is not None else begun + of.max_poll_interval_s
    if now < until:
        return _V.REBALANCING, since, waits, until, False
    is_ours_to_end = view.waits_for is not None and view.waits_for.is_application
    return _V.STUCK, since, f"a rebalance is beyond its time: {waits}", None, is_ours_to_end


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
    """A settled member, or one that assigns by hand: how its partitions are."""
    view, progress = of.view, of.progress
    if progress.at is None:
        return (
            _V.CONSUMING if view.owned else _V.IDLE,
            _since(view),
            "nobody has looked at its partitions yet",
            None,
            False,
        )
    if not progress.partitions:
        why = f"waits for {view.waits_for_text}" if view.waits_for is not None else "it has no partitions"
        return _V.IDLE, view.waits_since or _since(view), why, None, False
    if progress.stuck:
        return _stuck(progress)
    if progress.paused == len(progress.partitions):
        return _V.PAUSED, None, "the application paused all of its partitions", None, False
    if progress.behind:
        first = progress.behind[0]
        others = f" and {len(progress.behind) - 1} more" if len(progress.behind) > 1 else ""
        why = f"more is written than is read of {_named(first)}{others}: {progress.lag} records behind in all"
        return _V.BEHIND, None, why, None, False
    moved_at = progress.progressed_at
    if moved_at is not None and now - moved_at < RECENT_S:
        return _V.CONSUMING, None, f"records come; {progress.lag} behind", None, False
    if progress.awaited:
        why = f"{progress.lag} records behind its positions, and none came in the last {RECENT_S:g} s"
        return _V.CONSUMING, moved_at, why, None, False
    return _V.IDLE, moved_at, _why_idle(progress), None, False


def _why_idle(progress: AssignmentProgress) -> str:
    untold = progress.untold
    if not untold:
        return "there is nothing behind its positions"
    ends = f" and {len(untold) - 1} more end" if len(untold) > 1 else " ends"
    return f"it is not known yet where {_named(untold[0])}{ends}"


def _stuck(progress: AssignmentProgress) -> _Found:
    # One that we hold up before one that a transaction does: that one would be mended by a restart. As long as its
    # leader has not said that there is something to read, it may be a transaction, or the leader itself.
    first = min(progress.stuck, key=lambda partition: (not progress.partitions[partition].is_readable, partition))
    seen = progress.partitions[first]
    others = f"; {len(progress.stuck) - 1} more stand, too" if len(progress.stuck) > 1 else ""
    known = f"{_named(first)} stands at {seen.position}, {seen.lag} behind"
    what = f"nothing comes of {_named(first)}" if seen.end is None else known
    why = f"{what}: it waits for {seen.waits_for_text}{others}"
    return _V.STUCK, seen.since, why, None, seen.is_readable


def _named(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"
