"""The assignment of test files to the processes of a test run: one process runs all files of the Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadScopeScheduling

from tests.support.order import scope

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist's types are not checked
    """Scheduling by file. Unlike in xdist, a test fails and is not repeated if its process ends during the test.

    xdist reassigns all unfinished tests of the process, including that test. A test that hangs until its time limit
    would then hang in one process after another.
    """

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)

    def remove_node(self, node: WorkerController) -> str | None:
        """Reassign the tests that this process has not begun.

        Return the test during which it ended; None if it did not end during a test.
        """
        for unit in self.assigned_work[node].values():
            for nodeid, is_done in unit.items():
                if not is_done:
                    unit[nodeid] = True
                    super().remove_node(node)
                    return str(nodeid)
        return super().remove_node(node)
