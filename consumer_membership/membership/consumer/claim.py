"""The instance id of a static member, and its actions if another member holds it (KIP-345 on KIP-848).

A KIP-848 coordinator refuses the second holder of an instance id (UNRELEASED_INSTANCE_ID), also the replacement of a
crashed member. `group.instance.id.conflict.policy` decides:

- takeover: the newest member wins. It releases the holder (a heartbeat with the holder's member id, this instance id
  and epoch -2), then joins and has the holder's partitions at once. Only a member that the application just made join
  takes over, and from one holder in each such join: a member that was fenced, or returns after a missed poll, may be
  the older of two and ends instead. Hence two processes never take an id from each other in turns. A
  holder whose heartbeat arrives between release and join holds the id again, and is released again.
  A member that learns of the holder later than `NEWEST_FOR_S` after the application subscribed may have been stopped,
  and replaced by the holder. The broker does not report when a member joined. So the member takes over only if the
  holder's member id shows that its consumer was created before this one (`member_ids`). Otherwise it waits, as below.
- takeover-when-dead: as takeover, but only with proof that the process of the holder has ended (`CheckHolder`); the
  ages do not matter then. Without proof the member waits, as below, but without a time limit: a holder that is alive
  after a session is no reason to end. Two processes that a supervisor restarts in turns therefore never take an id from
  each other.
- wait: the group is described again and again (`release_watch`) until the holder has left or its session is over,
  which takes a session timeout at most; then the join is repeated. Where the group cannot be described, the join itself
  is repeated after a backoff.
- fail: the member ends.
- hand-over: as wait, but the holder receives a request to release the id as soon as this member is ready
  (`hand_over`).

Brokers before KAFKA-20601 also refuse a returning instance if the group is full, because its member id is new.
Then the member removes the instance's former member (epoch -1 on its behalf) and joins again.

A member with a pool (`group.instance.id.pool`) takes no id from a live holder: it requests the holders
(ConsumerGroupDescribe) and claims a free id. An id that was released with -2 comes first, because its partitions wait
for its next holder; then an id without a holder. Among several such ids the member chooses at random, so that members
that claim at the same moment try different ids. The coordinator gives each id to one member. The description shows the
committed part of the coordinator's log, which is a little behind: if a refusal's message names another holder, the
message counts.

"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import assert_never

from consumer_membership.light_dataclasses import dataclass
from consumer_membership.membership.backoff import Backoff, Jitter
from consumer_membership.membership.consumer.claim_states import CLAIM_TARGETS, ClaimState, ClaimTrigger
from consumer_membership.membership.consumer.hand_over import HelperGroup, is_present
from consumer_membership.membership.consumer.pool import Pool
from consumer_membership.membership.consumer.predecessor import DESCRIBE_EVERY_S, Predecessor
from consumer_membership.membership.consumer.release_watch import ReleaseWatch
from consumer_membership.membership.consumer.reservations import Reservations
from consumer_membership.membership.consumer.session_timeout import SessionTimeout
from consumer_membership.membership.consumer.successor import Successor
from consumer_membership.membership.effects import CheckHolder, DescribeGroup, Heartbeat, InstanceReleased, Warned
from consumer_membership.membership.event_context import EventContext
from consumer_membership.membership.events import (
    AnnouncementsNotRead,
    AnnouncementsRead,
    GroupDescribed,
    GroupDescribeFailed,
    HolderChecked,
)
from consumer_membership.membership.member_ids import was_created_before
from consumer_membership.membership.protocol import GRACE_S, Fatal
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.states import StateMachine
from consumer_membership.membership.waits import Wait, WaitsFor
from consumer_membership.types import (
    FENCED_INSTANCE_CODE,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    UNRELEASED_INSTANCE_CODE,
    BrokerError,
    ConflictPolicy,
    Holder,
    Instant,
    TopicPartition,
)

#: A holder that is reported within this time after the application subscribed is certainly the older one. A join takes
#: some ten milliseconds, or a second over slow networks with TLS and SASL; to replace a stopped process takes longer.
NEWEST_FOR_S = 2.0
#: A holder that is reported later is the older one if its consumer was created at least this long before this member's.
#: The clocks of two hosts usually differ by less.
CREATED_BEFORE_MS = 1000
#: How often one holder is released in one join: its heartbeat has to arrive between two requests each time.
MOST_TAKEOVERS = 5
#: The interval between two claims of one member, spread by a half to either side, so that many members spread out.
CLAIM_SPACING_S = 0.1


_S, _T = ClaimState, ClaimTrigger


class Age(Enum):
    """The age of a member's claim relative to another member's."""

    #: The application subscribed, and the member was never accepted since: others that hold the id are older.
    NEWEST = "newest"
    #: As NEWEST, but so long ago that the holder may be newer.
    UNKNOWN = "unknown"
    #: It was in the group: others that hold the id since are newer.
    OLDER = "older"


@dataclass(slots=True)
class _Attempt:
    """The state of one join."""

    #: The holder's member id, if the coordinator's refusal names it.
    named: str | None = None
    #: The awaited holder; a pool's member waits for the first one that leaves.
    waits_for: Holder | None = None
    waits_since: Instant | None = None
    #: Since when this member sees that holder, and whether a warning has named it after a session.
    held_since: Instant = 0.0
    is_reported: bool = False
    #: The member that this join released to take the id over, and how often.
    taken_from: str | None = None
    takeovers: int = 0
    #: How often the coordinator had this very member's id, whose join response was lost.
    own_releases: int = 0
    #: Why a full group refused the join, while the instance's former member is looked up; whether that was removed.
    full: BrokerError | None = None
    has_removed_holder: bool = False
    #: The earliest moment of the next request to the group.
    look_up_at: Instant = 0.0
    #: Whether this member may request a hand-over; None: it has not met a holder in this join.
    may_request: bool | None = None
    #: Whether the latest description showed members.
    has_seen_members: bool = False


class InstanceClaim:
    """The instance id of one member, and the steps to hold it.

    `id` is None for a dynamic member, and while a pool's member has not chosen. The end of the membership is returned
    as `Fatal`.
    """

    def __init__(self, event: EventContext, settings: MemberSettings, jitter: Jitter) -> None:
        self._event = event
        self._settings = settings
        self._jitter = jitter
        self._backoff = Backoff(settings.retry_backoff_s, settings.retry_backoff_max_s, jitter)
        self.id = settings.instance_id
        self.session = SessionTimeout(event, settings)
        self._machine = StateMachine("a claim", CLAIM_TARGETS)
        self._pool = Pool(settings.instance_pool, jitter)
        self._reservations = Reservations(event)
        self._watch = ReleaseWatch(settings.retry_backoff_max_s, jitter)
        self._attempt = _Attempt()
        helper = HelperGroup(event, settings.group_id)
        self.successor = Successor(event, settings, jitter, helper)
        self.predecessor = Predecessor(event, helper)
        #: The member that the next heartbeat is to release.
        self.stale_holder: Holder | None = None
        #: A member that was never accepted keeps its age, whatever interrupted its join.
        self.age = Age.OLDER
        self._subscribed_at: Instant = 0.0
        self._awaited: int | None = None

    def _enter(self, trigger: ClaimTrigger) -> None:
        """Fire this trigger, or stay; RELEASING has a stale holder, and DESCRIBING and CHECKING await a response."""
        if trigger is not _T.HOLDER_FOUND:
            self.stale_holder = None
        if trigger not in (_T.DESCRIBE_SENT, _T.CHECK_SENT):
            self._awaited = None
        self._machine.fire_or_stay(trigger)

    # ---- questions ----

    @property
    def state(self) -> ClaimState:
        """The state of the claim."""
        return self._machine.state

    @property
    def may_join(self) -> bool:
        """Whether the instance id, and the member to release before, are known."""
        return self.state not in (_S.LOOKING, _S.DESCRIBING, _S.CHECKING)

    @property
    def is_waiting(self) -> bool:
        """Whether another member has to leave before this one can join."""
        return self._attempt.waits_since is not None

    @property
    def waits_since(self) -> Instant | None:
        """Since when it waits for another member."""
        return self._attempt.waits_since

    def waits_until(self) -> Instant | None:
        """Return the latest end of the holder's session; None: pools and takeover-when-dead have no time limit."""
        since = self._patient_since
        return None if since is None or self._pool or self.needs_proof_of_death else since + self._max_wait_s

    @property
    def _patient_since(self) -> Instant | None:
        """Since when the holder should have released the id; None: it still has time."""
        since = self._attempt.waits_since
        return since if since is None else self.successor.waits_for_release_since(since)

    @property
    def _max_wait_s(self) -> float:
        return self.session.longest_s + GRACE_S

    @property
    def _has_waited_long(self) -> bool:
        since = self._patient_since
        return since is not None and self._event.now >= since + self._max_wait_s

    @property
    def backs_off(self) -> bool:
        """Whether the next heartbeat needs a pause; it needs none after a description, which had a pause itself."""
        return self._attempt.own_releases > 1

    @property
    def release(self) -> Heartbeat | None:
        """The heartbeat that releases the holder: temporarily, or permanently if the group is full."""
        if self.stale_holder is None:
            return None
        epoch = LEAVE_EPOCH if self._attempt.has_removed_holder else LEAVE_STATIC_EPOCH
        return Heartbeat(member_id=self.stale_holder.member_id, member_epoch=epoch, instance_id=self.id)

    @property
    def knows_consumer_group(self) -> bool:
        """Whether a description has just shown that the group has members of the consumer protocol."""
        return self._attempt.has_seen_members

    @property
    def expected(self) -> frozenset[TopicPartition]:
        """The partitions of the id that was handed over to this member; empty without a hand-over."""
        holder = self.successor.holder
        return holder.partitions if holder is not None and self.successor.instance_id == self.id else frozenset()

    @property
    def wait(self) -> Wait:
        """What the claim waits for."""
        since = self._attempt.waits_since
        if self.successor.is_active:
            detail = f"'{self.successor.instance_id}' is held by {_name_of(self.successor.holder)}"
            return Wait(what=WaitsFor.HAND_OVER, since=since, detail=detail)
        if self._pool:
            return Wait(what=WaitsFor.INSTANCE_ID_POOL, since=since, detail="no id is free")
        detail = f"'{self.id}' is held by {_name_of(self._attempt.waits_for)} until it leaves or its session ends"
        return Wait(what=WaitsFor.INSTANCE_ID, since=since, detail=detail)

    def next_deadline(self) -> Instant | None:
        """Return the moment when the group is to be described."""
        return self._attempt.look_up_at if self.state is _S.LOOKING else None

    # ---- the join ----

    def begin(self, *, subscribed_at: Instant | None) -> None:
        """Begin a join. `subscribed_at`: when the application subscribed; None: the member joins again on its own."""
        self._attempt = _Attempt()
        if subscribed_at is not None:
            self.age, self._subscribed_at = Age.NEWEST, subscribed_at
            self.predecessor.cancel()
        self._pool.forget_refusals()
        self._reservations.begin()
        self._backoff.reset()
        self._watch.begin()
        self.successor.begin()
        if self._settings.is_static or self._settings.has_leases:
            self.session.doubt()
        if self.predecessor.has_released:
            # The successor joins first, unless it is in the group already.
            self.id = self._settings.instance_id
            self._attempt.waits_since = self._event.now
            self._look_up(self._event.now)
            return
        has_to_choose = self.id is None and bool(self._pool)
        self._enter(_T.LOOKUP_NEEDED if has_to_choose else _T.JOIN_BEGINS)

    def joined(self) -> None:
        """Note that the coordinator accepted the member: from now on a newer one may replace it."""
        self._attempt = _Attempt()
        self.age = Age.OLDER
        self._pool.forget_refusals()
        self.successor.begin(joined_as=self.id)
        self.predecessor.joined(self.id)
        self._enter(_T.ADMITTED)

    def request_if_due(self, *, is_settled: bool, interval_s: float | None) -> None:
        """Send the due requests; the coordinator is known.

        The session timeout can wait until everything more urgent is done (`is_settled`).
        """
        if is_settled or self.is_waiting:
            self.session.request_if_due(interval_s)
        if self.state is _S.LOOKING and self._event.now >= self._attempt.look_up_at:
            self._enter(_T.DESCRIBE_SENT)
            self._watch.requested(self._event.now)
            self._awaited = self._event.next_request_id()
            with_partitions = self._hands_over and (self.age is not Age.OLDER or bool(self._pool))
            self._event.emit(DescribeGroup(request_id=self._awaited, with_partitions=with_partitions))

    def _look_up(self, at: Instant) -> None:
        self._attempt.look_up_at = at
        self._enter(_T.LOOKUP_NEEDED)

    # ---- a held id ----

    def on_unreleased(self, error: BrokerError, holder: str | None, own: str) -> Fatal | None:
        """UNRELEASED_INSTANCE_ID: another member holds the id, or this very one, whose join response was lost.

        `holder` is the member id in the coordinator's message, `own` this member's.
        """
        attempt, named = self._attempt, Holder(member_id=holder) if holder else None
        if holder == own:
            attempt.own_releases += 1
            self._release(Holder(member_id=own))
            return None
        if self.predecessor.has_released and not self._pool:
            return self._end_as_predecessor(named)
        if self._pool:
            self._give_up_id()
            return None
        if self.needs_proof_of_death:
            self._check_or_look_up(named)
            return None
        self._update_age(named, own)
        is_free_to = attempt.taken_from is None or (holder == attempt.taken_from and attempt.takeovers < MOST_TAKEOVERS)
        takes_over = self._takes_over and is_free_to
        if takes_over and (holder is not None or not self.is_waiting):
            attempt.named = holder
            self._look_up(self._event.now)
            return None
        if takes_over or self._waits:
            return self._wait(error, named, own)
        self._enter(_T.JOIN_CLEARED)
        return Fatal(self._refusal_of(error, named))

    @property
    def may_take_over(self) -> bool:
        """Whether a join that is sent now may replace a holder that the broker would not protect."""
        return self._takes_over and not self._pool and self._has_just_subscribed

    @property
    def needs_proof_of_death(self) -> bool:
        """Whether the member takes over only from dead holders, and waits for others without end."""
        return self._settings.conflict_policy is ConflictPolicy.TAKEOVER_WHEN_DEAD and not self._pool

    @property
    def _has_just_subscribed(self) -> bool:
        """Whether the application subscribed so recently that a holder which is reported now is the older process."""
        return self._event.now <= self._subscribed_at + NEWEST_FOR_S

    @property
    def _takes_over(self) -> bool:
        return self._settings.conflict_policy is ConflictPolicy.TAKEOVER and self.age is Age.NEWEST

    @property
    def _waits(self) -> bool:
        policy = self._settings.conflict_policy
        is_unsure = policy is ConflictPolicy.TAKEOVER and self.age is Age.UNKNOWN
        return policy in (ConflictPolicy.WAIT, ConflictPolicy.HAND_OVER) or is_unsure

    @property
    def _hands_over(self) -> bool:
        return self._settings.conflict_policy is ConflictPolicy.HAND_OVER

    def _may_request_hand_over(self, holder: Holder | None, own: str) -> bool:
        """Return whether this member may request a hand-over, which is decided at the first holder.

        A holder of a fixed id that is reported late may be newer than this member, unless the holder's member id shows
        that it is older. With a pool, the successor chooses the oldest holder.
        """
        attempt = self._attempt
        if attempt.may_request is None:
            is_older = holder is not None and was_created_before(holder.member_id, own)
            is_safe = bool(self._pool) or self._has_just_subscribed or is_older
            attempt.may_request = self._hands_over and self.age is not Age.OLDER and is_safe
        return attempt.may_request

    def _update_age(self, holder: Holder | None, own: str) -> None:
        """Update the age, because a holder is reported: unless this join knew it before, it may be newer."""
        attempt = self._attempt
        knows_holder = attempt.named is not None or attempt.taken_from is not None
        is_older = holder is not None and was_created_before(holder.member_id, own, by_ms=CREATED_BEFORE_MS)
        if self.age is Age.NEWEST and not knows_holder and not self._has_just_subscribed and not is_older:
            self.age = Age.UNKNOWN

    def _release(self, holder: Holder) -> None:
        self._enter(_T.HOLDER_FOUND)
        self.stale_holder = holder

    def _give_up_id(self) -> None:
        """Look for a free id of the pool: another member holds the chosen one."""
        if self.id is not None:
            self._pool.refuse(self.id)
        self.id = None
        self._look_up(self._event.now + CLAIM_SPACING_S * (0.5 + self._jitter()))

    def _wait(self, error: BrokerError, holder: Holder | None, own: str) -> Fatal | None:
        attempt, now = self._attempt, self._event.now
        attempt.waits_for = holder or attempt.waits_for
        if holder is not None:
            self.successor.holder_reported(holder)
        called = _name_of(attempt.waits_for)
        if attempt.waits_since is None:
            attempt.waits_since = now
            if self._may_request_hand_over(holder, own):
                # The description has the partitions to prepare for.
                self._look_up(now)
                return None
            message = (
                f"group.instance.id '{self.id}' is held by {called}; waiting until it leaves or its session ends, at "
                f"most {self._max_wait_s:.0f} s"
            )
            if self.age is Age.UNKNOWN:
                message += (
                    f". It is not taken over, because the application subscribed {now - self._subscribed_at:.1f} s ago "
                    "and the holder may have joined since then"
                )
            self._event.emit(Warned(message=message))
        if not self._has_waited_long:
            # The description did not explain the refusal. Brokers log each refused join, so look again after a backoff.
            self._look_up(now + self._backoff.next_delay())
            return None
        self._enter(_T.JOIN_CLEARED)
        message = (
            f"group.instance.id '{self.id}' is still held by {called} after {now - attempt.waits_since:.0f} s, longer "
            "than a session lasts, so the holder is alive; close it, or give this process its own id (the coordinator "
            f"responded: {error.message})"
        )
        return Fatal(_unreleased(message))

    # ---- proof ----

    def _check_or_look_up(self, holder: Holder | None) -> None:
        """Check the holder that a refused join named, or look it up."""
        now = self._event.now
        next_at = now + self._backoff.next_delay()
        if holder is not None:
            self._check(holder, next_at)
        else:
            self._look_up(next_at if self.is_waiting else now)

    def _check(self, holder: Holder, next_at: Instant) -> None:
        """Request a check of the holder; without proof of its death, the group is described at this moment."""
        attempt = self._attempt
        if attempt.waits_for is None or attempt.waits_for.member_id != holder.member_id:
            attempt.held_since, attempt.is_reported, attempt.takeovers = self._event.now, False, 0
            attempt.waits_for = holder
        elif holder.host:
            attempt.waits_for = holder
        attempt.look_up_at = next_at
        self._enter(_T.CHECK_SENT)
        self._awaited = self._event.next_request_id()
        self._event.emit(CheckHolder(request_id=self._awaited, instance_id=self.id or "", member_id=holder.member_id))

    def _checked(self, *, is_dead: bool) -> None:
        """Release a holder that is certainly dead, and wait for any other."""
        attempt, holder = self._attempt, self._attempt.waits_for
        if holder is None:
            return
        is_full, attempt.full = attempt.full is not None, None
        if is_dead and attempt.takeovers < MOST_TAKEOVERS:
            attempt.has_removed_holder = is_full
            self._take_over_from(holder)
            return
        self._report_holder(holder)
        self._look_up(attempt.look_up_at)

    def _report_holder(self, holder: Holder) -> None:
        """Warn that the member waits, and once more if the holder is alive after a session."""
        attempt, now = self._attempt, self._event.now
        if attempt.waits_since is None:
            attempt.waits_since = now
            message = (
                f"group.instance.id '{self.id}' is held by {_name_of(holder)}; waiting until it leaves, or its process "
                "or its session ends"
            )
            self._event.emit(Warned(message=message))
        elif not attempt.is_reported and now >= attempt.held_since + self._max_wait_s:
            attempt.is_reported = True
            message = (
                f"group.instance.id '{self.id}' is still held by {_name_of(holder)} after "
                f"{now - attempt.held_since:.0f} s, longer than a session lasts, so that process is alive, and this "
                "process continues to wait; close one of the two, or give each process its own id"
            )
            self._event.emit(Warned(message=message))

    # ---- refusals ----

    def _refusal_of(self, error: BrokerError, holder: Holder | None) -> BrokerError:
        """Return the error of a member that may not take over, or not any more.

        A member that was replaced while it was out of its group gets the same error as a member that is replaced in it.
        """
        held = f"group.instance.id '{self.id}' is held by {_name_of(holder)}"
        if self._settings.conflict_policy is ConflictPolicy.FAIL:
            remedy = "close it, give this process its own id, or set group.instance.id.conflict.policy to takeover"
            return _unreleased(f"{held}; {remedy} (the coordinator responded: {error.message})")
        return _fenced(
            f"{held}, which joined while this member was joining or out of the group; the newest member wins, so this "
            f"one ends; give each process its own id (the coordinator responded: {error.message})"
        )

    # ---- a full group ----

    def look_up_former_member(self, error: BrokerError) -> bool:
        """GROUP_MAX_SIZE_REACHED: look up whether the group counts this instance already; False: that cannot help."""
        if self.id is None or self._attempt.has_removed_holder:
            return False
        self._attempt.full = error
        self._look_up(self._event.now)
        return True

    def _remove_former_member(self, full: BrokerError, holder: Holder | None) -> Fatal | None:
        attempt = self._attempt
        if self.needs_proof_of_death and holder is not None and holder.member_epoch != LEAVE_STATIC_EPOCH:
            self._check(holder, self._event.now + self._backoff.next_delay())
            return None
        may_take_over = self._takes_over and attempt.taken_from is None
        if holder is None or not (holder.member_epoch == LEAVE_STATIC_EPOCH or may_take_over):
            return self._refuse(full)
        attempt.full, attempt.has_removed_holder = None, True
        self._take_over_from(holder)
        return None

    def _refuse(self, error: BrokerError) -> Fatal:
        self._enter(_T.REJECTED)
        return Fatal(error)

    # ---- responses ----

    def answered(self, event: GroupDescribed | GroupDescribeFailed | HolderChecked, own: str) -> Fatal | None:
        """Continue with the response to the last request; `own` is this member's id."""
        if event.request_id != self._awaited:
            return None
        match event:
            case GroupDescribed():
                return self._described(event, own)
            case GroupDescribeFailed():
                return self._not_described(event, own)
            case HolderChecked():
                self._checked(is_dead=event.is_dead)
                return None
            case _:
                assert_never(event)

    def _described(self, event: GroupDescribed, own: str) -> Fatal | None:
        """Choose an id of the pool, or the member to release: the group's members are known now."""
        attempt, found = self._attempt, event.holders.get(self.id or "")
        attempt.has_seen_members = bool(event.holders)
        self._watch.described(event.holders, self._event.now)
        self._update_age(found, own)
        if attempt.full is not None:
            return self._remove_former_member(attempt.full, found)
        if self.predecessor.has_released and self._release_again(event.holders, own):
            return None
        if self._pool:
            return self._choose(event.holders, own)
        if self.predecessor.has_released:
            return self._look_for_successor(found)
        self._answer_holder(found, own)
        return None

    def _answer_holder(self, found: Holder | None, own: str) -> None:
        """Continue with the holder of a fixed id, if it has a holder."""
        attempt = self._attempt
        if found is None or (attempt.named is not None and found.member_id != attempt.named):
            found = Holder(member_id=attempt.named) if attempt.named is not None else None
        if found is None or found.member_epoch == LEAVE_STATIC_EPOCH:
            # No member holds the id any more, as far as the description shows: join.
            self._join_waiting()
        elif found.member_id == own:
            self._release(found)
        elif self.needs_proof_of_death:
            self._backoff.reset()
            self._check(found, self._watch.next_at(self._event.now))
        elif self._takes_over:
            self._take_over_from(found)
        elif attempt.waits_since is None or self._has_waited_long:
            self._join_waiting()
        else:
            self._wait_for(found, own)

    def _wait_for(self, holder: Holder, own: str) -> None:
        self._attempt.waits_for = holder
        self._backoff.reset()
        if self._may_request_hand_over(holder, own):
            self.successor.holders_described({self.id or "": holder}, is_pool=False)
        self._look_up_again()

    def _look_up_again(self) -> None:
        now = self._event.now
        self._look_up(self._watch.next_at(now, expected_since=self.successor.expects_release_since))

    def _release_again(self, holders: Mapping[str, Holder], own: str) -> bool:
        """Release the id of this predecessor again if the coordinator still shows it, because its leave was lost."""
        for instance_id, holder in holders.items():
            if holder.member_id == own and is_present(holder):
                self.id = instance_id
                self._release(holder)
                return True
        return False

    def _look_for_successor(self, found: Holder | None) -> Fatal | None:
        """Wait for the successor of a fixed id: end when it holds the id, or join again if it does not come."""
        if found is not None and is_present(found):
            return self._end_as_predecessor(found)
        if self._event.now >= self.predecessor.waits_until:
            self._join_waiting()
        else:
            self._look_up(self._event.now + DESCRIBE_EVERY_S)
        return None

    def _end_as_predecessor(self, holder: Holder | None) -> Fatal:
        self._enter(_T.JOIN_CLEARED)
        return Fatal(self._handed_over_error(holder))

    def _handed_over_error(self, holder: Holder | None) -> BrokerError:
        return _fenced(f"group.instance.id '{self.id}' was handed over to {_name_of(holder)}; this member has ended")

    def _not_described(self, event: GroupDescribeFailed, own: str) -> Fatal | None:
        """Use the coordinator's message, because the holders cannot be read; a pool chooses at random."""
        attempt = self._attempt
        attempt.has_seen_members = False
        if attempt.full is not None:
            return self._refuse(attempt.full)
        if self.predecessor.has_released and self._event.now < self.predecessor.waits_until:
            self._look_up(self._event.now + DESCRIBE_EVERY_S)
            return None
        if self._pool:
            return self._choose(None, own)
        if attempt.named is not None:
            self._take_over_from(Holder(member_id=attempt.named))
            return None
        if self.is_waiting:
            self._join_waiting()
            return None
        self._join_waiting()
        message = (
            f"The holder of group.instance.id '{self.id}' is unknown ({event.error}), so the id cannot be taken over "
            "and the member waits until the session of the holder ends; grant DESCRIBE on the group"
        )
        self._event.emit(Warned(message=message))
        return None

    def _take_over_from(self, holder: Holder) -> None:
        attempt = self._attempt
        attempt.taken_from, attempt.own_releases = holder.member_id, 0
        attempt.takeovers += 1
        self._release(holder)

    def _join_waiting(self) -> None:
        """Join now; if the coordinator refuses that, the member continues to wait."""
        if self._attempt.waits_since is None:
            self._attempt.waits_since = self._event.now
        self._enter(_T.JOIN_CLEARED)

    # ---- the release ----

    def released(self) -> None:
        """Join: the release was answered, or the holder had already left.

        A predecessor has released its own id, and waits for its successor.
        """
        if self.predecessor.has_released:
            self.predecessor.released_again()
            self.id = self._settings.instance_id
            self._look_up(self._event.now)
            return
        if self.stale_holder is not None and self.id is not None and not self._attempt.own_releases:
            self._event.emit(InstanceReleased(instance_id=self.id, holder=self.stale_holder))
        self._enter(_T.JOIN_CLEARED)

    def cancel_release(self) -> None:
        """Release no member: the coordinator refuses that."""
        self._enter(_T.JOIN_CLEARED)

    def lost_race_error(self, error: BrokerError) -> BrokerError:
        """Return the error for FENCED_INSTANCE_ID in response to a release: another member joined first."""
        if self.predecessor.has_released:
            return self._handed_over_error(None)
        return _fenced(
            f"another member took over group.instance.id '{self.id}' at the same time; give each process its own id "
            f"(the coordinator responded: {error.message})"
        )

    # ---- the pool ----

    def _choose(self, holders: Mapping[str, Holder] | None, own: str) -> Fatal | None:
        """Choose an id of the pool; None: its holders are unknown, so each id has to be tried."""
        reserved: frozenset[str] = frozenset()
        if self._hands_over and self.is_waiting and holders is not None:
            reserved = self._reservations.reserved(self._pool.released(holders), holders, own)
        self.id = self._pool.choose(holders or {}, reserved=reserved, preferred=self.successor.instance_id)
        if self.id is not None:
            self._enter(_T.JOIN_CLEARED)
            return None
        self._pool.forget_refusals()
        if self._settings.conflict_policy not in (ConflictPolicy.WAIT, ConflictPolicy.HAND_OVER):
            return self._refuse(_unreleased(self._pool.exhaustion))
        now = self._event.now
        if holders is None:
            self._look_up(now + self._backoff.next_delay())
        else:
            if self._may_request_hand_over(None, own):
                self.successor.holders_described(self._pool.present(holders), is_pool=True)
            self._look_up_again()
        if self._attempt.waits_since is None:
            self._attempt.waits_since = now
            if self.successor.is_active:
                return None
            message = f"No id of group.instance.id.pool is free: {self._pool.describe_holders(holders or {})}"
            self._event.emit(Warned(message=message))
        return None

    def reservations_read(self, event: AnnouncementsRead | AnnouncementsNotRead) -> None:
        """Claim an id that is not reserved: the announcements to the last holders of the free ids arrived."""
        if self._reservations.answered(event) and self.state is _S.LOOKING:
            self._look_up(self._event.now)

    def try_another(self) -> bool:
        """FENCED_INSTANCE_ID: another member has the id. Claim another one of the pool; False: there is no pool."""
        if self._pool:
            self._give_up_id()
        return bool(self._pool)


def _name_of(holder: Holder | None) -> str:
    return f"member {holder}" if holder else "another member"


def _unreleased(message: str) -> BrokerError:
    return BrokerError(code=UNRELEASED_INSTANCE_CODE, name="UNRELEASED_INSTANCE_ID", message=message)


def _fenced(message: str) -> BrokerError:
    return BrokerError(code=FENCED_INSTANCE_CODE, name="FENCED_INSTANCE_ID", message=message)
