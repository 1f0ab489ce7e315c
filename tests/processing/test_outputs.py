"""Records that handlers return: what is accepted, and how they are written without transactions."""

from __future__ import annotations

import pickle

import pytest

from consumer_membership.errors import ArgumentTypeError, OutputError
from consumer_membership.processing import outputs as outputs_module
from consumer_membership.processing.outputs import OutputProducer, OutputRecord, outputs_of
from tests.support.kafka import read_committed
from tests.support.mock_cluster import MockCluster

ONE, OTHER = OutputRecord("invoices", b"1", "key"), OutputRecord("invoices", "2", headers=(("h", b"v"), ("n", None)))


@pytest.mark.parametrize(
    ("returned", "outputs"),
    [
        (None, ()),
        (ONE, (ONE,)),
        ([], ()),
        ([ONE, OTHER], (ONE, OTHER)),
        ((record for record in (ONE, OTHER)), (ONE, OTHER)),
    ],
)
def test_handler_may_return_nothing_one_record_or_an_iterable(
    returned: object, outputs: tuple[OutputRecord, ...]
) -> None:
    """None, a record, and any iterable of records are accepted; the result is a tuple."""
    assert outputs_of(returned, "handle") == outputs


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (42, "handle=42: the handler returned a value of type int; return None, an OutputRecord, or an iterable"),
        ("text", "handle='text': the handler returned a value of type str; "),
        (b"text", "handle=b'text': the handler returned a value of type bytes; "),
        ({"topic": "t"}, "handle={'topic': 't'}: the handler returned a value of type dict; "),
        ([ONE, None], "handle=None: the handler returned a list with a value of type NoneType; "),
    ],
)
def test_handler_with_another_return_value_is_refused_with_its_name(returned: object, message: str) -> None:
    """The message has the handler, the value, its type, and the accepted types."""
    with pytest.raises(ArgumentTypeError) as refused:
        outputs_of(returned, "handle")
    assert str(refused.value).startswith(message)


def test_output_above_the_size_limit_is_refused_when_the_handler_returns_it() -> None:
    """The size is that of key and value in bytes; librdkafka would reject the record only when it is written."""
    assert len(outputs_of(OutputRecord("invoices", "\u00e9" * 4, b"kk"), "handle", 10)) == 1
    with pytest.raises(OutputError) as refused:
        outputs_of(OutputRecord("invoices", "\u00e9" * 4, b"kkk"), "handle", 10)
    assert str(refused.value) == (
        "handler handle returned a record for topic 'invoices' with 11 bytes, more than message.max.bytes=10; return"
        " smaller records, or raise the limit of producer and topic"
    )


@pytest.mark.parametrize(
    ("arguments", "attribute"),
    [
        ({"topic": ""}, "topic=''"),
        ({"topic": None}, "topic=None"),
        ({"value": 1}, "value=1"),
        ({"key": {}}, "key={}"),
        ({"partition": -1}, "partition=-1"),
        ({"partition": True}, "partition=True"),
        ({"timestamp_ms": 1.5}, "timestamp_ms=1.5"),
        ({"headers": [("a", 1)]}, "headers=('a', 1)"),
        ({"headers": {"a": b"1"}}, "headers='a'"),
    ],
)
def test_output_record_with_a_wrong_type_is_refused_with_the_attribute(
    arguments: dict[str, object], attribute: str
) -> None:
    """The exception is raised in the handler, which has the mistake, not where the record is written."""
    with pytest.raises(ArgumentTypeError) as refused:
        OutputRecord(**{"topic": "t", "value": b"v"} | arguments)  # type: ignore[arg-type]  # the test expects the error
    assert str(refused.value).startswith(f"OutputRecord.{attribute}: ")


def test_output_record_can_be_pickled() -> None:
    """Handlers in worker processes return records to the process that writes them."""
    assert pickle.loads(pickle.dumps(OTHER)) == OTHER  # noqa: S301 - this process pickled them


# ---- the producer ----


@pytest.fixture
def short_lookups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look up topics only for a short time."""
    monkeypatch.setattr(outputs_module, "TOPIC_S", 0.1)


def test_output_producer_writes_records_in_order_until_a_flush_returns_true() -> None:
    """If a flush returns True, the brokers have all records, in the order of the calls."""
    with MockCluster.start() as cluster:
        producer = OutputProducer({"bootstrap.servers": cluster.bootstrap_servers})
        producer.send(OutputRecord("out", str(number), "k", (("n", b"1"),), 0, 5) for number in range(100))
        assert producer.flush(30)
        producer.close()
        found = [message for message in read_committed(cluster.bootstrap_servers, "out") if message.partition() == 0]
        assert [message.value() for message in found] == [str(number).encode() for number in range(100)]
        assert (found[0].key(), found[0].headers(), found[0].timestamp()[1]) == (b"k", [("n", b"1")], 5)


@pytest.mark.usefixtures("short_lookups")
def test_output_producer_reports_a_record_that_was_not_delivered_at_the_flush() -> None:
    """A timed-out record is an error of this flush and of later flushes, so that no offset is committed."""
    producer = OutputProducer({"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 100, "log_level": 0})
    producer.send([ONE])
    for _ in range(2):
        with pytest.raises(OutputError) as refused:
            producer.flush(30)
        assert str(refused.value).startswith("a record for topic 'invoices' cannot be written: ")
    producer.close()
    producer.close()


@pytest.mark.usefixtures("short_lookups")
def test_output_producer_refuses_a_record_that_is_too_large() -> None:
    """The size is compared with message.max.bytes when the record is queued; later flushes raise the error again."""
    producer = OutputProducer({"bootstrap.servers": "127.0.0.1:1", "message.max.bytes": 1000, "log_level": 0})
    for call in (lambda: producer.send([OutputRecord("invoices", bytes(2000))]), lambda: producer.flush(0)):
        with pytest.raises(OutputError) as refused:
            call()
        assert str(refused.value).startswith("a record for topic 'invoices' cannot be written: ")
    producer.close()
