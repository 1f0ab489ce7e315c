"""List groups, print the members and the lag of a group, and remove a static member that does not come back.

    python examples/group_admin.py -b localhost:9092
    python examples/group_admin.py -b localhost:9092 -g orders
    python examples/group_admin.py -b localhost:9092 -g orders --remove worker-7

`GroupAdmin` works with groups of both protocols and of any client. Each call opens and closes its own connections.
"""

import argparse
import os
import sys

from consumer_membership import MembershipError
from consumer_membership.admin import GroupAdmin

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("-b", "--bootstrap-servers", default=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"))
parser.add_argument("-g", "--group", help="the group to describe; without it, all groups are listed")
parser.add_argument("--remove", metavar="ID", help="remove the member with this group.instance.id from the group")
options = parser.parse_args()


def list_groups(admin: GroupAdmin) -> None:
    """Print all groups that this client may describe."""
    listing = admin.list_groups()
    for group in listing.groups:
        print(f"{group.group_id}: {group.kind}, {group.state}")
    for broker, error in listing.errors.items():
        print(f"groups of {broker} are missing: {error}", file=sys.stderr)


def describe(admin: GroupAdmin, group_id: str) -> None:
    """Print the members of a group, and the lag of each partition."""
    report = admin.describe(group_id)
    print(f"{group_id}: {report.group.protocol.value} protocol, {report.group.state}")
    for member in report.group.members:
        owned = ", ".join(f"{partition.topic}-{partition.partition}" for partition in sorted(member.assignment))
        print(f"{member.instance_id or member.member_id} on {member.host} owns {owned or 'nothing'}")
    for partition in report.partitions:
        print(f"{partition.topic}-{partition.partition}: committed {partition.committed}, lag {partition.lag}")


def main() -> None:
    """Run the selected action."""
    admin = GroupAdmin({"bootstrap.servers": options.bootstrap_servers})
    try:
        if options.group is None:
            list_groups(admin)
        elif options.remove is not None:
            for removal in admin.remove_members(options.group, instance_ids=[options.remove], reason="does not return"):
                print(f"{removal.outcome.value}: {removal.message}")
        else:
            describe(admin, options.group)
    except MembershipError as error:  # the group does not exist, an ACL is missing, no broker responds
        sys.exit(str(error))


main()
