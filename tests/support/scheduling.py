"""The assignment of test files to a run's processes: those of one Spark session to one process, others to any."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadScopeScheduling

from tests.support.order import scope

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist's types are not checked
    """xdist's scheduling by file, except that a test during which its process ended fails and is not restarted.

    xdist gives the unfinished tests of the process to others, including that test: a test that hangs until its time
    limit would hang in one process after another.
    """

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)

    def remove_node(self, node: WorkerController) -> str | None:
        """Reassign the tests that this process had not begun.

        Return the test during which it ended, None at a regular end.
        """
        for unit in self.assigned_work[node].values():
            for nodeid, is_done in unit.items():
                if not is_done:
                    unit[nodeid] = True
                    super().remove_node(node)
                    return str(nodeid)
        return super().remove_node(node)
