"""What an application commits: explicit offsets, or what it has consumed since the last commit."""

from __future__ import annotations

from collections.abc import Mapping

from consumer_membership.errors import CommitError
from consumer_membership.membership.effects import CommitCompleted
from consumer_membership.runtime.application.fair_lock import FairLock
from consumer_membership.runtime.application.lifetime import Lifetime
from consumer_membership.runtime.application.offset_book import OffsetBook
from consumer_membership.runtime.application.open_commits import NO_OFFSET_CODE, OpenCommits
from consumer_membership.runtime.application.order_queue import OrderQueue
from consumer_membership.runtime.application.performer import Performer
from consumer_membership.runtime.application.steps import Steps
from consumer_membership.types import ASSIGNMENT_LOST_CODE, BrokerError, Offsets, TopicPartition


class Commits:
    """The commits of one session."""

    def __init__(
        self,
        open_commits: OpenCommits,
        book: OffsetBook,
        steps: Steps,
        fair_lock: FairLock,
        life: Lifetime,
        order_queue: OrderQueue,
        performer: Performer,
    ) -> None:
        self._open = open_commits
        self._book = book
        self._steps = steps
        self._fair_lock = fair_lock
        self._life = life
        self._order_queue = order_queue
        self._performer = performer

    def send(self, offsets: Offsets | None) -> None:
        """Commit these offsets (None: what is consumed and not committed); the outcome is told to `on_commit`.

        Raises:
            CommitError: the assignment is lost.
            FatalGroupError: the member was refused for good.
        """
        wanted = self._to_commit(offsets)
        if wanted:
            self._open.begin(wanted, is_awaited=False)
        else:
            self._order_queue.mailbox.put(CommitCompleted(commit_id=0, offsets={}, errors={}))

    def begin(self, offsets: Offsets | None) -> tuple[int, Offsets]:
        """The same with an outcome that `end` waits for: the commit's number, and what it commits.

        Raises:
            CommitError, FatalGroupError: as `send`; and there is nothing to commit.
        """
        wanted = self._to_commit(offsets)
        if not wanted:
            raise CommitError("Commit failed: Local: No offset stored", NO_OFFSET_CODE)
        return self._open.begin(wanted, is_awaited=True), wanted

    def end(self, commit_id: int) -> Mapping[TopicPartition, BrokerError | None]:
        """Wait for the answer to a commit that was begun; each partition's error. Once for each commit.

        Raises:
            CommitError: no answer in time.
        """
        return self._open.await_end(commit_id, self._order_queue.wait)

    def _to_commit(self, offsets: Offsets | None) -> Offsets:
        self._life.check()
        self._performer.refuse_if_fatal("Commit failed")
        if self._steps.is_losing:
            raise CommitError("Commit failed: Local: Assignment was lost", ASSIGNMENT_LOST_CODE)
        if offsets is not None:
            return offsets
        with self._fair_lock:
            return self._book.uncommitted()
