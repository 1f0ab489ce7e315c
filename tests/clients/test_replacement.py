"""`install` puts our consumer in the place of confluent-kafka's, and `uninstall` puts that back."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import DeserializingConsumer, cimpl

import consumer_membership

CONFIG = {"group.id": "g", "bootstrap.servers": "", "log_level": 0}
RAW = cimpl.Consumer

PROGRAM = """
import confluent_kafka as kafka
from confluent_kafka import Consumer
from confluent_kafka.cimpl import Consumer as OfC

class Own(Consumer):
    def poll(self, timeout=-1):
        return "own", super().poll(timeout)
"""


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module that was imported before, by a program that knows nothing of us."""
    module = ModuleType("some_program")
    exec(PROGRAM, vars(module))  # noqa: S102
    monkeypatch.setitem(sys.modules, "some_program", module)
    return module


def test_names_that_were_imported_are_replaced_and_put_back(program: Any) -> None:
    """In confluent-kafka itself, and in whoever imported from it; classes that were made of it, too."""
    own = program.Own
    with consumer_membership.install():
        for cls in (confluent_kafka.Consumer, program.Consumer, program.OfC, program.Own, cimpl.Consumer):
            assert issubclass(cls, consumer_membership.Consumer)
        assert issubclass(confluent_kafka.DeserializingConsumer, consumer_membership.Consumer)
        assert program.Consumer is confluent_kafka.Consumer is program.kafka.Consumer
        assert issubclass(program.Own, own)
        with program.Own(CONFIG) as consumer:
            assert consumer.poll(0) == ("own", None)
            assert consumer.membership().owned == {}
            assert isinstance(consumer, own)
        assert sys.modules[__name__].DeserializingConsumer is confluent_kafka.DeserializingConsumer
    assert (program.Consumer, program.OfC, program.Own) == (RAW, RAW, own)
    assert (confluent_kafka.Consumer, cimpl.Consumer) == (RAW, RAW)
    assert not issubclass(DeserializingConsumer, consumer_membership.Consumer)


def test_names_that_were_imported_meanwhile_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a program imported from this package itself stays."""
    late: Any = ModuleType("late")
    with consumer_membership.install():
        exec("from confluent_kafka import Consumer\nfrom consumer_membership import Consumer as Ours", vars(late))  # noqa: S102
        monkeypatch.setitem(sys.modules, "late", late)
        assert late.Ours is consumer_membership.Consumer
        assert issubclass(late.Consumer, late.Ours)
    assert late.Consumer is RAW
    assert late.Ours is consumer_membership.Consumer


def test_installing_twice_is_undone_by_the_second_uninstall() -> None:
    """A library may install what its program has installed."""
    consumer_membership.install()
    with consumer_membership.install():
        pass
    assert issubclass(confluent_kafka.Consumer, consumer_membership.Consumer)
    consumer_membership.uninstall()
    assert confluent_kafka.Consumer is RAW
    consumer_membership.uninstall()
    with consumer_membership.install():
        assert issubclass(confluent_kafka.Consumer, consumer_membership.Consumer)
    assert confluent_kafka.Consumer is RAW


def test_what_was_made_goes_on() -> None:
    """A consumer outlives the `with`."""
    with consumer_membership.install():
        consumer = confluent_kafka.Consumer(CONFIG)
    assert consumer.poll(0) is None
    assert consumer.assignment() == []
    consumer.close()


def test_tracers_class_keeps_its_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stood in the place of confluent-kafka's consumer first."""

    class Traced(RAW):
        def poll(self, timeout: float = -1) -> Any:
            return "traced", super().poll(timeout)

    monkeypatch.setattr(confluent_kafka, "Consumer", Traced)
    with consumer_membership.install(), confluent_kafka.Consumer(CONFIG) as consumer:
        assert consumer.poll(0) == ("traced", None)
        assert isinstance(consumer, consumer_membership.Consumer)
    assert confluent_kafka.Consumer is Traced


def test_things_that_are_no_modules_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some libraries put objects into `sys.modules`."""
    monkeypatch.setitem(sys.modules, "odd", object())
    monkeypatch.setitem(sys.modules, "odder", None)
    with consumer_membership.install():
        assert issubclass(confluent_kafka.Consumer, consumer_membership.Consumer)
