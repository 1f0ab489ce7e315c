"""`install` replaces confluent-kafka's consumer by this package's, and `uninstall` restores it."""

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
    """A module that was imported earlier by a program that does not know this package."""
    module = ModuleType("some_program")
    exec(PROGRAM, vars(module))  # noqa: S102
    monkeypatch.setitem(sys.modules, "some_program", module)
    return module


def test_install_replaces_imported_names_and_uninstall_restores_them(program: Any) -> None:
    """The names in confluent-kafka and in each importing module are replaced, and also classes derived from them."""
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


def test_uninstall_restores_names_imported_after_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that a program imported from this package stays."""
    late: Any = ModuleType("late")
    with consumer_membership.install():
        exec("from confluent_kafka import Consumer\nfrom consumer_membership import Consumer as Ours", vars(late))  # noqa: S102
        monkeypatch.setitem(sys.modules, "late", late)
        assert late.Ours is consumer_membership.Consumer
        assert issubclass(late.Consumer, late.Ours)
    assert late.Consumer is RAW
    assert late.Ours is consumer_membership.Consumer


def test_second_install_is_undone_by_the_second_uninstall() -> None:
    """A library may call `install` after its program has done so."""
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


def test_consumer_made_under_install_works_after_uninstall() -> None:
    """A consumer outlives the `with` block."""
    with consumer_membership.install():
        consumer = confluent_kafka.Consumer(CONFIG)
    assert consumer.poll(0) is None
    assert consumer.assignment() == []
    consumer.close()


def test_install_keeps_the_methods_of_a_tracer_s_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tracer replaced confluent-kafka's consumer before `install`."""

    class Traced(RAW):
        def poll(self, timeout: float = -1) -> Any:
            return "traced", super().poll(timeout)

    monkeypatch.setattr(confluent_kafka, "Consumer", Traced)
    with consumer_membership.install(), confluent_kafka.Consumer(CONFIG) as consumer:
        assert consumer.poll(0) == ("traced", None)
        assert isinstance(consumer, consumer_membership.Consumer)
    assert confluent_kafka.Consumer is Traced


def test_install_skips_sys_modules_entries_that_are_not_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some libraries put objects into `sys.modules`."""
    monkeypatch.setitem(sys.modules, "odd", object())
    monkeypatch.setitem(sys.modules, "odder", None)
    with consumer_membership.install():
        assert issubclass(confluent_kafka.Consumer, consumer_membership.Consumer)
