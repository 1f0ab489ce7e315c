"""Each method refuses invalid arguments by name, as confluent-kafka does where it does not crash.

confluent-kafka 2.16 aborts or crashes on some of these texts, so they are passed in a separate process.
"""

from __future__ import annotations

import functools
import gc
import inspect
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from consumer_membership import ConfigurationError, Consumer, MembershipError, UseError
from consumer_membership.clients.exceptions import InvalidArgumentError
from consumer_membership.types import TopicPartition as Partition
from tests.clients.application import record
from tests.clients.conftest import ConsumerFactory
from tests.clients.scripted import ScriptedConsumer
from tests.support.waiting import PATIENCE_S

NOBODY = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0, "enable.auto.offset.store": False}

# ---- a process survives ----------------------------------------------------------------------------------------------

#: Prints one line for each text and each call in `DOORS`: the class of the raised exception, or "taken".
TRY_ALL = """
import sys
import time

MODULE = sys.argv[1]
kafka = __import__(MODULE)
NOBODY = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
BAD = {"surrogate": "a\\ud800", "byte": "a\\udcff", "nul": "a\\0b"}
CONFIG = (
    "group.id", "group.instance.id", "group.protocol", "client.id", "client.rack", "bootstrap.servers", "debug",
    "sasl.password", "sasl.username", "topic.blacklist", "auto.offset.reset", "partition.assignment.strategy",
)
DOORS = {
    **{key: lambda text, key=key: kafka.Consumer({**NOBODY, key: text}) for key in CONFIG},
    "a key": lambda text: kafka.Consumer({**NOBODY, text: "x"}),
    "a keyword": lambda text: kafka.Consumer(NOBODY, **{text: "x"}),
    "a pool": lambda text: kafka.Consumer({**NOBODY, "group.instance.id.pool": [text]}),
    "default.topic.config": lambda text: kafka.Consumer({**NOBODY, "default.topic.config": {"a": text}}),
    "subscribe": lambda text: consumer.subscribe([text]),
    "subscribe a pattern": lambda text: consumer.subscribe(["^" + text]),
    "a topic": lambda text: kafka.TopicPartition(text, 0),
    "metadata": lambda text: kafka.TopicPartition("t", 0, 0, text),
    "list_topics": lambda text: consumer.list_topics(text, 0.1),
    "username": lambda text: consumer.set_sasl_credentials(text, "p"),
    "password": lambda text: consumer.set_sasl_credentials("u", text),
    "close": lambda text: consumer.close(membership=text),
}
consumer = kafka.Consumer(NOBODY)
for kind, text in BAD.items():
    for door, go in DOORS.items():
        try:
            go(text)
        except Exception as error:
            reported = str(error)
            reported.encode()
            print(kind, door, type(error).__mro__[0].__name__, ascii(reported), sep="|", flush=True)
        else:
            print(kind, door, "taken", "", sep="|", flush=True)
consumer.close()
"""


def python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program in a separate process, and return its result, also after a crash."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE_S)


@pytest.mark.slow
def test_invalid_text_in_any_argument_raises_a_printable_error() -> None:
    """Invalid text in any argument raises an error that can be printed.

    No signal ends the process, and no text is cut silently.
    """
    ran = python(TRY_ALL, "consumer_membership")
    assert (ran.returncode, ran.stderr) == (0, "")
    reported = [line.split("|", 3) for line in ran.stdout.splitlines()]
    assert len(reported) == 3 * 24
    assert [line for line in reported if line[2] in ("taken", "SystemError", "InternalError", "IndexError")] == []
    unexplained = [
        line
        for line in reported
        if not any(message in line[3] for message in ("not UTF-8", "NUL", "expected one of", "utf-8", "null"))
    ]
    assert unexplained == []


