# ruff: noqa: INP001  # a folder on the path, not a package
"""Python imports this module at startup below `consumer-membership run`; it replaces the consumer on first import.

The package is imported only when confluent-kafka is imported, so that other processes of the program start as before.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

_KAFKA = "confluent_kafka"


class _Loaded:
    """A loader that returns an already imported module."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def create_module(self, spec: ModuleSpec) -> None:
        """Let Python create a module, which is discarded."""

    def exec_module(self, module: ModuleType) -> None:
        """Replace the module in `sys.modules`, from which importlib returns it."""
        sys.modules[module.__name__] = self._module


class _Finder:
    """The first finder until confluent-kafka is imported."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        """Return confluent-kafka with the consumer replaced."""
        if fullname != _KAFKA:
            return None
        sys.meta_path.remove(self)
        try:
            import consumer_membership
        except ImportError as error:
            print(  # noqa: T201
                f"consumer-membership run: {sys.executable} cannot import consumer_membership ({error}); its programs "
                "use confluent-kafka's consumer; install consumer_membership in this Python",
                file=sys.stderr,
            )
            return None
        consumer_membership.install()
        return ModuleSpec(_KAFKA, _Loaded(sys.modules[_KAFKA]))  # type: ignore[arg-type]


def _run_the_next() -> None:
    """Import the next `sitecustomize` on the path, for example of a tracer, because Python imports only the first."""
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
