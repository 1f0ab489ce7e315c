"""Print records singly, in batches, or acknowledged manually: `app_faststream.py SERVERS TOPIC GROUP MODE`.

Each record is acknowledged after it was handled. With faststream's default, which acknowledges a record before it is
handled, records in progress are lost when the program stops.
"""

import asyncio
import sys

from faststream import AckPolicy, FastStream
from faststream.confluent import KafkaBroker, KafkaMessage


def main(servers: str, topic: str, group: str, mode: str) -> None:
    """Run until a signal ends the program."""
    broker = KafkaBroker(servers)

    if mode == "single":

        @broker.subscriber(topic, group_id=group, auto_offset_reset="earliest", ack_policy=AckPolicy.ACK)
        async def one(number: int) -> None:
            print("record", number, flush=True)

    elif mode == "batch":

        @broker.subscriber(topic, group_id=group, auto_offset_reset="earliest", ack_policy=AckPolicy.ACK, batch=True)
        async def several(numbers: list[int]) -> None:
            for number in numbers:
                print("record", number, flush=True)

    else:

        @broker.subscriber(topic, group_id=group, auto_offset_reset="earliest", ack_policy=AckPolicy.MANUAL)
        async def acknowledged(number: int, message: KafkaMessage) -> None:
            print("record", number, flush=True)
            await message.ack()

    asyncio.run(FastStream(broker).run())


if __name__ == "__main__":
    main(*sys.argv[1:])
