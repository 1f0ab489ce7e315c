"""Replace confluent-kafka's consumer in programs whose code you do not want to change.

`install` binds each module-level name of confluent-kafka's consumer, or of a class that derives from it, to a
replacement class: the same class derived from this package's consumer. Other references (default arguments, closures,
attributes of objects) keep the old class.
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
    """The replacements that `install` made, until `uninstall` or the end of a `with` block restores the old classes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        #: The replacement of each replaced class, and the reverse mapping.
        self._stand_ins: dict[type, type[Consumer]] = {}
        self._originals: dict[type, type] = {}

    def install(self) -> Self:
        """Replace the class in all modules; call it again for modules that were imported since."""
        with self._lock:
            self._count += 1
            # confluent_kafka is first, because modules that are imported meanwhile take the class from there.
            import confluent_kafka

            for module in [confluent_kafka, *_modules()]:
                for name, cls in _classes(module):
                    if not issubclass(cls, Consumer):
                        setattr(module, name, self._stand_in(cls))
        return self

    def uninstall(self) -> None:
        """Restore the replaced names, also in modules that were imported since; existing consumers continue to work."""
        with self._lock:
            self._count = max(0, self._count - 1)
            if self._count:
                return
            for module in _modules():
                for name, cls in _classes(module):
                    if cls in self._originals:
                        setattr(module, name, self._originals[cls])

    def _stand_in(self, cls: type[LibrdkafkaConsumer]) -> type[Consumer]:
        """Return a separate class, so that `uninstall` leaves names alone that were imported from this package."""
        if cls not in self._stand_ins:
            body = {name: getattr(cls, name) for name in ("__module__", "__qualname__", "__doc__")} | {STAND_IN: True}
            made: type[Consumer] = new_class(cls.__name__, (on_ours(cls),), exec_body=lambda names: names.update(body))
            self._stand_ins[cls] = made
            self._originals[made] = cls
        return self._stand_ins[cls]

    def __enter__(self) -> Self:
        """Return itself; it is already installed."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Undo this installation."""
        self.uninstall()


def _modules() -> list[ModuleType]:
    """Return all imported modules except this package's, which refer to the C type itself."""
    mine = f"{_OURS}."
    found: list[object] = [module for name, module in list(sys.modules.items()) if not f"{name}.".startswith(mine)]
    # some libraries put other objects into sys.modules
    return [module for module in found if isinstance(module, ModuleType)]


def _classes(module: ModuleType) -> list[tuple[str, type[LibrdkafkaConsumer]]]:
    return [
        (name, value)
        for name, value in list(vars(module).items())
        if isinstance(value, type) and issubclass(value, LibrdkafkaConsumer)
    ]


#: One per process, because it changes modules that the whole process shares.
_INSTALLATION = Installation()


def install() -> Installation:
    """Replace `confluent_kafka.Consumer` with this package's consumer in every module, also in imported ones.

    To switch without editing code, call it before you create consumers. Default arguments, attributes of objects and
    existing consumers keep the old class. A `with` block undoes it at its end. If it was called twice, the second
    `uninstall` undoes it.
    """
    return _INSTALLATION.install()


def uninstall() -> None:
    """Undo `install`; consumers that were created since then continue to work."""
    _INSTALLATION.uninstall()
