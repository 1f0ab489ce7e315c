"""A scripted coordinator of a group with two members, which also leads the partitions of its topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.runtime.clients import LIST_OFFSETS, answers, offsets_answer, requested_partitions
from tests.support.scripted_broker import Answer, Received, Topic
from tests.wire.groups import TOPIC_ID, consumer_group, consumer_member, leave_answer

TOPICS: Mapping[str, Topic] = {"t": Topic(TOPIC_ID, (1, 1))}
TWO = consumer_group(
    consumer_member("d", assignment=(0,), target_assignment=(0,)),
    consumer_member("s", instance_id="i", assignment=(1,), target_assignment=(1,)),
)


def scripted(**by_api: Callable[[Received], Answer] | Answer) -> Callable[[Received], Answer]:
    """Return a coordinator that also leads each partition of `t`, with 10 records each."""
    group = answers(**by_api)

    def answer(request: Received) -> Answer:
        if request.api_key == LIST_OFFSETS:
            return offsets_answer(dict.fromkeys(requested_partitions(request), (10, 0)))
        return group(request)

    return answer


def leaves(request: Received) -> Answer:
    """Remove the requested members, except for x."""
    asked = request.entity.members
    return leave_answer(*((one.member_id, one.group_instance_id, 25 * (one.member_id == "x")) for one in asked))
