"""Recorded members for tests, driven by the test or taken from simulated groups."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from uuid import UUID

from consumer_membership.membership.choice import ProtocolSettings
from consumer_membership.membership.effects import SendHeartbeat
from consumer_membership.membership.events import (
    CoordinatorFound,
    HeartbeatAnswered,
    Polled,
    Step,
    StepFinished,
    Subscribed,
)
from consumer_membership.membership.protocol import GroupEvent
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.recorder.recording import Recording, read, write
from consumer_membership.recorder.ring import SEGMENT_WEIGHT, Recorder
from consumer_membership.types import Assignment, BrokerAddress, GroupProtocol, Subscription
from tests.simulation.profiles import PROFILES
from tests.simulation.run import simulate
from tests.simulation.simulation import protocols_of

NODE = BrokerAddress(node_id=1, host="broker", port=9092)
ID = UUID(int=7)
SETTINGS = MemberSettings(group_id="orders-group")


class Recorded:
    """A member of the consumer protocol with a recorder; each event that it handles is one second later."""

    def __init__(self, settings: MemberSettings = SETTINGS, *, segment_weight: int = SEGMENT_WEIGHT) -> None:
        numbers = count(1)
        self.recorder = Recorder(
            settings,
            protocols_of(GroupProtocol.CONSUMER),
            new_member_id=lambda: f"member-{next(numbers)}",
            jitter=lambda: 0.25,
            segment_weight=segment_weight,
        )
        self.now = 100.0

    def tell(self, *events: GroupEvent) -> None:
        """Handle these events."""
        for event in events:
            self.now += 1.0
            self.recorder.handle(event, self.now)
            self.recorder.record_view(self.recorder.member.view())

    def join(self) -> None:
        """Subscribe, join without partitions, and become STABLE."""
        subscription = Subscription(topics=frozenset({"orders"}))
        self.tell(Subscribed(subscription=subscription), Polled(), CoordinatorFound(coordinator=NODE))
        self.answer()
        self.tell(StepFinished(attempt=self.recorder.member.newest_attempt, step=Step.ASSIGN))
        self.answer(None)

    @property
    def last_request(self) -> int:
        """Return the number of the latest heartbeat."""
        entries = self.recorder.contents().entries
        sent = [one.request_id for entry in entries for one in entry.effects if isinstance(one, SendHeartbeat)]
        return sent[-1]

    def answer(self, assignment: Assignment | None = frozenset()) -> None:
        """Answer the latest heartbeat."""
        answer = HeartbeatAnswered(
            request_id=self.last_request, member_epoch=1, heartbeat_interval_s=5.0, assignment=assignment
        )
        self.tell(answer)

    def written(self, path: Path) -> Recording:
        """Write a file and return its content."""
        write(path, self.recorder.contents(), "a test", self.now)
        return read(path)


def simulated(name: str, seed: int, *, segment_weight: int) -> list[Recorder]:
    """Return the recorders of all processes of one simulated run, including killed ones."""
    made: list[Recorder] = []

    def make(settings: MemberSettings, protocols: ProtocolSettings, **chance: object) -> Recorder:
        recorder = Recorder(settings, protocols, segment_weight=segment_weight, **chance)  # type: ignore[arg-type]
        made.append(recorder)
        return recorder

    simulate(seed, PROFILES[name], make)
    return made
