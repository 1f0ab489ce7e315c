"""This package has each name that the installed confluent-kafka exports, with consumer classes made of its own."""

from __future__ import annotations

import ast
import contextlib
import copy
import gc
import importlib
import importlib.util
import inspect
import pkgutil
import re
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import confluent_kafka
import pytest
import wrapt
from confluent_kafka import TopicPartition, cimpl
from confluent_kafka.serialization import StringDeserializer

import consumer_membership
from consumer_membership import Consumer
from consumer_membership.clients import names
from consumer_membership.clients.consumer import _missing
from tests.support.installed import CRASHES_CLOSED
from tests.support.mock_cluster import MockCluster

OURS, THEIRS = "consumer_membership", "confluent_kafka"
PACKAGE = Path(confluent_kafka.__file__).parent
#: Modules that are not compared: this package's `kafkatest` has Java's arguments, confluent-kafka's has others.
WITHOUT = ("kafkatest",)

#: Names of this package's own classes, which existed here before confluent-kafka's names were added.
OWN = {"admin": frozenset({"MemberDescription"})}

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def modules() -> Iterator[str]:
    """The public modules of confluent-kafka, without its name."""
    for found in pkgutil.walk_packages(confluent_kafka.__path__, f"{THEIRS}."):
        parts = found.name.split(".")[1:]
        if parts[0] not in WITHOUT and not any(part.startswith("_") for part in parts):
            yield ".".join(parts)


def public(module: ModuleType) -> set[str]:
    """Return the names that a program may import from this module."""
    return {name for name in dir(module) if not name.startswith("_")} - {*WITHOUT, "os"}


def pairs() -> Iterator[tuple[type, type]]:
    """Yield confluent-kafka's classes with their replacements of this package; older releases have no asyncio."""
    yield cimpl.Consumer, Consumer
    if importlib.util.find_spec(f"{THEIRS}.aio") is not None:
        theirs, ours = (importlib.import_module(f"{package}.aio") for package in (THEIRS, OURS))
        yield theirs.AIOConsumer, ours.AIOConsumer


def is_namesake(ours: object, theirs: object) -> bool:
    """Whether this package's object is the counterpart of confluent-kafka's."""
    if isinstance(theirs, ModuleType) and theirs.__name__.startswith(THEIRS):
        return isinstance(ours, ModuleType) and ours.__name__ == OURS + theirs.__name__.removeprefix(THEIRS)
    for base, own in pairs():
        if isinstance(theirs, type) and issubclass(theirs, base):
            return isinstance(ours, type) and issubclass(ours, own) and ours.__name__ == theirs.__name__
    return ours is theirs


@pytest.mark.parametrize("name", sorted(modules()))
def test_each_module_has_all_names_of_confluent_kafka_s(name: str) -> None:
    """The names are the same objects, except for the consumer classes of this package."""
    try:
        theirs = importlib.import_module(f"{THEIRS}.{name}")
    except ModuleNotFoundError as lacking:  # an extra of confluent-kafka is not installed
        with pytest.raises(ModuleNotFoundError, match=re.escape(str(lacking))):
            importlib.import_module(f"{OURS}.{name}")
        return
    ours = importlib.import_module(f"{OURS}.{name}")
    found = public(theirs) - OWN.get(name, frozenset())
    assert {one for one in found if not is_namesake(getattr(ours, one), getattr(theirs, one))} == set()
    assert public(theirs) <= set(dir(ours))


def test_package_has_all_names_of_confluent_kafka() -> None:
    """`from consumer_membership import *` also has them, except for modules."""
    found = public(confluent_kafka)
    assert {
        one for one in found if not is_namesake(getattr(consumer_membership, one), getattr(confluent_kafka, one))
    } == set()
    assert found <= set(dir(consumer_membership))
    lacking = set(confluent_kafka.__all__) - set(consumer_membership.__all__)
    assert all(importlib.util.find_spec(f"{THEIRS}.{name}") for name in lacking), lacking


def test_unknown_name_raises_python_s_error_for_this_package() -> None:
    """The error names this package instead of confluent-kafka, where users would search for the name."""
    with pytest.raises(AttributeError, match="module 'consumer_membership' has no attribute 'nothing'"):
        consumer_membership.nothing  # noqa: B018
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'consumer_membership\.nothing'"):
        importlib.import_module("consumer_membership.nothing")
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec("from consumer_membership.error import nothing", {})  # noqa: S102


# ---- the class -------------------------------------------------------------------------------------------------------


