"""Which instance id a static member has, and what it does where another member holds it (KIP-345 on KIP-848).

A KIP-848 coordinator refuses the second holder of an instance id (UNRELEASED_INSTANCE_ID), the replacement of a crashed
member too. `group.instance.id.conflict.policy` decides:

- takeover: the newest wins. The holder is released on its behalf (a heartbeat with the holder's member id, our instance
  id and epoch -2), then the member joins and has the holder's partitions at once. Only a member that the application
  just made join takes over, and from one holder in each such join: one that was fenced, or comes back after a missed
  poll, may be the older of two and ends instead. Hence two processes never take an id from each other in turns. A
  holder whose heartbeat comes between release and join is back as it was, and is released again.
  A member that hears of the holder later than `NEWEST_FOR_S` after the application subscribed cannot know whether the
  holder joined before or after that: its process may have been stopped, and replaced. It waits, as below. The broker
  cannot help: it does not tell when a member joined.
- wait: the join is repeated until the holder has left or its session is over, which takes a session timeout at most.
- fail: the member ends.

A group that is full refuses a returning instance, too, on brokers before KAFKA-20601, because its member id is new.
Then the place that the instance has already is given up for good (epoch -1 on behalf of its holder) and taken anew.

A member with a pool (`group.instance.id.pool`) takes nothing from anybody: it asks who holds what
(ConsumerGroupDescribe) and claims a free id. One that was released with -2 comes first, because its partitions wait for
whoever takes it; else one that nobody holds; at random among equals, so that many who claim at the same moment try
different ones. The coordinator decides: it gives each id to one member. The description shows what is committed to its
log, which is a little behind: where its words in a refusal name another holder, those count.

| state | the join | meaning |
|---|---|---|
| UNCLAIMED | - | no join has begun |
| READY | goes out | it is known as which instance to join; with `waits_since` another member has to go first |
| LOOKING | waits | who holds the id, or which one is free, is to be asked |
| ASKED | waits | DescribeGroup is out |
| RELEASING | waits | the next heartbeat releases the holder, or this member's own ghost |
| HELD | - | the coordinator let the member in |
| REFUSED | - | there is no id, or no place, for this member: it ends |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType

from consumer_membership.light_dataclasses import dataclass
from consumer_membership.membership.backoff import Backoff, Jitter
from consumer_membership.membership.effects import (
    DescribeGroup,
    Effect,
    Heartbeat,
    InstanceReleased,
    LearnSessionTimeout,
    Warned,
)
from consumer_membership.membership.events import GroupDescribed, GroupDescribeFailed
from consumer_membership.membership.protocol import GRACE_S
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.states import StateMachine
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
#: How soon after the application subscribed a holder must be heard of to be surely the older one. A join takes some ten
#: milliseconds, over slow networks with TLS and SASL a second; to replace a process that was stopped takes longer.
NEWEST_FOR_S = 2.0
#: How often one holder is released in one join: its heartbeat has to come between two requests each time.
MOST_TAKEOVERS = 5
#: Between two claims of one member, spread by a half to either side: many that start together come apart.
CLAIM_SPACING_S = 0.1
#: How many of the pool's holders a warning names.
TOLD_HOLDERS = 3


class ClaimState(Enum):
    """How far a member's claim to its instance id is; the module's table says what each means."""

    UNCLAIMED = "UNCLAIMED"
    READY = "READY"
    LOOKING = "LOOKING"
    ASKED = "ASKED"
    RELEASING = "RELEASING"
    HELD = "HELD"
    REFUSED = "REFUSED"

    def __str__(self) -> str:
        """The bare name."""
        return self.value


_S = ClaimState
#: Where a join may begin, or begin anew, from every state.
_BEGINS = frozenset({_S.READY, _S.LOOKING})

#: From each state, the states that may follow. To stay is not a transition.
CLAIM_TRANSITIONS: Mapping[ClaimState, frozenset[ClaimState]] = MappingProxyType(
    {
        _S.UNCLAIMED: _BEGINS,
        _S.READY: frozenset({_S.LOOKING, _S.RELEASING, _S.HELD}),
        _S.LOOKING: frozenset({_S.READY, _S.ASKED}),
        _S.ASKED: _BEGINS | {_S.RELEASING, _S.REFUSED},
        _S.RELEASING: _BEGINS,
        _S.HELD: _BEGINS,
        _S.REFUSED: frozenset(),
    }
)


class Age(Enum):
    """How old a member's claim is beside another member's."""

    #: The application asked for it, and it was never let in since: others that hold the id are older.
    NEWEST = "newest"
    #: As NEWEST, but so long ago that the holder may be newer.
    UNKNOWN = "unknown"
    #: It was in the group: others that hold the id since are newer.
    OLDER = "older"


@dataclass(slots=True)
class _Attempt:
    """What one join has met so far."""

    #: The holder's member id, where the coordinator's words in a refusal have it.
    named: str | None = None
    #: Who is waited for; a pool's member waits for whoever leaves first.
    waits_for: Holder | None = None
    waits_since: Instant | None = None
    #: Whom this join released to take the id over, and how often.
    taken_from: str | None = None
    takeovers: int = 0
    #: How often the coordinator had this very member's id, whose join was answered in vain.
    own_releases: int = 0
    #: Why a full group refused the join, while a place in it is looked for, and whether one was given up for it.
    full: BrokerError | None = None
    has_made_room: bool = False
    #: Not before then is the group asked.
    look_at: Instant = 0.0
    #: What the member ends with.
    refusal: BrokerError | None = None


class GroupSession:
    """How long a static member may be away: the group's session timeout, and since when this one is.

    It is read after each join, when the broker's heartbeat interval changed (an operator who changed that may have
    changed this, too), and again after each session: a timeout that was lowered is known after the former one at most.
    """

    def __init__(self) -> None:
        #: None: the broker has not told it.
        self.timeout_s: float | None = None
        self._is_wanted = False
        self._asked_at: Instant | None = None
        self._away_since: Instant | None = None

    def doubt(self) -> None:
        """Read it as soon as there is time."""
        self._is_wanted = True

    def ask(self, now: Instant) -> list[Effect]:
        """What is to be asked; nothing where it was read a short time ago."""
        is_old = self._asked_at is not None and now >= self._asked_at + (self.timeout_s or LONGEST_SESSION_S)
        if not (self._is_wanted or is_old):
            return []
        self._is_wanted, self._asked_at = False, now
        return [LearnSessionTimeout()]

    def learn(self, timeout_s: float | None) -> bool:
        """Note it; whether it is news."""
        before, self.timeout_s = self.timeout_s, timeout_s or self.timeout_s
        return self.timeout_s != before

    def leave(self, now: Instant) -> None:
        """The member gives its place back for a while."""
        self._away_since = now

    def returned(self, now: Instant) -> float | None:
        """The member is in its group again: for how long it was away if its place was not kept for so long."""
        since, self._away_since = self._away_since, None
        if since is None or self.timeout_s is None or now - since <= self.timeout_s:
            return None
        return now - since


class Pool:
    """The ids of one member's pool, and which of them were refused in this join; empty: there is no pool."""

    def __init__(self, ids: tuple[str, ...], jitter: Jitter) -> None:
        self._ids = ids
        self._jitter = jitter
        self._refused: set[str] = set()

    def __bool__(self) -> bool:
        """Whether there is a pool at all."""
        return bool(self._ids)

    def refuse(self, instance_id: str) -> None:
        """Another member has this id."""
        self._refused.add(instance_id)

    def begin_anew(self) -> None:
        """What was refused may be free by now."""
        self._refused.clear()

    def choose(self, holders: Mapping[str, Holder]) -> str | None:
        """An id to try; None: each is held, or was refused: the description may not show its holder yet."""
        free = [i for i in self._ids if i not in holders or holders[i].member_epoch == LEAVE_STATIC_EPOCH]
        fresh = [i for i in free if i not in self._refused]
        released = [i for i in fresh if i in holders]
        candidates = released or fresh
        return candidates[int(self._jitter() * len(candidates))] if candidates else None

    def told(self, holders: Mapping[str, Holder]) -> str:
        """Who holds the ids, in words."""
        known = [f"{i} is held by {holders[i]}" for i in self._ids if i in holders]
        shown = "; ".join(known[:TOLD_HOLDERS]) or "all of them were refused"
        return shown + (f"; and {len(known) - TOLD_HOLDERS} more" if len(known) > TOLD_HOLDERS else "")

    @property
    def exhaustion(self) -> str:
        """What to do where no id is free, in words."""
        return (
            f"every one of the {len(self._ids)} ids of group.instance.id.pool is held ({self._ids[0]} ... "
            f"{self._ids[-1]}); make the pool larger, close a member, or set group.instance.id.conflict.policy to wait"
        )


