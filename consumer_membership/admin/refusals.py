"""A broker's refusals as this package's errors: they name the group, what was refused, and what to do."""

from __future__ import annotations

from consumer_membership.errors import GroupError, MembershipError, UnsupportedProtocolError
from consumer_membership.runtime.network.group_client import BrokerRefusal

NOT_FOUND = "GROUP_ID_NOT_FOUND"
NOT_OFFERED = "UNSUPPORTED_VERSION"
TOPIC_FORBIDDEN = "TOPIC_AUTHORIZATION_FAILED"
GROUP_FORBIDDEN = "GROUP_AUTHORIZATION_FAILED"
UNKNOWN_MEMBER = "UNKNOWN_MEMBER_ID"

#: What a broker says of a group that is there, and of another kind than it was asked for.
_OTHER_KIND = "is not a"

DESCRIBING, REMOVING = "describing a group", "removing members"
_NEEDED_ACL = {DESCRIBING: "DESCRIBE", REMOVING: "READ"}


def translated(refusal: BrokerRefusal, group_id: str, act: str) -> MembershipError:
    """The refusal of `DESCRIBING` or `REMOVING` in words for whoever runs the script."""
    error = refusal.error
    if error.name == NOT_OFFERED:
        return UnsupportedProtocolError(error.message)
    return GroupError(f"group.id={group_id!r}: {_remedy(refusal, act)}", error.code)


def _remedy(refusal: BrokerRefusal, act: str) -> str:
    error = refusal.error
    if error.name == NOT_FOUND and _OTHER_KIND in error.message:
        return (
            "the group is neither of the consumer protocol nor a classic one; share groups and streams groups have "
            "tools of their own (kafka-share-groups.sh, kafka-streams-groups.sh)"
        )
    if error.name == NOT_FOUND:
        return (
            "the cluster has no such group; check the spelling and bootstrap.servers. A group is there as long as it "
            "has members or committed offsets"
        )
    if error.name == GROUP_FORBIDDEN:
        needed = f"the ACL operation {_NEEDED_ACL[act]} on the group"
        return f"{act} is not allowed to this client ({error.name}); it needs {needed}"
    if error.name == TOPIC_FORBIDDEN:
        return (
            f"{act} is not allowed to this client ({error.name}); it needs the ACL operation DESCRIBE on every topic "
            "that the group's members subscribe to"
        )
    if refusal.retriable:
        return f"the group's coordinator was not ready in time ({error}); try again, or allow more time"
    return f"{act} was refused: {error}"
