"""Administer consumer groups: describe them with their lag, read their history, and remove members.

    from consumer_membership.admin import GroupAdmin

    admin = GroupAdmin({"bootstrap.servers": "localhost:9092"})
    print(admin.describe("orders").lag)
    admin.remove_members("orders", instance_ids=["orders-3"])

For scripts and the command line; it works with groups of both protocols. The package sends requests to brokers and
returns their responses; it never joins a group and must not import `membership`. It also exports the names of
confluent-kafka's package `admin` (`AdminClient`, `NewTopic`, ...), for programs that import them from here.
"""

from typing import TYPE_CHECKING

from consumer_membership.admin.cluster_client import ListedGroup, OpenTransaction
from consumer_membership.admin.group_admin import GroupAdmin
from consumer_membership.admin.group_log import ReadingProgress
from consumer_membership.admin.history import GroupHistory, GroupPresent
from consumer_membership.admin.listing import GroupListing
from consumer_membership.admin.progress import GroupReport, PartitionProgress
from consumer_membership.admin.removal import Removal, RemovalOutcome
from consumer_membership.admin.survey import GroupSurvey, PartitionOffsets, Subject, TopicSurvey
from consumer_membership.runtime.network.group_client import GroupDescription, MemberDescription, MemberIdentity

if TYPE_CHECKING:
    from confluent_kafka.admin import *  # type: ignore[assignment]  # noqa: F403 - ours have some of its names

__all__ = [
    "GroupAdmin",
    "GroupDescription",
    "GroupHistory",
    "GroupListing",
    "GroupPresent",
    "GroupReport",
    "GroupSurvey",
    "ListedGroup",
    "MemberDescription",
    "MemberIdentity",
    "OpenTransaction",
    "PartitionOffsets",
    "PartitionProgress",
    "ReadingProgress",
    "Removal",
    "RemovalOutcome",
    "Subject",
    "TopicSurvey",
]


def __getattr__(name: str) -> object:
    """Import confluent-kafka's names on first use (PEP 562), because the import takes time."""
    import confluent_kafka.admin  # noqa: PLC0415

    if name.startswith("_") or not hasattr(confluent_kafka.admin, name):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(confluent_kafka.admin, name)
    return found


def __dir__() -> list[str]:
    import confluent_kafka.admin  # noqa: PLC0415

    return sorted({*globals(), *dir(confluent_kafka.admin)})
