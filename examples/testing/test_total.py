from orders import total

from consumer_membership import Message


def test_total_is_the_value_as_a_number() -> None:
    assert total(Message(topic="orders", partition=0, offset=0, key=b"customer-1", value=b"42")) == 42
