"""Which instance id a static member has, and what it does where another member holds it (KIP-345 on KIP-848).

A KIP-848 coordinator refuses the second holder of an instance id (UNRELEASED_INSTANCE_ID), the replacement of a crashed
member too. `group.instance.id.conflict.policy` decides:

- takeover: the newest wins. The holder is released on its behalf (a heartbeat with the holder's member id, our instance
  id and epoch -2), then the member joins and has the holder's partitions at once. Only a member that the application
  just made join takes over, and from one holder in each such join: one that was fenced, or comes back after a missed
  poll, may be the older of two and ends instead. Hence two processes never take an id from each other in turns. A
  holder whose heartbeat comes between release and join is back as it was, and is released again.
- wait: the join is repeated until the holder has left or its session is over, which takes a session timeout at most.
- fail: the member ends.

A group that is full refuses a returning instance, too, on brokers before KAFKA-20601, because its member id is new.
Then the place that the instance has already is given up for good (epoch -1 on behalf of its holder) and taken anew.

A member with a pool takes nothing from anybody: it asks who holds what (ConsumerGroupDescribe) and claims a free id
(`pool`). The description shows what is committed to the coordinator's log, which is a little behind: where the
coordinator's words in a refusal name another holder, those count.
"""

from __future__ import annotations

from collections.abc import Mapping

from consumer_membership.membership.backoff import Backoff, Jitter
from consumer_membership.membership.effects import (
    DescribeGroup,
    Effect,
    InstanceReleased,
    LearnSessionTimeout,
    Warned,
)
from consumer_membership.membership.events import GroupDescribed, GroupDescribeFailed
from consumer_membership.membership.pool import Pool
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.types import (
    FENCED_INSTANCE_CODE,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    UNRELEASED_INSTANCE_CODE,
    BrokerError,
    ConflictPolicy,
    Holder,
    Instant,
)

#: The longest session timeout that a broker allows by default (group.consumer.max.session.timeout.ms): how long a
#: holder is waited for where the group's own cannot be read.
LONGEST_SESSION_S = 60.0
#: librdkafka's max.poll.interval.ms: who left it alone did not choose it, and is not warned of it.
DEFAULT_POLL_S = 300.0
#: Beyond the session: the coordinator removes a member at the end of its timer, not before.
GRACE_S = 5.0
#: How often one holder is released in one join: its heartbeat has to come between two requests each time.
MOST_TAKEOVERS = 5
#: Between two claims of one member, spread by a half to either side: many that start together come apart.
CLAIM_SPACING_S = 0.1


def removed_for_good(instance_id: str | None, error: BrokerError) -> BrokerError:
    """What a static member of either protocol ends with that was taken out of its group while its session went on."""
    words = (
        f"the static member with group.instance.id '{instance_id}' was removed from the group for good, while its "
        "session was not over: an administrator did that, or a newer process with this id, for which the full group "
        f"had no other place; make a new consumer to come back (the coordinator said: {error.message or error.name})"
    )
    return BrokerError(code=error.code, name=error.name, message=words)