@pytest.mark.slow
def test_environment_value_that_is_not_utf_8_raises_an_error_that_names_the_variable() -> None:
    """The error names the variable, because a shell may export such a value; the traceback contains no password."""
    program = """if True:
        import os, sys, traceback
        from consumer_membership import Consumer
        for name in sys.argv[1:]:
            os.environb[name.encode()] = b"geheim\\xff"
            try:
                Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"})
            except Exception as error:
                print(name, "geheim" in traceback.format_exc(), ascii(str(error)), sep="|")
            del os.environb[name.encode()]"""
    names = [
        f"CONSUMER_MEMBERSHIP_{key}" for key in ("CLIENT_ID", "GROUP_INSTANCE_ID", "SASL_PASSWORD", "FETCH_MIN_BYTES")
    ]
    ran = python(program, *names)
    assert (ran.returncode, ran.stderr) == (0, "")
    reported = [line.split("|", 2) for line in ran.stdout.splitlines()]
    assert [(name, is_shown) for name, is_shown, _ in reported] == [
        (name, str("PASSWORD" not in name)) for name in names
    ]
    for name, _, message in reported:
        assert "it is not UTF-8" in message
        assert f"environment variable {name}; change or unset it" in message


@pytest.mark.slow
def test_assign_refuses_a_topic_name_that_crashes_librdkafka() -> None:
    """`assign` refuses a name of more than 512 bytes, because librdkafka would crash."""
    program = """if True:
        from consumer_membership import Consumer, KafkaException, TopicPartition
        consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
        for assign in (consumer.assign, consumer.incremental_assign):
            assign([TopicPartition("x" * 512, 0, 0)])
            consumer.poll(0.2)
            consumer.unassign()
            for topic in ("x" * 513, "é" * 257):
                try:
                    assign([TopicPartition(topic, 0, 0)])
                except KafkaException as error:
                    print(error.args[0].str())
        consumer.close()"""
    ran = python(program)
    assert (ran.returncode, ran.stderr) == (0, "")
    lines = ran.stdout.splitlines()
    assert [line.partition(": ")[2][:24] for line in lines] == [
        "it has 513 bytes of UTF-",
        "it has 514 bytes of UTF-",
    ] * 2
    assert max(map(len, lines)) < 300


# ---- both clients ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def consumer() -> Iterator[Consumer]:
    """A consumer of this package without a broker."""
    with Consumer(NOBODY) as made:
        yield made


@pytest.fixture(scope="module")
def raw() -> Iterator[confluent_kafka.Consumer]:
    """A confluent-kafka consumer without a broker."""
    made = confluent_kafka.Consumer(NOBODY)
    yield made
    made.close()


class Mute:
    """An object whose `str()` raises."""

    def __str__(self) -> str:
        raise KeyError("no message")


T = TopicPartition("t", 0, 0)
LISTS = ("assign", "incremental_assign", "incremental_unassign", "pause", "resume", "position", "committed")
#: Calls that confluent-kafka refuses: method, arguments, keyword arguments.
MISTAKES: list[Any] = [
    *((method, (wrong,), {}) for method in LISTS for wrong in (None, "t", 5, T, ("t",), ["t"], [None], [("t", 0)], {})),  # type: ignore[var-annotated]  # of many types
    *((method, ([T], wrong), {}) for method in ("committed", "offsets_for_times") for wrong in ("1", None, [])),  # type: ignore[var-annotated]  # of many types
    *(("offsets_for_times", (wrong, 0.1), {}) for wrong in (None, "t", ["t"])),
    *(("seek", (wrong,), {}) for wrong in (None, "t", ("t", 0), [T])),
    *(("get_watermark_offsets", (wrong, 0.1), {}) for wrong in (None, "t", [T])),
    *(("get_watermark_offsets", (T, wrong), {}) for wrong in (None, "1")),
    *(("get_watermark_offsets", (T,), {"cached": wrong}) for wrong in ("yes", None, 1.5)),
    *(("subscribe", (wrong,), {}) for wrong in (None, "t", ("t",), {"t"}, 5, [Mute()])),
    *(("subscribe", (["t"],), {name: wrong}) for name in ("on_assign", "on_revoke", "on_lost") for wrong in (None, 5)),
    *(("poll", (wrong,), {}) for wrong in (None, "1", [])),  # type: ignore[var-annotated]  # of many types
    *(("consume", wrong, {}) for wrong in (("1",), (1.5,), (None,), (-1, 0), (10**7, 0), (1, "1"), (1, None))),
    *(("commit", (wrong,), {}) for wrong in ("t", 5, T)),
    *(("commit", (), {"offsets": wrong}) for wrong in ("t", 5, T, ["t"], [None])),
    ("commit", (Message(), [T]), {}),
    ("commit", (), {"nonsense": 1}),
    *(("store_offsets", wrong, {}) for wrong in (("t",), (None, "t"), (None, ["t"]), (), (Message(), [T]))),
    *(
        ("list_topics", wrong, {})
        for wrong in ((5, 0.1), (["t"], 0.1), ("t", "1"), ("a\ud800", 0.1), ("a\0b", 0.1), ("x" * 513, 0.1))
    ),
    *(("cluster_id", (wrong,), {}) for wrong in ("1", None)),
    *(
        ("set_sasl_credentials", wrong, {})
        for wrong in ((None, "p"), ("u", 5), ("u", b"p"), ("u",), ("a\ud800", "p"), ("u", "a\ud800"), ("u", "a\0"))
    ),
    ("close", (5,), {}),
    ("unsubscribe", (5,), {}),
]


