"""The effects of a classic group's leader: describe topics, and call the user's assignor.

The assignor is user code: it runs on its own thread, may take long, and may raise anything.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from consumer_membership.assignors.assignor import AssignmentObserver, Assignor
from consumer_membership.errors import AssignmentError, TransportError
from consumer_membership.membership.classic.exchanges import (
    AssignmentComputed,
    AssignmentFailed,
    AssignorNotified,
    ComputeAssignment,
    DescribeTopics,
    LeaderEvent,
    NotifyAssignor,
    TopicsDescribed,
    TopicsNotDescribed,
)
from consumer_membership.membership.member import MemberCore
from consumer_membership.runtime.log_lines import PackageLog
from consumer_membership.runtime.network.cluster import BrokerRefusal, Cluster
from consumer_membership.runtime.network.daemon_thread import in_daemon_thread
from consumer_membership.runtime.network.exchanges import REQUEST_TIMEOUT_S, unreached
from consumer_membership.text import speakable
from consumer_membership.translation.metadata import refused_of, topics_of
from consumer_membership.types import FATAL_CODE, BrokerError

if TYPE_CHECKING:
    from consumer_membership.assignors.checked import Checked

_LOG = PackageLog("consumer_membership.membership", "ASSIGNOR")


class LeaderRequests:
    """Performs a leader's orders of one member, on the loop of its thread; each is answered with an event."""

    def __init__(self, cluster: Cluster, member: MemberCore) -> None:
        self._cluster = cluster
        self._member = member
        #: An assignor is notified of one assignment after the other.
        self._notices = asyncio.Lock()

    async def describe_topics(self, effect: DescribeTopics) -> LeaderEvent:
        """Return the topics in the form that assignors need, or the reason for their absence."""
        try:
            found = await self._cluster.metadata(effect.topics, REQUEST_TIMEOUT_S)
        except BrokerRefusal as refusal:
            return TopicsNotDescribed(request_id=effect.request_id, error=refusal.error)
        except TransportError as error:
            return TopicsNotDescribed(request_id=effect.request_id, error=unreached(error))
        return TopicsDescribed(
            request_id=effect.request_id,
            topics=topics_of(found, effect.topics),
            refused=refused_of(found, effect.topics),
        )

    async def compute_assignment(self, effect: ComputeAssignment) -> LeaderEvent:
        """Return the checked assignment of each member, or the assignor's exception."""
        # Imported here, because at most one member of a group assigns.
        from consumer_membership.assignors.checked import assign_checked

        assignor = self._named(effect.assignor)
        try:
            checked = await in_daemon_thread(
                "assignor", lambda: assign_checked(assignor, effect.topics, effect.members)
            )
        except AssignmentError as error:
            return AssignmentFailed(generation=effect.generation, error=_failure(assignor, str(error)))
        except Exception as error:  # noqa: BLE001 - user code may raise anything, and the user has to know
            _LOG.error("The assignor %s raised an exception", assignor.name, exc_info=error)
            message = f"{type(error).__name__}: {error}"
            return AssignmentFailed(generation=effect.generation, error=_failure(assignor, message))
        self._log_notes(checked)
        return AssignmentComputed(
            generation=effect.generation, assignments=checked.assignments, user_data=checked.user_data
        )

    def _named(self, name: str) -> Assignor:
        return next(one for one in self._member.classic.assignors if one.name == name)

    async def notify_assignor(self, effect: NotifyAssignor) -> LeaderEvent:
        """Notify the assignor of its member's assignment, if it has `on_assignment`; or return its exception."""
        assignor = self._named(effect.assignor)
        if isinstance(assignor, AssignmentObserver):
            observer: AssignmentObserver = assignor
            try:
                async with self._notices:
                    await in_daemon_thread(
                        "assignor", lambda: observer.on_assignment(effect.assignment, effect.generation)
                    )
            except Exception as error:  # noqa: BLE001 - user code may raise anything, and the user has to know
                _LOG.error("on_assignment() of the assignor %s failed", assignor.name, exc_info=error)
                fault = f"on_assignment() of the assignor {assignor.name!r} failed: {type(error).__name__}: {error}"
                failure = BrokerError(code=FATAL_CODE, name="_FATAL", message=fault)
                return AssignmentFailed(generation=effect.generation, error=failure)
        return AssignorNotified(request_id=effect.request_id)

    def _log_notes(self, checked: Checked) -> None:
        for note in checked.notes:
            _LOG.warning("%s", note)


def _failure(assignor: Assignor, message: str) -> BrokerError:
    text = speakable(f"the assignor {assignor.name!r} failed: {message}")
    return BrokerError(code=FATAL_CODE, name="_FATAL", message=text)
