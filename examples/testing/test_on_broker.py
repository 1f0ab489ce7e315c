import threading
import time
from collections import Counter
from uuid import uuid4

from orders import run

from consumer_membership import Message, Producer
from consumer_membership.admin import AdminClient, NewTopic


def test_two_members_handle_each_record_once(broker_servers: str) -> None:
    topic = f"orders-{uuid4()}"
    admin = AdminClient({"bootstrap.servers": broker_servers})
    admin.create_topics([NewTopic(topic, 4)])[topic].result()
    config = {"bootstrap.servers": broker_servers, "group.id": topic, "auto.offset.reset": "earliest"}
    seen: Counter[bytes] = Counter()

    def handle(message: Message) -> None:
        seen[message.value()] += 1

    events = [threading.Event(), threading.Event()]
    members = [threading.Thread(target=run, args=(config, topic, handle, event)) for event in events]
    producer = Producer({"bootstrap.servers": broker_servers})
    try:
        members[0].start()
        for number in range(1000):
            producer.produce(topic, value=str(number))
            if number == 500:
                members[1].start()  # a rebalance while records flow
            producer.poll(0)
        producer.flush()
        deadline = time.monotonic() + 30
        while len(seen) < 1000 and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        for event, member in zip(events, members, strict=True):
            event.set()
            member.join()
    assert len(seen) == 1000
    assert set(seen.values()) == {1}
