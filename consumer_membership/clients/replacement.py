"""Puts this package's consumer in the place of confluent-kafka's, in programs that one does not want to touch.

Every name in every module that stands for confluent-kafka's consumer, or for a class that is made of it, is bound to a
stand-in: the same class on this package's consumer. What holds the class otherwise (a default argument, a closure, an
attribute of an object) keeps it.
"""

from __future__ import annotations

import sys
import threading
from types import ModuleType, TracebackType, new_class
from typing import Self

from consumer_membership.clients.consumer import Consumer
from consumer_membership.clients.names import STAND_IN, on_ours
from consumer_membership.librdkafka import LibrdkafkaConsumer

_OURS = "consumer_membership"


class Installation:
    """What `install` put somewhere, until `uninstall`, or the end of a `with`, puts back what was there."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        #: Of each class that was replaced, and the reverse.
        self._stand_ins: dict[type, type[Consumer]] = {}
        self._originals: dict[type, type] = {}

    def install(self) -> Self:
        """Replace what there is now, in all modules; again, for what was imported since."""
        with self._lock:
            self._count += 1
            # Before all others: what is imported meanwhile takes it from there.
            import confluent_kafka

            for module in [confluent_kafka, *_modules()]:
                for name, cls in _classes(module):
                    if not issubclass(cls, Consumer):
                        setattr(module, name, self._stand_in(cls))
        return self

    def uninstall(self) -> None:
        """Put back what was replaced, also in modules that were imported since. What was made goes on as it is."""
        with self._lock:
            self._count = max(0, self._count - 1)
            if self._count:
                return
            for module in _modules():
                for name, cls in _classes(module):
                    if cls in self._originals:
                        setattr(module, name, self._originals[cls])

    def _stand_in(self, cls: type[LibrdkafkaConsumer]) -> type[Consumer]:
        """A class of its own: what a program imported from this package itself is left alone at the end."""
        if cls not in self._stand_ins:
            body = {name: getattr(cls, name) for name in ("__module__", "__qualname__", "__doc__")} | {STAND_IN: True}
            made: type[Consumer] = new_class(cls.__name__, (on_ours(cls),), exec_body=lambda names: names.update(body))
            self._stand_ins[cls] = made
            self._originals[made] = cls
        return self._stand_ins[cls]

    def __enter__(self) -> Self:
        """Return itself: it is installed already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Undo this installation."""
        self.uninstall()


def _modules() -> list[ModuleType]:
    """All that are imported, without ours: these name the C type itself."""
    mine = f"{_OURS}."
    found: list[object] = [module for name, module in list(sys.modules.items()) if not f"{name}.".startswith(mine)]
    return [module for module in found if isinstance(module, ModuleType)]  # some libraries put other things there


def _classes(module: ModuleType) -> list[tuple[str, type[LibrdkafkaConsumer]]]:
    return [
        (name, value)
        for name, value in list(vars(module).items())
        if isinstance(value, type) and issubclass(value, LibrdkafkaConsumer)
    ]


#: Of the process: it changes the modules that all of the process imports.
_INSTALLATION = Installation()


def install() -> Installation:
    """Replace `confluent_kafka.Consumer` by this package's, also where it was imported already.

    In a `with` it is undone at its end. Called twice, it is undone by the second `uninstall`.
    """
    return _INSTALLATION.install()


def uninstall() -> None:
    """Undo `install`; consumers that were made since go on."""
    _INSTALLATION.uninstall()