class InstanceId:
    """The instance id of one member: which one it is, and the way to it.

    `id` is None for a dynamic member, and while a pool's member has not chosen. `ghost` is whom the next heartbeat is
    to release. What ends the membership is returned as an error, for the member to fail with.
    """

    def __init__(self, settings: MemberSettings, jitter: Jitter) -> None:
        self._settings = settings
        self._jitter = jitter
        self._backoff = Backoff(settings.retry_backoff_s, settings.retry_backoff_max_s, jitter)
        self.id = settings.instance_id
        self.ghost: Holder | None = None
        #: The group's session timeout, where the broker told it: how long a static member may be away.
        self.session_timeout_s: float | None = None
        #: Who is waited for; a pool's member waits for whoever leaves first.
        self.waits_for: Holder | None = None
        self.waits_since: Instant | None = None
        self._is_newest = False
        #: Whom this join released to take the id over, and how often.
        self._taken_from: str | None = None
        self._takeovers = 0
        self._named: str | None = None
        self._pool = Pool(settings.instance_pool, jitter)
        self._last_request_id = 0
        self._awaited: int | None = None
        self._wants_description = False
        self._choose_at: Instant = 0.0
        self._wants_session_timeout = False
        self._own_releases = 0
        self._full: BrokerError | None = None
        self._is_refused = False
        self._has_made_room = False
        self._away_since: Instant | None = None
        self._notes: list[Effect] = []

    # ---- the way into the group ----

    def begin(self, *, is_newest: bool) -> None:
        """A join begins; `is_newest`: because the application just asked for it, not because of a fence or a pause.

        Who was never let in stays the newest, whatever interrupted it.
        """
        self.ghost, self._named, self._awaited = None, None, None
        self.waits_for, self.waits_since = None, None
        self._full, self._is_refused, self._has_made_room = None, False, False
        self._is_newest |= is_newest
        self._taken_from, self._takeovers = None, 0
        self._pool.begin_anew()
        self._notes.clear()
        self._choose_at = 0.0
        self._own_releases = 0
        self._backoff.reset()
        self._wants_session_timeout = self._settings.is_static
        self._wants_description = self._has_to_choose

    def joined(self) -> None:
        """The coordinator took the member in: from now on it is one that may be replaced by a newer one."""
        self.ghost, self._named, self.waits_for, self.waits_since = None, None, None, None
        self._is_newest = False
        self._own_releases = 0
        self._pool.begin_anew()

    @property
    def _has_to_choose(self) -> bool:
        return self.id is None and bool(self._pool)

    @property
    def may_join(self) -> bool:
        """Whether it is known as which instance to join, and whom to release before."""
        return self._awaited is None and not self._wants_description and not self._has_to_choose

    @property
    def is_waiting(self) -> bool:
        """Whether another member has to go before this one can join."""
        return self.waits_since is not None

    def waits_until(self) -> Instant | None:
        """The latest moment at which the holder's session ends; None: a pool's member waits without end."""
        if self.waits_since is None or self._pool:
            return None
        return self.waits_since + self._patience_s

    @property
    def _patience_s(self) -> float:
        return (self.session_timeout_s or LONGEST_SESSION_S) + GRACE_S

    def next_deadline(self) -> Instant | None:
        """When a pool's member looks again for a free id."""
        return self._choose_at if self._wants_description and self._awaited is None else None

    def orders(self, *, is_settled: bool, now: Instant) -> tuple[Effect, ...]:
        """What is to be asked now, the coordinator being known, and what is to be said.

        The session timeout can wait until everything more urgent is done (`is_settled`).
        """
        orders, self._notes = self._notes, []
        if self._wants_session_timeout and (is_settled or self.is_waiting):
            self._wants_session_timeout = False
            orders.append(LearnSessionTimeout())
        if self._wants_description and self._awaited is None and now >= self._choose_at:
            self._wants_description = False
            self._last_request_id += 1
            self._awaited = self._last_request_id
            orders.append(DescribeGroup(request_id=self._awaited))
        return tuple(orders)

    # ---- a held id ----

    def held(self, error: BrokerError, holder: str | None, own: str, now: Instant) -> BrokerError | None:
        """UNRELEASED_INSTANCE_ID: another member holds the id, or this very one, whose join was answered in vain.

        `holder` is the member id in the coordinator's words, `own` this member's. Returns what ends the membership.
        """
        if holder == own:
            self._own_releases += 1
            self.ghost = Holder(member_id=own)
            return None
        if self._pool:
            self._let_go(now)
            return None
        is_free_to = self._taken_from is None or (holder == self._taken_from and self._takeovers < MOST_TAKEOVERS)
        takes_over = self._settings.conflict_policy is ConflictPolicy.TAKEOVER and self._is_newest and is_free_to
        if takes_over and (holder is not None or not self.is_waiting):
            self._named = holder
            self._wants_description, self._choose_at = True, now
            return None
        if takes_over or self._settings.conflict_policy is ConflictPolicy.WAIT:
            return self._wait(error, Holder(member_id=holder) if holder else None, now)
        return self._refusal(error, holder)

    @property
    def backs_off(self) -> bool:
        """Whether the join is worth repeating after a pause only."""
        return self.is_waiting or self._own_releases > 1

    def _let_go(self, now: Instant) -> None:
        """The id of the pool is another's: look for one that is free."""
        if self.id is not None:
            self._pool.refuse(self.id)
        self.id, self.ghost = None, None
        self._wants_description, self._choose_at = True, now + CLAIM_SPACING_S * (0.5 + self._jitter())

    def _wait(self, error: BrokerError, holder: Holder | None, now: Instant) -> BrokerError | None:
        self.waits_for = holder or self.waits_for
        if self.waits_since is None:
            self.waits_since = now
            words = f"group.instance.id '{self.id}' is held by {self._called(self.waits_for)}: waiting until it leaves"
            self._notes.append(Warned(words=f"{words} or its session ends, {self._patience_s:.0f} s at most"))
        if now < self.waits_since + self._patience_s:
            return None
        words = (
            f"group.instance.id '{self.id}' is still held by {self._called(self.waits_for)} after "
            f"{now - self.waits_since:.0f} s, longer than a session lasts: the holder lives; close it, or give this "
            f"process its own id (the coordinator said: {error.message})"
        )
        return BrokerError(code=UNRELEASED_INSTANCE_CODE, name="UNRELEASED_INSTANCE_ID", message=words)

    @staticmethod
    def _called(holder: Holder | None) -> str:
        return f"member {holder}" if holder else "another member"

    def _refusal(self, error: BrokerError, holder: str | None) -> BrokerError:
        """What a member ends with that may not take over, or not any more.

        Who was replaced while it was out of the group is told the same as one that is replaced in it.
        """
        held = f"group.instance.id '{self.id}' is held by {self._called(Holder(member_id=holder) if holder else None)}"
        if self._settings.conflict_policy is ConflictPolicy.FAIL:
            code, name = UNRELEASED_INSTANCE_CODE, "UNRELEASED_INSTANCE_ID"
            remedy = "close it, give this process its own id, or set group.instance.id.conflict.policy to takeover"
        else:
            code, name = FENCED_INSTANCE_CODE, "FENCED_INSTANCE_ID"
            held += ", which joined with it while this member was on its way or out of the group"
            remedy = "the newest wins, so this one ends; give each process its own id"
        words = f"{held}; {remedy} (the coordinator said: {error.message})"
        return BrokerError(code=code, name=name, message=words)

    # ---- a full group ----

    def refused_as_full(self, error: BrokerError, now: Instant) -> bool:
        """GROUP_MAX_SIZE_REACHED: whether it is worth looking if this instance has a place in the group already."""
        if self.id is None or self._has_made_room:
            return False
        self._full = error
        self._wants_description, self._choose_at = True, now
        return True

    def _make_room(self, holder: Holder | None) -> None:
        may_take_over = (
            self._settings.conflict_policy is ConflictPolicy.TAKEOVER and self._is_newest and self._taken_from is None
        )
        if holder is None or not (holder.member_epoch == LEAVE_STATIC_EPOCH or may_take_over):
            self._is_refused = True
            return
        self._full, self._has_made_room = None, True
        self._take_over_from(holder)

    @property
    def release_epoch(self) -> int:
        """With which epoch the ghost is released: for a while, or for good where its place is needed."""
        return LEAVE_EPOCH if self._has_made_room else LEAVE_STATIC_EPOCH

    # ---- the description ----

    def described(self, event: GroupDescribed, own: str, now: Instant) -> None:
        """The group's members are known: choose an id of the pool, or whom to release."""
        if event.request_id != self._awaited:
            return
        self._awaited = None
        if self._full is not None:
            self._make_room(event.holders.get(self.id or ""))
            return
        if self._pool:
            self._choose(event.holders, now)
            return
        found = event.holders.get(self.id or "")
        if found is None or (self._named is not None and found.member_id != self._named):
            found = Holder(member_id=self._named) if self._named is not None else None
        if found is None or found.member_epoch == LEAVE_STATIC_EPOCH:
            # Nobody holds it any more: the next join will tell.
            self._wait_for_release(now)
        elif found.member_id == own:
            self.ghost = found
        else:
            self._take_over_from(found)

    def _take_over_from(self, holder: Holder) -> None:
        self.ghost, self._taken_from, self._own_releases = holder, holder.member_id, 0
        self._takeovers += 1

    def not_described(self, event: GroupDescribeFailed, now: Instant) -> None:
        """Who holds what cannot be learnt: the coordinator's words have to do, and a pool is tried at random."""
        if event.request_id != self._awaited:
            return
        self._awaited = None
        if self._full is not None:
            self._is_refused = True
        elif self._pool:
            self._choose({}, now)
        elif self._named is not None:
            self._take_over_from(Holder(member_id=self._named))
        else:
            self._wait_for_release(now)
            words = (
                f"Who holds group.instance.id '{self.id}' cannot be learnt ({event.error}), so that it cannot be taken "
                "over: the member waits for the holder's session to end; grant DESCRIBE on the group"
            )
            self._notes.append(Warned(words=words))

    def _wait_for_release(self, now: Instant) -> None:
        self.waits_since = now if self.waits_since is None else self.waits_since

    def released(self) -> None:
        """The release was answered, or there was nothing to release any more: join."""
        holder, self.ghost = self.ghost, None
        if holder is not None and self.id is not None and not self._own_releases:
            self._notes.append(InstanceReleased(instance_id=self.id, holder=holder))

    def overtaken(self, error: BrokerError) -> BrokerError:
        """FENCED_INSTANCE_ID instead of a release: yet another member was quicker."""
        words = (
            f"another member took group.instance.id '{self.id}' over at the same moment; give each process its own id "
            f"(the coordinator said: {error.message})"
        )
        return BrokerError(code=FENCED_INSTANCE_CODE, name="FENCED_INSTANCE_ID", message=words)

    # ---- the pool ----

    def _choose(self, holders: Mapping[str, Holder], now: Instant) -> None:
        self.id = self._pool.choose(holders)
        if self.id is not None:
            return
        self._pool.begin_anew()
        self._wants_description, self._choose_at = True, now + self._backoff.next_delay()
        if self.waits_since is None:
            self.waits_since = now
            self._notes.append(Warned(words=f"No id of group.instance.id.pool is free: {self._pool.told(holders)}"))

    @property
    def refusal(self) -> BrokerError | None:
        """What the member ends with: the group is full, or its pool is exhausted and it is not to wait."""
        if self._is_refused:
            return self._full
        waits = self._settings.conflict_policy is ConflictPolicy.WAIT
        if waits or self.waits_since is None or not self._has_to_choose:
            return None
        return BrokerError(code=UNRELEASED_INSTANCE_CODE, name="UNRELEASED_INSTANCE_ID", message=self._pool.exhaustion)

    def fenced(self, now: Instant) -> bool:
        """FENCED_INSTANCE_ID: another member has the id. Whether there is another one to claim, from the pool."""
        if not self._pool:
            return False
        self._let_go(now)
        return True

    # ---- how long one may be away ----

    def doubt_session_timeout(self) -> None:
        """The broker's heartbeat interval has changed: who changed that may have changed the session timeout, too."""
        self._wants_session_timeout = self._settings.is_static

    def learned(self, session_timeout_s: float | None) -> None:
        """Note the group's session timeout; warn where the member's own patience was chosen longer."""
        limit, self.session_timeout_s = self.session_timeout_s, session_timeout_s or self.session_timeout_s
        poll_s = self._settings.max_poll_interval_s
        if session_timeout_s is None or session_timeout_s == limit or poll_s in (DEFAULT_POLL_S, session_timeout_s):
            return
        if poll_s > session_timeout_s:
            words = (
                f"Static member '{self.id}': max.poll.interval.ms={poll_s * 1000:.0f} is longer than the group's "
                f"session timeout of {session_timeout_s:g} s, for which its place is kept: its partitions stand still "
                "until a missed poll is noticed, and for up to a session more; lower it, or raise "
                "consumer.session.timeout.ms of the group"
            )
            self._notes.append(Warned(words=words))

    def left(self, now: Instant) -> None:
        """The member gave its place back for a while."""
        self._away_since = now

    def returned(self, now: Instant) -> None:
        """The member is in its group again: warn if it was away for longer than its place was kept."""
        since, self._away_since = self._away_since, None
        limit = self.session_timeout_s
        if since is None or limit is None or now - since <= limit:
            return
        words = (
            f"Static member '{self.id}' was away for {now - since:.0f} s, longer than the group's session timeout of "
            f"{limit:g} s: its partitions went to other members meanwhile; come back sooner, or raise "
            "consumer.session.timeout.ms of the group"
        )
        self._notes.append(Warned(words=words))
