"""Surveys and observations as values, with defaults for the fields that a test does not set."""

from __future__ import annotations

from collections.abc import Mapping

from consumer_membership.admin import GroupDescription, GroupSurvey, PartitionOffsets, TopicSurvey
from consumer_membership.observe.observation import Observation
from consumer_membership.types import BrokerAddress, BrokerError, OffsetAndMetadata, TopicPartition


def survey(
    group: GroupDescription | None,
    offsets: Mapping[int, tuple[int | None, int]] | None = None,
    at: float = 0.0,
    **fields: object,
) -> GroupSurvey:
    """Return a survey of topic `t` with the committed offset and the end offset of each partition."""
    given = offsets or {}
    values: dict[str, object] = {
        "group_id": "g",
        "at": at,
        "coordinator": BrokerAddress(node_id=1, host="h", port=1),
        "group": group,
        "committed": {
            TopicPartition("t", number): OffsetAndMetadata(offset=committed)
            for number, (committed, _) in given.items()
            if committed is not None
        },
        "topics": {"t": TopicSurvey(leaders=dict.fromkeys(given, 1), is_internal=False, error=None)},
        "offsets": {
            TopicPartition("t", number): PartitionOffsets(start=0, end=end, stable=end)
            for number, (_, end) in given.items()
        },
        "transactions": (),
        "broker_settings": {},
        "group_settings": {},
        "refusals": {},
    }
    return GroupSurvey(**(values | fields))  # type: ignore[arg-type]


def seen(*surveys: GroupSurvey) -> Observation:
    """Return the observation of these surveys."""
    return Observation(surveys=surveys)


def refusal(name: str, message: str = "") -> BrokerError:
    """Return a broker's error."""
    return BrokerError(code=1, name=name, message=message)
