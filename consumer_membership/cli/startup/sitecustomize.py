# ruff: noqa: INP001  # a folder of the path, and no package
"""Python runs this when it starts below `consumer-membership run`: the first import of confluent-kafka installs ours.

Nothing of the package is imported before that: a program's helpers that have nothing to do with Kafka start as ever.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

_KAFKA = "confluent_kafka"


class _Loaded:
    """Gives the module that was imported meanwhile."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to Python: the module that it makes is thrown away."""

    def exec_module(self, module: ModuleType) -> None:
        """Put the right one in its place (importlib looks there for what it returns)."""
        sys.modules[module.__name__] = self._module


class _Finder:
    """Stands before all others until confluent-kafka is asked for."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        """The module with the consumer replaced in it."""
        if fullname != _KAFKA:
            return None
        sys.meta_path.remove(self)
        try:
            import consumer_membership
        except ImportError as error:
            print(  # noqa: T201
                f"consumer-membership run: {sys.executable} cannot import consumer_membership ({error}), so that its "
                "programs have confluent-kafka's own consumer; install it there",
                file=sys.stderr,
            )
            return None
        consumer_membership.install()
        return ModuleSpec(_KAFKA, _Loaded(sys.modules[_KAFKA]))  # type: ignore[arg-type]


def _run_the_next() -> None:
    """A tracer's, or the system's own: Python runs the first that it finds."""
    here = __file__.rpartition(__name__)[0].rstrip("/\\")
    kept = list(sys.path)
    mine = sys.modules.pop(__name__, None)
    sys.path[:] = [folder for folder in kept if folder.rstrip("/\\") != here]
    try:
        import_module(__name__)
    except ImportError as error:
        if error.name != __name__:
            raise
    finally:
        sys.path[:] = kept
        if mine is not None:
            sys.modules.setdefault(__name__, mine)


sys.meta_path.insert(0, _Finder())
_run_the_next()
