"""A call that runs in a thread of a cluster inside the test process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from consumer_membership.testing.engine import ClusterEngine

AnswerT = TypeVar("AnswerT")


class RunningCall(Generic[AnswerT]):
    """A call that `FakeCluster.start` has started."""

    def __init__(self, engine: ClusterEngine, call: Callable[[], AnswerT]) -> None:
        self._engine = engine
        self._call = call
        self._outcome: Future[AnswerT] = Future()
        self._ended = engine.start_thread(self._run, "fake cluster call")

    def _run(self) -> None:
        try:
            self._outcome.set_result(self._call())
        except Exception as failure:  # noqa: BLE001 - `result` raises it
            self._outcome.set_exception(failure)

    @property
    def is_done(self) -> bool:
        """Whether the call has returned or raised."""
        return self._ended.done()

    def result(self, timeout_s: float = 60.0) -> AnswerT:
        """Wait until the call has ended, at most this many seconds of the cluster's time, and return its result.

        Raises:
            TimeoutError: the call has not ended in time.
            Exception: the call raised this exception.
        """
        self._engine.wait_for_end(self._ended, timeout_s)
        if not self.is_done:
            raise TimeoutError(f"the call has not ended within {timeout_s:g} s of the cluster's time")
        return self._outcome.result(0)