#: The exception classes that confluent-kafka raises for invalid calls.
CLASSES = (TypeError, ValueError, KafkaException, RuntimeError)


def outcome_of(call: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]) -> BaseException:
    """The exception that the call raises."""
    with pytest.raises(CLASSES) as caught:
        call(*args, **kwargs)
    return caught.value


@pytest.mark.parametrize(
    ("method", "args", "kwargs"),
    MISTAKES,
    # The ids omit the arguments, whose text differs between processes: a run with several processes compares ids.
    ids=[f"{number}-{method}" for number, (method, _, _) in enumerate(MISTAKES)],
)
def test_invalid_call_raises_the_exception_class_of_confluent_kafka(
    consumer: Consumer,
    raw: confluent_kafka.Consumer,
    method: str,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> None:
    """The exception has confluent-kafka's class and never comes from this package's internals."""
    theirs = outcome_of(getattr(raw, method), args, kwargs)
    ours = outcome_of(getattr(consumer, method), args, kwargs)
    kind = next(one for one in CLASSES if isinstance(theirs, one))
    assert isinstance(ours, kind)
    assert str(ours)


#: Calls that exist only here, or hang or crash in confluent-kafka: method, arguments, error type and message.
OURS: list[tuple[str, tuple[object, ...], type[Exception], str]] = [
    ("begin_commit", (["x"],), TypeError, "expected cimpl.TopicPartition"),
    ("begin_commit", ("x",), TypeError, "requires list of TopicPartition"),
    ("begin_commit", (T,), TypeError, "requires list of TopicPartition"),
    ("dump", (5,), TypeError, "not int"),
    ("on_event", (None,), TypeError, "on_event expects a callable"),
    ("on_event", ("x",), TypeError, "on_event expects a callable"),
    ("owned_since", ("t",), TypeError, "expected cimpl.TopicPartition"),
    ("owned_since", (None,), TypeError, "expected cimpl.TopicPartition"),
    ("lease", ("t",), TypeError, "expected cimpl.TopicPartition"),
    ("lease", (None,), TypeError, "expected cimpl.TopicPartition"),
    ("poll", (float("nan"),), InvalidArgumentError, "timeout=nan: not a number; pass seconds"),
    ("consume", (1, float("nan")), InvalidArgumentError, "timeout=nan: not a number; pass seconds"),
    ("commit", (None, [TopicPartition("x" * 513, 0, 1)]), KafkaException, "it has 513 bytes"),
    ("begin_commit", ([TopicPartition("x" * 513, 0, 1)],), KafkaException, "it has 513 bytes"),
    ("commit", (None, [TopicPartition("t", 0, 1, "m" * 32_768)]), KafkaException, "metadata of t [0]='mmm"),
    ("begin_commit", ([TopicPartition("t", 0, 1, "m" * 32_768)],), KafkaException, "it has 32768 bytes"),
    ("store_offsets", (None, [TopicPartition("t", 0, 1, "m" * 32_768)]), KafkaException, "it has 32768 bytes"),
    ("committed", ([TopicPartition("x" * 40_000, 0)], 1), KafkaException, "it has 40000 bytes"),
    ("seek", (TopicPartition("x" * 513, 0, 1),), KafkaException, "it has 513 bytes"),
    ("get_watermark_offsets", (TopicPartition("x" * 513, 0), 1), KafkaException, "it has 513 bytes"),
    ("subscribe", (["t\ud800"],), KafkaException, "'t\\ud800' cannot be subscribed: it is not UTF-8"),
    ("subscribe", (["^t\0"],), KafkaException, "it has a NUL character at position 2"),
    ("subscribe", (["x" * 513],), KafkaException, "it has 513 bytes of UTF-8, and Kafka accepts at most 512"),
    ("subscribe", (["^" + "x" * 20_000, "^" + "y" * 20_000],), KafkaException, "Kafka accepts at most 32767"),
    ("set_sasl_credentials", ("u", "a\ud800"), InvalidArgumentError, "password='***': it is not UTF-8: "),
    ("set_sasl_credentials", ("a\0b", "p"), InvalidArgumentError, "username='a\\x00b': it has a NUL character"),
]


@pytest.mark.parametrize(("method", "args", "kind", "message"), OURS, ids=[f"{one[0]}-{one[3][:30]}" for one in OURS])
def test_invalid_argument_error_names_argument_excerpt_and_remedy(
    consumer: Consumer, method: str, args: tuple[object, ...], kind: type[Exception], message: str
) -> None:
    """The call raises at once, and the error names the argument, an excerpt and the remedy."""
    with pytest.raises(kind) as caught:
        getattr(consumer, method)(*args)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 400
    if kind is not TypeError:
        assert isinstance(caught.value, UseError)


def test_each_method_with_arguments_is_in_the_tables_of_invalid_calls() -> None:
    """A new method needs a row for each kind of argument that it refuses."""
    methods = {name: getattr(Consumer, name) for name in dir(Consumer) if not name.startswith("_")}
    with_arguments = {name for name, method in methods.items() if len(inspect.signature(method).parameters) > 1}
    assert with_arguments == {*(one[0] for one in MISTAKES), *(one[0] for one in OURS)}


@pytest.mark.parametrize("word", [None, 5, [], {}, "a\ud800", "LEAVE", ""])
@pytest.mark.parametrize("method", ["close", "unsubscribe"])
def test_close_and_unsubscribe_refuse_unknown_membership_options(consumer: Consumer, method: str, word: object) -> None:
    """Any other value of `membership` raises ValueError, and the consumer does not change."""
    with pytest.raises(ValueError, match="expected one of 'default', 'leave', 'remain'") as caught:
        getattr(consumer, method)(membership=word)
    assert str(caught.value).encode()
    assert consumer.assignment() == []


# ---- the configuration -----------------------------------------------------------------------------------------------


def refused(config: dict[object, object], **kwargs: object) -> MembershipError:
    """The error that this configuration raises: a KafkaException with _INVALID_ARG."""
    with pytest.raises(ConfigurationError) as caught:
        Consumer({**NOBODY, **config}, **kwargs)  # type: ignore[misc]  # mistakes among them
    error = caught.value
    assert isinstance(error, KafkaException)
    assert error.args[0].code() == KafkaError._INVALID_ARG
    return error


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({5: 1}, '5=1: No such configuration property: "5"; a key must be text, such as "client.id", not int'),
        ({"5": 1}, 'configuration property: "5" (rejected by librdkafka); no known key is similar; remove it'),
        (
            {"client-id": "x"},
            'No such configuration property: "client-id" (rejected by librdkafka); did you mean client.id?',
        ),
        ({"Group.Id": "x"}, "Group.Id='x': No such configuration property: \"Group.Id\"; did you mean group.id?"),
        ({"fetch.min.byte": 1}, "did you mean fetch.min.bytes?"),
        ({"debug": "a"}, "debug='a': Invalid value \"a\" for configuration property"),
        ({"plugin.library.paths": "no-such"}, "plugin.library.paths='no-such': dlopen() failed"),
        ({"default.topic.config": {5: 1}}, 'No such configuration property: "5"'),
    ],
)
def test_unknown_configuration_key_error_suggests_the_similar_key(config: dict[object, object], message: str) -> None:
    """The known keys are those of librdkafka."""
    assert message in str(refused(config))


