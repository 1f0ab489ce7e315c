"""A consumer for asyncio: a task that reads, others that work, and a clean end at Ctrl-C.

    python examples/asyncio_consumer.py -b localhost:9092 -t orders

Each record is handled by a task of its own, a few at a time; what is handled in order is committed. Ends after some
seconds, or by Ctrl-C.
"""

import argparse
import asyncio
import os
import signal

from consumer_membership import Message, TopicPartition
from consumer_membership.aio import AIOConsumer

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("-b", "--bootstrap-servers", default=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"))
parser.add_argument("-g", "--group", default="asyncio-consumer")
parser.add_argument("-t", "--topic", default="orders")
parser.add_argument("--seconds", type=float, default=30)
options = parser.parse_args()

AT_ONCE = 20


async def handle(message: Message) -> None:
    """Something that waits for others: a database, a web service."""
    await asyncio.sleep(len(message.value() or b"") / 1000)


async def read(consumer: AIOConsumer) -> None:
    """Handle some records at a time, and commit them together: what is not committed is read again."""
    while True:
        messages = await consumer.consume(AT_ONCE, timeout=1.0)
        for message in messages:
            if message.error() is not None:
                print(f"error: {message.error()}")
                if message.error().fatal():
                    return
        records = [message for message in messages if message.error() is None]
        await asyncio.gather(*(handle(record) for record in records))
        if records:
            await consumer.commit(asynchronous=False)
            print(f"handled {len(records)}")


async def on_assign(consumer: AIOConsumer, partitions: list[TopicPartition]) -> None:
    """Callbacks may be coroutine functions; the first record comes after they have ended."""
    for place in await consumer.committed(partitions, timeout=10):
        print(f"assigned {place.partition}, from {max(place.offset, 0)}")


async def main() -> None:
    """Read until the time is over, or Ctrl-C comes."""
    config = {
        "bootstrap.servers": options.bootstrap_servers,
        "group.id": options.group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    async with AIOConsumer(config) as consumer:
        await consumer.subscribe([options.topic], on_assign=on_assign)
        reading = asyncio.create_task(read(consumer))
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, reading.cancel)
        await asyncio.wait([reading], timeout=options.seconds)
        reading.cancel()
        await asyncio.wait([reading])
        print("leaving")


asyncio.run(main())
