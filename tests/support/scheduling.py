"""Which process of a run gets which test files: those of one Spark session to one, any other to whoever is free."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadScopeScheduling

from tests.support.order import scope

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist's types are not checked
    """As xdist's by file, but a test under which its process ended is failed, and not begun again in the next one.

    xdist gives what the process had not finished to others, that test too: one that hangs until its time limit would
    do so in process after process.
    """

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)

    def remove_node(self, node: WorkerController) -> str | None:
        """Have others do what this process had not begun; the test under which it ended, None at its regular end."""
        for unit in self.assigned_work[node].values():
            for nodeid, is_done in unit.items():
                if not is_done:
                    unit[nodeid] = True
                    super().remove_node(node)
                    return str(nodeid)
        return super().remove_node(node)