def stub() -> dict[str, set[str]]:
    """The methods of confluent-kafka's consumer with the parameters of all overloads, from its stub.

    Empty for a release without a stub (before 2.13).
    """
    path = PACKAGE / "cimpl.pyi"
    if not path.exists():
        return {}
    tree = ast.parse(path.read_text())
    (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Consumer")
    methods: dict[str, set[str]] = {}
    for node in found.body:
        if isinstance(node, ast.FunctionDef):
            methods.setdefault(node.name, set()).update(one.arg for one in [*node.args.args[1:], *node.args.kwonlyargs])
    return methods


@pytest.mark.parametrize(("name", "parameters"), stub().items())
def test_each_method_takes_the_parameters_of_confluent_kafka_s(name: str, parameters: set[str]) -> None:
    """The parameters have the same names, additional ones have a default, and each method has a docstring."""
    method = getattr(Consumer, name)
    taken = inspect.signature(method).parameters
    if name not in {"__init__", "__enter__", "__exit__"}:
        assert parameters <= taken.keys()
        more = [one for key, one in taken.items() if key not in parameters | {"self"}]
        assert all(one.default is not one.empty or one.kind is one.VAR_KEYWORD for one in more)
    assert method.__doc__ or name == "__init__"


def test_no_method_of_the_c_type_is_reachable() -> None:
    """The C type's part of the object is never initialized."""
    of_c = vars(cimpl.Consumer).keys() - vars(object).keys()
    assert {name for name in of_c if getattr(Consumer, name) is getattr(cimpl.Consumer, name)} == set()
    assert of_c <= vars(Consumer).keys()


def test_method_of_a_later_release_raises_a_descriptive_error() -> None:
    """`hasattr` returns False, so that a program that checks for the method uses its alternative."""

    class Later(Consumer):
        newer = _missing("newer")

    with Later({"group.id": "g", "bootstrap.servers": "", "log_level": 0}) as consumer:
        assert not hasattr(consumer, "newer")
        with pytest.raises(
            AttributeError, match=r"confluent-kafka .* has Consumer\.newer, but consumer-membership .* does not"
        ):
            consumer.newer  # noqa: B018


class Forgetful(Consumer):
    """A subclass that omits `super().__init__`."""

    def __init__(self) -> None:
        self.own = 1


@pytest.mark.parametrize("name", sorted(vars(cimpl.Consumer).keys() - vars(object).keys()))
@pytest.mark.parametrize("given", [(), ([],), ([TopicPartition("t", 0)],), ("x",), (None, None, None)], ids=str)
@pytest.mark.parametrize("method_of", [cimpl.Consumer, Consumer])
def test_consumer_without_init_behaves_as_closed(method_of: Any, name: str, given: tuple[object, ...]) -> None:
    """A call of the C type's method by its class raises confluent-kafka's error and never aborts."""
    if method_of is cimpl.Consumer and name in CRASHES_CLOSED:
        pytest.skip("this release's own consumer ends the process")
    method = getattr(method_of, name)
    if name == "__exit__" or (name in {"close", "__enter__"} and not given):
        assert isinstance(method(Forgetful(), *(None, None, None) if name == "__exit__" else ()), Forgetful | None)
        return
    with pytest.raises((RuntimeError, TypeError, ValueError, AttributeError)) as caught:
        method(Forgetful(), *given)
    assert caught.type is not RuntimeError or "closed" in str(caught.value)


def test_consumers_without_init_are_collected() -> None:
    """The garbage collector frees a thousand such consumers, also those in a reference cycle."""
    looping = Forgetful()
    looping.own = looping  # type: ignore[assignment]
    gone = weakref.ref(looping)
    del looping
    for _ in range(1_000):
        Forgetful()
        Consumer.__new__(Consumer)
    gc.collect()
    assert gone() is None
    with pytest.raises(TypeError, match="cannot pickle 'Forgetful' object"):
        copy.copy(Forgetful())


def test_consumer_is_an_instance_of_confluent_kafka_s_class() -> None:
    """`isinstance` is true for each way in which a program names the class."""
    with Consumer({"group.id": "g", "bootstrap.servers": "", "log_level": 0}) as consumer:
        assert isinstance(consumer, confluent_kafka.Consumer)
        assert isinstance(consumer, consumer_membership.Consumer)


# ---- classes derived from it -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("package", [confluent_kafka, consumer_membership], ids=["theirs", "ours"])
def test_deserializing_consumer_returns_confluent_kafka_s_values(
    package: Any, cluster: MockCluster, topic: str
) -> None:
    """It returns the same records as confluent-kafka's class, with this package's `close`."""
    config = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": "deserializing",
        "log_level": 0,
        "key.deserializer": StringDeserializer(),
        "value.deserializer": StringDeserializer(),
    }

    base = package.DeserializingConsumer
    if hasattr(base, "__class_getitem__"):  # later releases
        base = base[str, str]

    class Own(base):  # type: ignore[misc, valid-type]
        polls = 0

        def poll(self, timeout: float = -1) -> Any:
            self.polls += 1
            return super().poll(timeout)

    with contextlib.closing(Own(config)) as consumer:
        consumer.assign([TopicPartition(topic, 2, 7)])
        found = [message.value() for message in (consumer.poll(60.0) for _ in range(3))]
        with pytest.raises(NotImplementedError):
            consumer.consume(1)
    assert (found, consumer.polls) == (["7", "8", "9"], 3)
    assert isinstance(consumer, Consumer) == (package is consumer_membership)
    with pytest.raises(RuntimeError, match="Consumer closed"):
        consumer.poll(0)


