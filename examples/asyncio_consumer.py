"""Consume with asyncio: handle the records of a batch concurrently, commit the batch, and end cleanly at a signal.

    python examples/asyncio_consumer.py -b localhost:9092 -t orders

Each record of a batch is handled in its own task. When all of them are done, the batch is committed. If a task raises,
the other tasks are cancelled, the batch is not committed, and the program ends with the exception: after a restart, the
group receives the whole batch again. The program ends after --seconds, or with Ctrl-C or SIGTERM after the current
batch.
"""

import argparse
import asyncio
import os
import signal

from consumer_membership import KafkaException, Message, TopicPartition
from consumer_membership.aio import AIOConsumer

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("-b", "--bootstrap-servers", default=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"))
parser.add_argument("-g", "--group", default="asyncio-consumer")
parser.add_argument("-t", "--topic", default="orders")
parser.add_argument("--seconds", type=float, default=30)
options = parser.parse_args()

BATCH = 20


async def handle(message: Message) -> None:
    """Replace this with your work, for example a request to a database or a web service."""
    await asyncio.sleep(len(message.value() or b"") / 1000)


async def consume(consumer: AIOConsumer, stopping: asyncio.Event) -> None:
    """Handle and commit batches until `stopping` is set. Raises what `handle` raises, in an ExceptionGroup."""
    while not stopping.is_set():
        records = []
        for message in await consumer.consume(BATCH, timeout=1.0):
            if message.error() is None:
                records.append(message)
            elif message.error().fatal():
                raise KafkaException(message.error())
            else:
                print(f"error: {message.error()}")
        if not records:
            continue
        async with asyncio.TaskGroup() as tasks:
            for message in records:
                tasks.create_task(handle(message))
        try:
            await consumer.commit(asynchronous=False)
        except KafkaException as error:
            # Usually the partitions belong to another member now. That member handles these records again.
            print(f"not committed: {error}")
        else:
            print(f"handled {len(records)}")


async def on_assign(consumer: AIOConsumer, partitions: list[TopicPartition]) -> None:
    """Print where each partition starts. Callbacks may be coroutine functions; the first record is returned later."""
    for partition in await consumer.committed(partitions, timeout=10):
        print(f"assigned {partition.partition}, from {max(partition.offset, 0)}")


async def main() -> None:
    """Consume until the time is over or a signal arrives."""
    config = {
        "bootstrap.servers": options.bootstrap_servers,
        "group.id": options.group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    loop.call_later(options.seconds, stopping.set)
    async with AIOConsumer(config) as consumer:  # the end of the block leaves the group
        await consumer.subscribe([options.topic], on_assign=on_assign)
        await consume(consumer, stopping)
        print("leaving")


asyncio.run(main())
