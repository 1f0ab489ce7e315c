"""Commits on their way: who waits for which, and what comes back to them.

A synchronous commit waits for its own answer and for nothing else, so it works inside a rebalance callback, in a signal
handler, and in a worker thread while another thread polls.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping

from consumer_membership.errors import CommitError
from consumer_membership.membership.effects import CommitCompleted
from consumer_membership.membership.events import CommitRequested
from consumer_membership.types import TIMED_OUT_CODE, BrokerError, Offsets, TopicPartition

#: librdkafka's "nothing to commit".
NO_OFFSET_CODE = -168
#: How much longer than the member tries a commit its caller waits for the member's word on it.
GRACE_S = 5.0


class OpenCommits:
    """The commits of one session that are not answered yet."""

    def __init__(self, post: Callable[[CommitRequested], None], timeout_s: float) -> None:
        self._post = post
        self._timeout_s = timeout_s
        self._ids = itertools.count(1)
        self._awaited: dict[int, CommitCompleted | None] = {}
        #: By number, what each asks for; in the order in which they were begun.
        self._outstanding: dict[int, Offsets] = {}

    @property
    def has_outstanding(self) -> bool:
        """Whether a commit is on its way."""
        return bool(self._outstanding)

    def asked_of(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets that commits on their way ask for, of these partitions; the latest one of each."""
        return {
            partition: at.offset
            for offsets in list(self._outstanding.values())
            for partition, at in offsets.items()
            if partition in partitions
        }

    def begin(self, offsets: Offsets, *, is_awaited: bool) -> int:
        """Send a commit; its number. An awaited one is asked for with `await_end`."""
        commit_id = next(self._ids)
        if is_awaited:
            self._awaited[commit_id] = None
        self._outstanding[commit_id] = offsets
        self._post(CommitRequested(commit_id=commit_id, offsets=offsets, timeout_s=self._timeout_s))
        return commit_id

    def take(self, completed: CommitCompleted) -> bool:
        """Keep a completed commit for the thread that waits for it; False: nobody does."""
        self._outstanding.pop(completed.commit_id, None)
        if completed.commit_id not in self._awaited:
            return False
        self._awaited[completed.commit_id] = completed
        return True

    def await_end(
        self, commit_id: int, wait: Callable[[Callable[[], bool], float | None], bool]
    ) -> Mapping[TopicPartition, BrokerError | None]:
        """Wait for this commit's end; each partition's error.

        Raises:
            CommitError: the member did not say in time what became of it.
        """
        try:
            wait(lambda: self._awaited[commit_id] is not None, self._timeout_s + GRACE_S)
            completed = self._awaited[commit_id]
        finally:
            del self._awaited[commit_id]
            self._outstanding.pop(commit_id, None)
        if completed is None:
            raise CommitError("the commit was not answered in time; its outcome is not known", TIMED_OUT_CODE)
        return completed.errors