def test_avro_consumer_is_a_subclass_of_this_package_s_consumer() -> None:
    """The class is deprecated and still in use."""
    avro = importlib.import_module(f"{OURS}.avro")
    assert issubclass(avro.AvroConsumer, Consumer)
    assert issubclass(avro.AvroConsumer, importlib.import_module(f"{THEIRS}.avro").AvroConsumer)


# ---- tracers ---------------------------------------------------------------------------------------------------------


def test_tracer_that_replaces_the_class_sees_one_consumer(
    monkeypatch: pytest.MonkeyPatch, cluster: MockCluster, topic: str
) -> None:
    """A tracer replaces confluent-kafka's class by its own; the class imported here then has its methods.

    The fetching handle is not of that class, because its polls would be spans of a second consumer.
    """
    made, polled = [], []

    class Traced(cimpl.Consumer):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            made.append(self)
            super().__init__(*args, **kwargs)

        def poll(self, timeout: float = -1) -> Any:
            polled.append(timeout)
            return super().poll(timeout)

    monkeypatch.setattr(confluent_kafka, "Consumer", Traced)
    traced = consumer_membership.Consumer
    assert issubclass(traced, Traced)
    assert issubclass(traced, Consumer)
    assert traced is consumer_membership.Consumer
    with traced({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "traced", "log_level": 0}) as consumer:
        consumer.assign([TopicPartition(topic, 1, 3)])
        message = consumer.poll(60.0)
        assert message is not None
        assert message.value() == b"3"
    assert (made, polled) == ([consumer], [60.0])
    monkeypatch.undo()
    assert consumer_membership.Consumer is Consumer


def test_wrapper_of_a_c_type_s_method_wraps_this_package_s_method(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tracers such as ddtrace and New Relic call the method that they found: confluent-kafka's in C.

    Its `__init__` would make a second member, in the part of the object that is never initialized.
    """
    seen = []

    def wrapper(wrapped: Any, _: Any, args: Any, kwargs: Any) -> Any:
        seen.append(wrapped.__name__)
        return wrapped(*args, **kwargs)

    traced = type("Consumer", (cimpl.Consumer,), {})
    for name in ("__init__", "poll", "consume", "close"):
        wrapt.wrap_function_wrapper(traced, name, wrapper)
    monkeypatch.setattr(confluent_kafka, "Consumer", traced)
    with consumer_membership.Consumer({"group.id": "g", "bootstrap.servers": "", "log_level": 0}) as consumer:
        assert consumer.poll(0) is None
        assert consumer.consume(1, 0) == []
        assert consumer.membership().owned == {}
        with pytest.raises(RuntimeError, match="Consumer closed"):
            cimpl.Consumer.assignment(consumer)
    assert seen[:3] == ["__init__", "poll", "consume"]


def test_name_that_the_installed_release_lacks_is_absent() -> None:
    """An older release has no share consumers; `import *` works without them."""
    program = """
import confluent_kafka
for name in {"ShareConsumer", "Messages"} & vars(confluent_kafka).keys():
    delattr(confluent_kafka, name)
    confluent_kafka.__all__.remove(name) if name in confluent_kafka.__all__ else None
from consumer_membership import *
import consumer_membership
assert Consumer is consumer_membership.Consumer
assert install is consumer_membership.install
assert not {"ShareConsumer", "Messages"} & {*consumer_membership.__all__, *dir(consumer_membership)}
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_factory_in_place_of_confluent_kafka_s_class_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program's factory makes confluent-kafka consumers; this package's class is unchanged."""
    monkeypatch.setattr(confluent_kafka, "Consumer", lambda config: config)
    assert names.consumer_class() is Consumer


# ---- type checkers ---------------------------------------------------------------------------------------------------

PROGRAM = """
from consumer_membership import Consumer, DeserializingConsumer, KafkaError, Message, TopicPartition
from consumer_membership.admin import AdminClient, GroupAdmin
from consumer_membership.avro import AvroConsumer
from consumer_membership.error import ConsumeError
from consumer_membership.schema_registry import SchemaRegistryClient
from consumer_membership.serialization import StringDeserializer


def use(consumer: Consumer, message: Message) -> str:
    for partition in consumer.commit(asynchronous=False):
        print(partition.topic)
    for partition in consumer.commit(message=message, asynchronous=False):
        print(partition.offset)
    consumer.commit(offsets=[TopicPartition("t", 0, 1)])
    consumer.subscribe(["t"], on_assign=lambda consumer, partitions: None)
    found = consumer.poll(1.0)
    return "" if found is None else str(found.value())


def nothing(consumer: Consumer) -> None:
    return consumer.commit()
"""


@pytest.mark.slow
def test_program_passes_a_strict_type_checker(tmp_path: Path) -> None:
    """A program that uses the overloads of `commit` and other methods passes mypy."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file",
        "",
        "--cache-dir",
        str(tmp_path),
        str(program),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
