"""Notes for hand-overs at the coordinator of the helper group, a scripted broker: another node than the group's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from consumer_membership.membership.effects import ReadNotes, WriteNote
from consumer_membership.membership.events import NoteNotWritten, NotesNotRead, NotesRead, NoteWritten
from consumer_membership.runtime.network.cluster import Cluster
from consumer_membership.runtime.network.hand_over_notes import HandOverNotes
from consumer_membership.translation.hand_over_notes import note_text
from consumer_membership.types import TRANSPORT_CODE, HandOverNote
from tests.runtime.clients import COMMIT, FETCH, FIND, T0, answers, with_client
from tests.support.scripted_broker import DISCONNECT, Answer, Received, ScriptedBroker
from tests.wire.groups import commit_answer, fetch_answer_v9

ResultT = TypeVar("ResultT")

HELPER = "g.hand-over"
NOTE = HandOverNote(predecessor="old", successor="new", instance_id="i")
READ = ReadNotes(request_id=7, partitions=frozenset({T0}))
WRITE = WriteNote(request_id=8, partition=T0, note=NOTE)
#: A refusal that waiting does not mend: GROUP_AUTHORIZATION_FAILED.
NOT_AUTHORIZED = 30


class Helper:
    """The coordinator of the helper group on node 2; it answers one request after the other as a test wants."""

    def __init__(self, *scripted: Answer) -> None:
        self._scripted = list(scripted)
        self.text = ""

    def __call__(self, request: Received) -> Answer:
        """Answer as scripted, or keep and return the metadata as a broker does."""
        if request.api_key not in (COMMIT, FETCH):
            return None
        if self._scripted:
            return self._scripted.pop(0)
        if request.api_key == FETCH:
            return fetch_answer_v9({T0: (0, 0)}, group=HELPER, metadata=self.text)
        self.text = request.entity.topics[0].partitions[0].committed_metadata
        return commit_answer({T0: 0})


def exchanged(helper: Helper, act: Callable[[HandOverNotes], Awaitable[ResultT]]) -> tuple[ResultT, ScriptedBroker]:
    """Return what comes of it, and the broker with the requests that it received."""
    with ScriptedBroker(answers(commit=helper, fetch=helper), nodes=2) as broker:
        broker.coordinator = 2

        async def run(cluster: Cluster) -> ResultT:
            return await act(HandOverNotes(cluster, "g"))

        return with_client(broker.servers, run), broker


def test_note_is_written_and_read_at_the_coordinator_of_the_helper_group() -> None:
    """The coordinator is looked up once; the requests are those of a client that is not a member."""

    async def act(notes: HandOverNotes) -> tuple[object, object]:
        return await notes.write(WRITE), await notes.read(READ)

    both, broker = exchanged(Helper(), act)
    assert both == (NoteWritten(request_id=8), NotesRead(request_id=7, notes={T0: NOTE}))
    (write,) = broker.requests(COMMIT)
    assert (write.node_id, write.entity.group_id, write.entity.member_id) == (2, HELPER, "")
    assert [request.node_id for request in broker.requests(FETCH)] == [2]
    assert len(broker.requests(FIND)) == 1


def test_withdrawn_note_is_read_as_none() -> None:
    """A later holder finds no note at the partition."""

    async def act(notes: HandOverNotes) -> tuple[object, object]:
        await notes.write(WRITE)
        return await notes.write(WriteNote(request_id=9, partition=T0, note=None)), await notes.read(READ)

    both, _ = exchanged(Helper(), act)
    assert both == (NoteWritten(request_id=9), NotesRead(request_id=7, notes={}))


@pytest.mark.parametrize("text", ["", "{", '{"v":2}', "[]"])
def test_foreign_metadata_is_no_note(text: str) -> None:
    """Another program, or another version, may have committed there."""
    found, _ = exchanged(
        Helper(fetch_answer_v9({T0: (5, 0)}, group=HELPER, metadata=text)), lambda notes: notes.read(READ)
    )
    assert found == NotesRead(request_id=7, notes={})


def test_partition_without_a_commit_has_no_note() -> None:
    """The helper group may not exist yet."""
    found, _ = exchanged(Helper(fetch_answer_v9({T0: (-1, 0)}, group=HELPER)), lambda notes: notes.read(READ))
    assert found == NotesRead(request_id=7, notes={})


@pytest.mark.parametrize(("code", "is_refused"), [(14, False), (16, False), (NOT_AUTHORIZED, True)])
def test_refused_read_is_final_only_without_the_right(code: int, is_refused: bool) -> None:  # noqa: FBT001
    """The next request looks the coordinator up again, because another broker may coordinate the group."""

    async def act(notes: HandOverNotes) -> tuple[NotesRead | NotesNotRead, object]:
        return await notes.read(READ), await notes.read(READ)

    (first, second), broker = exchanged(Helper(fetch_answer_v9({}, code=code, group=HELPER)), act)
    assert isinstance(first, NotesNotRead)
    assert (first.error.code, first.is_refused) == (code, is_refused)
    assert isinstance(second, NotesRead)
    assert len(broker.requests(FIND)) == 2


@pytest.mark.parametrize(("code", "is_refused"), [(14, False), (16, False), (NOT_AUTHORIZED, True)])
def test_refused_write_is_final_only_without_the_right(code: int, is_refused: bool) -> None:  # noqa: FBT001
    """The same for the note itself."""

    async def act(notes: HandOverNotes) -> tuple[NoteWritten | NoteNotWritten, object]:
        return await notes.write(WRITE), await notes.write(WRITE)

    (first, second), broker = exchanged(Helper(commit_answer({T0: code})), act)
    assert isinstance(first, NoteNotWritten)
    assert (first.error.code, first.is_refused) == (code, is_refused)
    assert second == NoteWritten(request_id=8)
    assert len(broker.requests(FIND)) == 2


def test_lost_connection_is_no_refusal() -> None:
    """Each request is tried once, and the core repeats it; the coordinator is looked up again."""

    async def act(notes: HandOverNotes) -> tuple[NotesRead | NotesNotRead, NoteWritten | NoteNotWritten, object]:
        return await notes.read(READ), await notes.write(WRITE), await notes.read(READ)

    (read, written, again), broker = exchanged(Helper(DISCONNECT, DISCONNECT), act)
    assert isinstance(read, NotesNotRead)
    assert isinstance(written, NoteNotWritten)
    assert {(read.error.code, read.is_refused), (written.error.code, written.is_refused)} == {(TRANSPORT_CODE, False)}
    assert again == NotesRead(request_id=7, notes={})
    assert len(broker.requests(FIND)) == 3


def test_text_of_a_note_is_within_the_metadata_of_any_broker() -> None:
    """Brokers limit it to 4096 characters by default."""
    longest = HandOverNote(predecessor="p" * 36, successor="s" * 36, instance_id="i" * 249)
    assert len(note_text(longest)) < 4096
