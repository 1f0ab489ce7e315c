import threading
from collections.abc import Callable

from consumer_membership import Consumer, KafkaException, Message


def total(message: Message) -> int:
    """Return the price of one order."""
    return int(message.value())


def run(config: dict[str, object], topic: str, handle: Callable[[Message], None], stopping: threading.Event) -> None:
    """Handle records until `stopping` is set, and commit each one after it is handled."""
    with Consumer({**config, "enable.auto.offset.store": False}) as consumer:
        consumer.subscribe([topic])
        while not stopping.is_set():
            message = consumer.poll(0.1)
            if message is None:
                continue
            if message.error() is not None:
                if message.error().fatal():
                    raise KafkaException(message.error())
                continue
            handle(message)
            consumer.store_offsets(message)