def test_environment_variable_without_a_matching_key_is_named_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the variable, because `CONSUMER_MEMBERSHIP_HOME` may be set for another program."""
    monkeypatch.setenv("CONSUMER_MEMBERSHIP_HOME", "/opt/app")
    message = str(refused({}))
    assert "home='/opt/app': No such configuration property" in message
    assert "environment variable CONSUMER_MEMBERSHIP_HOME; change or unset it" in message
    assert "every variable that begins with CONSUMER_MEMBERSHIP_ sets a key" in message


def test_empty_instance_id_in_the_environment_makes_a_dynamic_member(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty variable sets no instance id, because a deployment exports it empty if it has no value."""
    monkeypatch.setenv("CONSUMER_MEMBERSHIP_GROUP_INSTANCE_ID", "")
    with Consumer({"group.id": "g"}) as consumer:
        assert consumer.membership().instance_id is None


async def _coroutine(*_: object) -> None:
    """A callback of a program that is being ported to asyncio."""


class _Awaited:
    async def __call__(self, *_: object) -> None:
        """Do nothing, as a coroutine."""


#: The exception class that each key raises.
REFUSALS = {"on_commit": KafkaException, "error_cb": TypeError, "stats_cb": TypeError, "throttle_cb": ValueError}


@pytest.mark.parametrize(
    "callback", [_coroutine, functools.partial(_coroutine, 1), _Awaited()], ids=["function", "partial", "object"]
)
def test_coroutine_functions_are_refused_as_callbacks(consumers: ConsumerFactory, callback: object) -> None:
    """confluent-kafka calls them without await, so they never run, and only a warning at exit shows it."""
    consumer = consumers()
    for name in ("on_assign", "on_revoke", "on_lost", "on_warm"):
        with pytest.raises(TypeError, match=f"^{name} expects a callable: this is a coroutine function"):
            consumer.subscribe(["t"], **{name: callback})  # type: ignore[arg-type]  # the mistake in question
    for name, kind in REFUSALS.items():
        with pytest.raises(kind, match="a coroutine function, which is never awaited here; pass a plain function"):
            consumers(**{name: callback})