class InstanceClaim:
    """The instance id of one member: which one it is, and the way to it.

    `id` is None for a dynamic member, and while a pool's member has not chosen. What ends the membership is returned as
    an error, for the member to fail with.
    """

    def __init__(self, settings: MemberSettings, jitter: Jitter) -> None:
        self._settings = settings
        self._jitter = jitter
        self._backoff = Backoff(settings.retry_backoff_s, settings.retry_backoff_max_s, jitter)
        self.id = settings.instance_id
        self.session = GroupSession()
        self._machine = StateMachine("a claim", CLAIM_TRANSITIONS)
        self._pool = Pool(settings.instance_pool, jitter)
        self._attempt = _Attempt()
        #: Whom the next heartbeat is to release.
        self.stale_holder: Holder | None = None
        #: A member that was never let in keeps its age, whatever interrupted its join.
        self.age = Age.OLDER
        self._asked_at: Instant = 0.0
        self._awaited: int | None = None
        self._notes: list[Effect] = []

    def _enter(self, state: ClaimState, reason: str) -> None:
        """Go to this state, or stay there; only RELEASING has a ghost, and only ASKED waits for an answer."""
        if state is not _S.RELEASING:
            self.stale_holder = None
        if state is not _S.ASKED:
            self._awaited = None
        if state is not self.state:
            self._machine.go(state, reason)

    # ---- questions ----

    @property
    def state(self) -> ClaimState:
        """How far the claim is."""
        return self._machine.state

    @property
    def may_join(self) -> bool:
        """Whether it is known as which instance to join, and whom to release before."""
        return self.state not in (_S.LOOKING, _S.ASKED)

    @property
    def is_waiting(self) -> bool:
        """Whether another member has to go before this one can join."""
        return self._attempt.waits_since is not None

    @property
    def waits_since(self) -> Instant | None:
        """Since when it waits for another member."""
        return self._attempt.waits_since

    def waits_until(self) -> Instant | None:
        """The latest moment at which the holder's session ends; None: a pool's member waits without end."""
        since = self._attempt.waits_since
        return None if since is None or self._pool else since + self._max_wait_s

    @property
    def _max_wait_s(self) -> float:
        return (self.session.timeout_s or LONGEST_SESSION_S) + GRACE_S

    @property
    def backs_off(self) -> bool:
        """Whether the join is worth repeating after a pause only."""
        return self.is_waiting or self._attempt.own_releases > 1

    @property
    def release(self) -> Heartbeat | None:
        """The heartbeat that releases the ghost, for a while, or for good where its place is needed."""
        if self.stale_holder is None:
            return None
        epoch = LEAVE_EPOCH if self._attempt.has_made_room else LEAVE_STATIC_EPOCH
        return Heartbeat(member_id=self.stale_holder.member_id, member_epoch=epoch, instance_id=self.id)

    @property
    def refusal(self) -> BrokerError | None:
        """What the member ends with: the group is full, or its pool is exhausted and it is not to wait."""
        return self._attempt.refusal

    def describe(self) -> str:
        """What is waited for."""
        if self._pool:
            return "an id of group.instance.id.pool to become free"
        holder = _called(self._attempt.waits_for)
        return f"group.instance.id '{self.id}', held by {holder}: until it leaves or its session ends"

    def next_deadline(self) -> Instant | None:
        """When the group is to be asked."""
        return self._attempt.look_at if self.state is _S.LOOKING else None

    # ---- the way into the group ----

    def begin(self, *, asked_at: Instant | None) -> None:
        """A join begins; `asked_at`: when the application asked for it; None: it goes on after a fence or a pause."""
        self._attempt = _Attempt()
        if asked_at is not None:
            self.age, self._asked_at = Age.NEWEST, asked_at
        self._pool.begin_anew()
        self._notes.clear()
        self._backoff.reset()
        if self._settings.is_static:
            self.session.doubt()
        has_to_choose = self.id is None and bool(self._pool)
        self._enter(_S.LOOKING if has_to_choose else _S.READY, "a join begins")

    def joined(self) -> None:
        """The coordinator took the member in: from now on it is one that may be replaced by a newer one."""
        self._attempt = _Attempt()
        self.age = Age.OLDER
        self._pool.begin_anew()
        self._enter(_S.HELD, "the coordinator let the member in")

    def orders(self, next_request_id: Callable[[], int], *, is_settled: bool, now: Instant) -> tuple[Effect, ...]:
        """What is to be asked now, the coordinator being known, and what is to be said.

        The session timeout can wait until everything more urgent is done (`is_settled`).
        """
        orders, self._notes = self._notes, []
        if is_settled or self.is_waiting:
            orders += self.session.ask(now)
        if self.state is _S.LOOKING and now >= self._attempt.look_at:
            self._enter(_S.ASKED, "the group is asked who holds which id")
            self._awaited = next_request_id()
            orders.append(DescribeGroup(request_id=self._awaited))
        return tuple(orders)

    def _look(self, at: Instant, reason: str) -> None:
        self._attempt.look_at = at
        self._enter(_S.LOOKING, reason)

    # ---- a held id ----

    def on_unreleased(self, error: BrokerError, holder: str | None, own: str, now: Instant) -> BrokerError | None:
        """UNRELEASED_INSTANCE_ID: another member holds the id, or this very one, whose join was answered in vain.

        `holder` is the member id in the coordinator's words, `own` this member's. Returns what ends the membership.
        """
        attempt = self._attempt
        if holder == own:
            attempt.own_releases += 1
            self._release(Holder(member_id=own), "the coordinator counts this member in, and does not know it")
            return None
        if self._pool:
            self._let_go(now)
            return None
        self._judge(now)
        is_free_to = attempt.taken_from is None or (holder == attempt.taken_from and attempt.takeovers < MOST_TAKEOVERS)
        takes_over = self._takes_over and is_free_to
        if takes_over and (holder is not None or not self.is_waiting):
            attempt.named = holder
            self._look(now, "another member holds the id")
            return None
        self._enter(_S.READY, "another member holds the id, and it is not to be taken over now")
        if takes_over or self._waits:
            return self._wait(error, Holder(member_id=holder) if holder else None, now)
        return self._refusal_of(error, holder)

    def may_take_over(self, now: Instant) -> bool:
        """Whether a join that goes out now may take the place of a holder that the broker would not protect."""
        return self._takes_over and not self._pool and now <= self._asked_at + NEWEST_FOR_S

    @property
    def _takes_over(self) -> bool:
        return self._settings.conflict_policy is ConflictPolicy.TAKEOVER and self.age is Age.NEWEST

    @property
    def _waits(self) -> bool:
        policy = self._settings.conflict_policy
        return policy is ConflictPolicy.WAIT or (policy is ConflictPolicy.TAKEOVER and self.age is Age.UNKNOWN)

    def _judge(self, now: Instant) -> None:
        """A holder is heard of now: unless this join heard of it before, it may be the newer one by now."""
        attempt = self._attempt
        knows_holder = attempt.named is not None or attempt.taken_from is not None
        if self.age is Age.NEWEST and not knows_holder and now > self._asked_at + NEWEST_FOR_S:
            self.age = Age.UNKNOWN

    def _release(self, ghost: Holder, reason: str) -> None:
        self._enter(_S.RELEASING, reason)
        self.stale_holder = ghost

    def _let_go(self, now: Instant) -> None:
        """The id of the pool is another's: look for one that is free."""
        if self.id is not None:
            self._pool.refuse(self.id)
        self.id = None
        self._look(now + CLAIM_SPACING_S * (0.5 + self._jitter()), "the id of the pool is another's")

    def _wait(self, error: BrokerError, holder: Holder | None, now: Instant) -> BrokerError | None:
        attempt = self._attempt
        attempt.waits_for = holder or attempt.waits_for
        called = _called(attempt.waits_for)
        if attempt.waits_since is None:
            attempt.waits_since = now
            words = (
                f"group.instance.id '{self.id}' is held by {called}: waiting until it leaves or its session ends, "
                f"{self._max_wait_s:.0f} s at most"
            )
            if self.age is Age.UNKNOWN:
                words += (
                    f"; it is not taken over, because the application subscribed {now - self._asked_at:.1f} s ago, and "
                    "the holder may have joined since"
                )
            self._notes.append(Warned(words=words))
        if now < attempt.waits_since + self._max_wait_s:
            return None
        words = (
            f"group.instance.id '{self.id}' is still held by {called} after {now - attempt.waits_since:.0f} s, longer "
            "than a session lasts: the holder lives; close it, or give this process its own id (the coordinator said: "
            f"{error.message})"
        )
        return _unreleased(words)

    def _refusal_of(self, error: BrokerError, holder: str | None) -> BrokerError:
        """What a member ends with that may not take over, or not any more.

        Who was replaced while it was out of the group is told the same as one that is replaced in it.
        """
        held = f"group.instance.id '{self.id}' is held by {_called(Holder(member_id=holder) if holder else None)}"
        if self._settings.conflict_policy is ConflictPolicy.FAIL:
            remedy = "close it, give this process its own id, or set group.instance.id.conflict.policy to takeover"
            return _unreleased(f"{held}; {remedy} (the coordinator said: {error.message})")
        return _fenced(
            f"{held}, which joined with it while this member was on its way or out of the group; the newest wins, so "
            f"this one ends; give each process its own id (the coordinator said: {error.message})"
        )

    # ---- a full group ----

    def look_for_place(self, error: BrokerError, now: Instant) -> bool:
        """GROUP_MAX_SIZE_REACHED: see if this instance has a place in the group already; False: it is not worth it."""
        if self.id is None or self._attempt.has_made_room:
            return False
        self._attempt.full = error
        self._look(now, "the group is full")
        return True

    def _make_room(self, holder: Holder | None) -> None:
        attempt = self._attempt
        may_take_over = self._takes_over and attempt.taken_from is None
        if holder is None or not (holder.member_epoch == LEAVE_STATIC_EPOCH or may_take_over):
            self._refuse(attempt.full)
            return
        attempt.full, attempt.has_made_room = None, True
        self._take_over_from(holder)

    def _refuse(self, error: BrokerError | None) -> None:
        self._attempt.refusal = error
        self._enter(_S.REFUSED, "there is no place for this member")

    # ---- the description ----

    def described(self, event: GroupDescribed, own: str, now: Instant) -> None:
        """The group's members are known: choose an id of the pool, or whom to release."""
        if event.request_id != self._awaited:
            return
        attempt, found = self._attempt, event.holders.get(self.id or "")
        self._judge(now)
        if attempt.full is not None:
            self._make_room(found)
            return
        if self._pool:
            self._choose(event.holders, now)
            return
        if found is None or (attempt.named is not None and found.member_id != attempt.named):
            found = Holder(member_id=attempt.named) if attempt.named is not None else None
        if found is None or found.member_epoch == LEAVE_STATIC_EPOCH:
            # Nobody holds it any more: the next join will tell.
            self._wait_for_release(now)
        elif found.member_id == own:
            self._release(found, "the holder is this member itself")
        elif self._takes_over:
            self._take_over_from(found)
        else:
            self._wait_for_release(now)

    def not_described(self, event: GroupDescribeFailed, now: Instant) -> None:
        """Who holds what cannot be learnt: the coordinator's words have to do, and a pool is tried at random."""
        if event.request_id != self._awaited:
            return
        attempt = self._attempt
        if attempt.full is not None:
            self._refuse(attempt.full)
        elif self._pool:
            self._choose({}, now)
        elif attempt.named is not None:
            self._take_over_from(Holder(member_id=attempt.named))
        else:
            self._wait_for_release(now)
            words = (
                f"Who holds group.instance.id '{self.id}' cannot be learnt ({event.error}), so that it cannot be taken "
                "over: the member waits for the holder's session to end; grant DESCRIBE on the group"
            )
            self._notes.append(Warned(words=words))

    def _take_over_from(self, holder: Holder) -> None:
        attempt = self._attempt
        attempt.taken_from, attempt.own_releases = holder.member_id, 0
        attempt.takeovers += 1
        self._release(holder, "the newest has the id")

    def _wait_for_release(self, now: Instant) -> None:
        if self._attempt.waits_since is None:
            self._attempt.waits_since = now
        self._enter(_S.READY, "nobody is known to hold the id")

    # ---- the release ----

    def released(self) -> None:
        """The release was answered, or there was nothing to release any more: join."""
        if self.stale_holder is not None and self.id is not None and not self._attempt.own_releases:
            self._notes.append(InstanceReleased(instance_id=self.id, holder=self.stale_holder))
        self._enter(_S.READY, "the holder was released")

    def cancel_release(self) -> None:
        """Release nobody: the coordinator does not let this member do so."""
        self._enter(_S.READY, "the release was refused")

    def lost_race_error(self, error: BrokerError) -> BrokerError:
        """FENCED_INSTANCE_ID instead of a release: yet another member was quicker."""
        return _fenced(
            f"another member took group.instance.id '{self.id}' over at the same moment; give each process its own id "
            f"(the coordinator said: {error.message})"
        )

    # ---- the pool ----

    def _choose(self, holders: Mapping[str, Holder], now: Instant) -> None:
        self.id = self._pool.choose(holders)
        if self.id is not None:
            self._enter(_S.READY, "an id of the pool was chosen")
            return
        self._pool.begin_anew()
        if self._settings.conflict_policy is not ConflictPolicy.WAIT:
            self._refuse(_unreleased(self._pool.exhaustion))
            return
        self._look(now + self._backoff.next_delay(), "no id of the pool is free")
        if self._attempt.waits_since is None:
            self._attempt.waits_since = now
            self._notes.append(Warned(words=f"No id of group.instance.id.pool is free: {self._pool.told(holders)}"))

    def try_another(self, now: Instant) -> bool:
        """FENCED_INSTANCE_ID: another member has the id. Claim another one of the pool; False: there is no pool."""
        if self._pool:
            self._let_go(now)
        return bool(self._pool)

    # ---- how long one may be away ----

    def learn_session_timeout(self, session_timeout_s: float | None) -> None:
        """Note the group's session timeout; warn where the member's own patience was chosen longer."""
        poll_s = self._settings.max_poll_interval_s
        if not self.session.learn(session_timeout_s) or session_timeout_s is None or poll_s == DEFAULT_POLL_S:
            return
        if poll_s > session_timeout_s:
            words = (
                f"Static member '{self.id}': max.poll.interval.ms={poll_s * 1000:.0f} is longer than the group's "
                f"session timeout of {session_timeout_s:g} s, for which its place is kept: its partitions stand still "
                "until a missed poll is noticed, and for up to a session more; lower it, or raise "
                "consumer.session.timeout.ms of the group"
            )
            self._notes.append(Warned(words=words))

    def returned(self, now: Instant) -> None:
        """The member is in its group again: warn if it was away for longer than its place was kept."""
        away_s = self.session.returned(now)
        if away_s is not None:
            words = (
                f"Static member '{self.id}' was away for {away_s:.0f} s, longer than the group's session timeout of "
                f"{self.session.timeout_s:g} s: its partitions went to other members meanwhile; come back sooner, or "
                "raise consumer.session.timeout.ms of the group"
            )
            self._notes.append(Warned(words=words))


def _called(holder: Holder | None) -> str:
    return f"member {holder}" if holder else "another member"


def _unreleased(words: str) -> BrokerError:
    return BrokerError(code=UNRELEASED_INSTANCE_CODE, name="UNRELEASED_INSTANCE_ID", message=words)


def _fenced(words: str) -> BrokerError:
    return BrokerError(code=FENCED_INSTANCE_CODE, name="FENCED_INSTANCE_ID", message=words)
