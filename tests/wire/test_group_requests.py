"""Requests about a group, on the wire and version by version, read back with kio."""

from __future__ import annotations

import pytest

from consumer_membership.errors import UnsupportedProtocolError
from consumer_membership.wire import group_requests
from consumer_membership.wire.group_requests import MemberIdentity
from consumer_membership.wire.versions import Api
from tests.wire.frames import VERSIONS, on_the_wire, only


@pytest.mark.parametrize("version", [0, 1])
def test_describe_names_the_group_and_asks_for_no_rights(version: int) -> None:
    """KIP-848: one group; the authorized operations would cost the broker work that nobody reads."""
    api = Api.CONSUMER_GROUP_DESCRIBE
    call = group_requests.describe_consumer_group(only(api, version), "g")
    entity = on_the_wire(call, api, version)
    assert (entity.group_ids, entity.include_authorized_operations) == (("g",), False)
    assert call.response.__version__ == version


@pytest.mark.parametrize("version", [5, 6])
def test_describe_of_a_classic_group(version: int) -> None:
    """Version 6 differs in its answer only, which has a message, so the answer is read in the version it has."""
    api = Api.DESCRIBE_GROUPS
    call = group_requests.describe_classic_group(only(api, version), "g")
    entity = on_the_wire(call, api, version)
    assert (entity.groups, entity.include_authorized_operations) == (("g",), False)
    assert call.response.__version__ == version


MEMBERS = (
    MemberIdentity(member_id="m"),
    MemberIdentity(instance_id="i"),
    MemberIdentity(member_id="n", instance_id="j"),
)


@pytest.mark.parametrize("version", [4, 5])
def test_members_are_removed_in_one_request(version: int) -> None:
    """Rules 3.5: member id, instance id or both, each with the reason where the version has one."""
    api = Api.LEAVE_GROUP
    entity = on_the_wire(group_requests.remove_members(only(api, version), "g", MEMBERS, "because"), api, version)
    assert entity.group_id == "g"
    assert [(one.member_id, one.group_instance_id) for one in entity.members] == [("m", None), ("", "i"), ("n", "j")]
    assert [getattr(one, "reason", None) for one in entity.members] == ["because" if version == 5 else None] * 3


def test_long_reason_is_cut() -> None:
    """Java's limit; a reason is for people, and none is null."""
    call = group_requests.remove_members(VERSIONS, "g", MEMBERS[:1], "x" * 300)
    assert on_the_wire(call, Api.LEAVE_GROUP, 5).members[0].reason == "x" * 255
    call = group_requests.remove_members(VERSIONS, "g", MEMBERS[:1], None)
    assert on_the_wire(call, Api.LEAVE_GROUP, 5).members[0].reason is None


def test_configuration_is_asked_for_by_key() -> None:
    """DescribeConfigs of the resource type GROUP (32): what the coordinator uses for this group's members."""
    entity = on_the_wire(group_requests.describe_group_config(VERSIONS, "g"), Api.DESCRIBE_CONFIGS, 4)
    (resource,) = entity.resources
    assert (resource.resource_type, resource.resource_name) == (32, "g")
    assert resource.configuration_keys == ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms")
    assert (entity.include_synonyms, entity.include_documentation) == (False, False)


@pytest.mark.parametrize("version", [8, 9])
def test_everything_committed_is_a_null_list_of_topics(version: int) -> None:
    """OffsetFetch as nobody: null asks for all; an open transaction does not hold the answer back."""
    api = Api.OFFSET_FETCH
    entity = on_the_wire(group_requests.all_committed(only(api, version), "g"), api, version)
    (group,) = entity.groups
    assert (group.group_id, group.topics, entity.require_stable) == ("g", None, False)
    assert (getattr(group, "member_id", None), getattr(group, "member_epoch", -1)) == (None, -1)


@pytest.mark.parametrize("version", [6, 7])
def test_everything_committed_of_one_group(version: int) -> None:
    """Brokers before Kafka 3.0 and Redpanda know no batch; null asks for all there too."""
    api = Api.OFFSET_FETCH
    entity = on_the_wire(group_requests.all_committed(only(api, version), "g"), api, version)
    assert (entity.group_id, entity.topics) == ("g", None)
    assert getattr(entity, "require_stable", None) is (None if version == 6 else False)


@pytest.mark.parametrize("api", [Api.CONSUMER_GROUP_DESCRIBE, Api.DESCRIBE_GROUPS, Api.LEAVE_GROUP])
def test_broker_without_the_api_is_refused(api: Api) -> None:
    """The text names the API and which broker has it."""
    build = {
        Api.CONSUMER_GROUP_DESCRIBE: group_requests.describe_consumer_group,
        Api.DESCRIBE_GROUPS: group_requests.describe_classic_group,
        Api.LEAVE_GROUP: lambda versions, group: group_requests.remove_members(versions, group, MEMBERS, None),
    }[api]
    with pytest.raises(UnsupportedProtocolError, match=rf"{api.title} \(api key {api.value}\)"):
        build(only(Api.METADATA, 12), "g")