WRONG = {"none": lambda: None, "one": lambda _: None, "three": lambda _, __, ___: None}


@pytest.mark.parametrize("arity", WRONG)
@pytest.mark.parametrize("name", ["on_assign", "on_revoke", "on_lost"])
def test_poll_raises_type_error_of_a_rebalance_callback_with_wrong_arity(
    consumers: ConsumerFactory, topic: str, name: str, arity: str
) -> None:
    """`poll` raises Python's own error about the call, where confluent-kafka raises SystemError."""
    consumer = consumers()
    consumer.subscribe([topic], **{name: WRONG[arity]})  # type: ignore[arg-type]  # the mistake in question
    member, partition = consumer.member, Partition(topic, 0)
    member.assign({partition: 0})
    if name != "on_assign":
        consumer.poll(0)
        member.pause([partition])
        if name == "on_revoke":
            member.revoke([partition])
        else:
            member.lose()
    with pytest.raises(TypeError, match="positional argument"):
        consumer.poll(0)


@pytest.mark.parametrize("arity", WRONG)
def test_poll_raises_type_error_of_a_commit_callback_with_wrong_arity(
    consumers: ConsumerFactory, topic: str, arity: str
) -> None:
    """`poll` raises Python's own error about the call, although the commit succeeded."""
    consumer = consumers(on_commit=WRONG[arity])
    consumer.subscribe([topic])
    consumer.member.assign({Partition(topic, 0): 0})
    record(consumer)
    consumer.commit()
    with pytest.raises(TypeError, match="positional argument"):
        consumer.poll(0)
    assert consumer.member.committed[Partition(topic, 0)].offset == 1  # type: ignore[union-attr]


def test_consumer_whose_callback_raised_is_collected(topic: str) -> None:
    """Neither the frames of the handled exception nor the callback's references keep the consumer alive."""
    consumer = ScriptedConsumer({**NOBODY, "enable.auto.offset.store": True})
    consumer.subscribe([topic], on_assign=WRONG["none"])  # type: ignore[arg-type]  # the mistake in question
    consumer.member.assign({Partition(topic, 0): 0})
    with pytest.raises(TypeError):
        consumer.poll(0)
    consumer.close()
    kept = weakref.ref(consumer)
    del consumer
    gc.collect()
    assert kept() is None
