"""Groups as their operators see them: described with what they still have to read, and rid of members.

    from consumer_membership.admin import GroupAdmin

    admin = GroupAdmin({"bootstrap.servers": "localhost:9092"})
    print(admin.describe("orders").lag)
    admin.remove_members("orders", instance_ids=["orders-3"])

For scripts and the command line; it works on groups of both protocols. This room asks brokers and says what they said;
it is no member of anything and must not know how one is made (`membership`).
"""

from consumer_membership.admin.group_admin import GroupAdmin
from consumer_membership.admin.progress import GroupReport, PartitionProgress
from consumer_membership.admin.removal import Removal, RemovalOutcome
from consumer_membership.runtime.network.group_client import GroupDescription, MemberDescription, MemberIdentity

__all__ = [
    "GroupAdmin",
    "GroupDescription",
    "GroupReport",
    "MemberDescription",
    "MemberIdentity",
    "PartitionProgress",
    "Removal",
    "RemovalOutcome",
]
