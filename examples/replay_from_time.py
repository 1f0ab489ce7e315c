"""Move a group back to a point in time, so that it reads the records since then again.

    python examples/replay_from_time.py -b localhost:9092 -g orders -t orders --since 2026-01-31T09:00

Stop the consumers of the group first: offsets can be changed from outside only while the group has no members. For each
partition, the program commits the first offset whose timestamp is at or after the time. A time without a UTC offset is
local time.
"""

import argparse
import os
import sys
from datetime import datetime

from consumer_membership import OFFSET_END, Consumer, MembershipError, TopicPartition
from consumer_membership.admin import GroupAdmin

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("-b", "--bootstrap-servers", default=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"))
parser.add_argument("-g", "--group", required=True)
parser.add_argument("-t", "--topic", default="orders")
parser.add_argument("--since", required=True, type=datetime.fromisoformat, metavar="TIME", help="ISO 8601")
options = parser.parse_args()

servers = {"bootstrap.servers": options.bootstrap_servers}
try:
    members = GroupAdmin(servers).describe(options.group, with_offsets=False).group.members
except MembershipError as error:  # the group does not exist, an ACL is missing, no broker responds
    sys.exit(str(error))
if members:
    sys.exit(f"group {options.group} has {len(members)} members; stop them first")

# This consumer does not subscribe, so it does not join the group. It commits for the group without being a member.
with Consumer({**servers, "group.id": options.group, "enable.auto.commit": False}) as consumer:
    topic = consumer.list_topics(options.topic, timeout=10).topics[options.topic]
    if topic.error is not None:
        sys.exit(f"{options.topic}: {topic.error}")
    milliseconds = int(options.since.astimezone().timestamp() * 1000)
    times = [TopicPartition(options.topic, number, milliseconds) for number in topic.partitions]
    offsets = consumer.offsets_for_times(times, timeout=10)
    for partition in offsets:
        if partition.error is not None:
            sys.exit(f"{partition.topic}[{partition.partition}]: {partition.error}")
        if partition.offset == OFFSET_END:  # all records are older
            _, partition.offset = consumer.get_watermark_offsets(partition, timeout=10)
    for partition in consumer.commit(offsets=offsets, asynchronous=False):
        if partition.error is not None:
            sys.exit(f"{partition.topic}[{partition.partition}]: {partition.error}")
        print(f"{partition.topic}[{partition.partition}] continues at {partition.offset}")
