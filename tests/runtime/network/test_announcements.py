"""Announcements at the coordinator of the helper group, which is another node than the group's coordinator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from consumer_membership.membership.effects import ReadAnnouncements, WriteAnnouncement
from consumer_membership.membership.events import (
    AnnouncementNotWritten,
    AnnouncementsNotRead,
    AnnouncementsRead,
    AnnouncementWritten,
)
from consumer_membership.runtime.network.announcements import Announcements
from consumer_membership.runtime.network.cluster import Cluster
from consumer_membership.translation.announcements import announcement_text
from consumer_membership.types import TRANSPORT_CODE, HandOverAnnouncement
from tests.runtime.clients import COMMIT, FETCH, FIND, T0, answers, with_client
from tests.support.scripted_broker import DISCONNECT, Answer, Received, ScriptedBroker
from tests.wire.groups import commit_answer, fetch_answer_v9

ResultT = TypeVar("ResultT")

HELPER = "g.hand-over"
ANNOUNCEMENT = HandOverAnnouncement(predecessor="old", successor="new", instance_id="i")
READ = ReadAnnouncements(request_id=7, partitions=frozenset({T0}))
WRITE = WriteAnnouncement(request_id=8, partition=T0, announcement=ANNOUNCEMENT)
#: A permanent refusal: GROUP_AUTHORIZATION_FAILED.
NOT_AUTHORIZED = 30


class Helper:
    """The coordinator of the helper group on node 2; it gives the test's responses first, then those of a broker."""

    def __init__(self, *scripted: Answer) -> None:
        self._scripted = list(scripted)
        self.text = ""

    def __call__(self, request: Received) -> Answer:
        """Return the next scripted response; without one, store and return the metadata as a broker does."""
        if request.api_key not in (COMMIT, FETCH):
            return None
        if self._scripted:
            return self._scripted.pop(0)
        if request.api_key == FETCH:
            return fetch_answer_v9({T0: (0, 0)}, group=HELPER, metadata=self.text)
        self.text = request.entity.topics[0].partitions[0].committed_metadata
        return commit_answer({T0: 0})


def exchanged(helper: Helper, act: Callable[[Announcements], Awaitable[ResultT]]) -> tuple[ResultT, ScriptedBroker]:
    """Return the result of `act`, and the broker with the requests that it received."""
    with ScriptedBroker(answers(commit=helper, fetch=helper), nodes=2) as broker:
        broker.coordinator = 2

        async def run(cluster: Cluster) -> ResultT:
            return await act(Announcements(cluster, "g"))

        return with_client(broker.servers, run), broker


def test_announcement_is_written_and_read_at_the_coordinator_of_the_helper_group() -> None:
    """The coordinator is looked up once, and the requests name no member."""

    async def act(announcements: Announcements) -> tuple[object, object]:
        return await announcements.write(WRITE), await announcements.read(READ)

    both, broker = exchanged(Helper(), act)
    assert both == (
        AnnouncementWritten(request_id=8),
        AnnouncementsRead(request_id=7, announcements={T0: ANNOUNCEMENT}),
    )
    (write,) = broker.requests(COMMIT)
    assert (write.node_id, write.entity.group_id, write.entity.member_id) == (2, HELPER, "")
    assert [request.node_id for request in broker.requests(FETCH)] == [2]
    assert len(broker.requests(FIND)) == 1


def test_withdrawn_announcement_is_read_as_none() -> None:
    """A later holder finds no announcement at the partition."""

    async def act(announcements: Announcements) -> tuple[object, object]:
        await announcements.write(WRITE)
        return await announcements.write(
            WriteAnnouncement(request_id=9, partition=T0, announcement=None)
        ), await announcements.read(READ)

    both, _ = exchanged(Helper(), act)
    assert both == (AnnouncementWritten(request_id=9), AnnouncementsRead(request_id=7, announcements={}))


@pytest.mark.parametrize("text", ["", "{", '{"v":2}', "[]"])
def test_foreign_metadata_is_not_an_announcement(text: str) -> None:
    """Another program or another version may have committed this metadata."""
    found, _ = exchanged(
        Helper(fetch_answer_v9({T0: (5, 0)}, group=HELPER, metadata=text)),
        lambda helper: helper.read(READ),
    )
    assert found == AnnouncementsRead(request_id=7, announcements={})


def test_partition_without_a_commit_has_no_announcement() -> None:
    """The helper group may not exist yet."""
    found, _ = exchanged(Helper(fetch_answer_v9({T0: (-1, 0)}, group=HELPER)), lambda helper: helper.read(READ))
    assert found == AnnouncementsRead(request_id=7, announcements={})


@pytest.mark.parametrize(("code", "is_refused"), [(14, False), (16, False), (NOT_AUTHORIZED, True)])
def test_refused_read_is_final_only_without_permission(code: int, is_refused: bool) -> None:  # noqa: FBT001
    """The next request looks up the coordinator again, because another broker may coordinate the group."""

    async def act(announcements: Announcements) -> tuple[AnnouncementsRead | AnnouncementsNotRead, object]:
        return await announcements.read(READ), await announcements.read(READ)

    (first, second), broker = exchanged(Helper(fetch_answer_v9({}, code=code, group=HELPER)), act)
    assert isinstance(first, AnnouncementsNotRead)
    assert (first.error.code, first.is_refused) == (code, is_refused)
    assert isinstance(second, AnnouncementsRead)
    assert len(broker.requests(FIND)) == 2


@pytest.mark.parametrize(("code", "is_refused"), [(14, False), (16, False), (NOT_AUTHORIZED, True)])
def test_refused_write_is_final_only_without_permission(code: int, is_refused: bool) -> None:  # noqa: FBT001
    """A write is refused permanently in the same cases as a read."""

    async def act(announcements: Announcements) -> tuple[AnnouncementWritten | AnnouncementNotWritten, object]:
        return await announcements.write(WRITE), await announcements.write(WRITE)

    (first, second), broker = exchanged(Helper(commit_answer({T0: code})), act)
    assert isinstance(first, AnnouncementNotWritten)
    assert (first.error.code, first.is_refused) == (code, is_refused)
    assert second == AnnouncementWritten(request_id=8)
    assert len(broker.requests(FIND)) == 2


def test_lost_connection_is_not_a_refusal() -> None:
    """Each request is sent once; the core repeats it, and the coordinator is looked up again."""

    async def act(
        announcements: Announcements,
    ) -> tuple[AnnouncementsRead | AnnouncementsNotRead, AnnouncementWritten | AnnouncementNotWritten, object]:
        return await announcements.read(READ), await announcements.write(WRITE), await announcements.read(READ)

    (read, written, again), broker = exchanged(Helper(DISCONNECT, DISCONNECT), act)
    assert isinstance(read, AnnouncementsNotRead)
    assert isinstance(written, AnnouncementNotWritten)
    assert {(read.error.code, read.is_refused), (written.error.code, written.is_refused)} == {(TRANSPORT_CODE, False)}
    assert again == AnnouncementsRead(request_id=7, announcements={})
    assert len(broker.requests(FIND)) == 3


def test_text_of_an_announcement_is_within_the_metadata_of_any_broker() -> None:
    """By default, brokers limit metadata to 4096 characters."""
    longest = HandOverAnnouncement(predecessor="p" * 36, successor="s" * 36, instance_id="i" * 249)
    assert len(announcement_text(longest)) < 4096
