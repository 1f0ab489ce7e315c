"""`partition.assignment.strategy`: the assignors of a classic member, the preferred one first.

The value is text with comma-separated names, or a list of names and objects. A name is one of Kafka's (`range`,
`roundrobin`, `sticky`, `cooperative-sticky`) or the import path of your own assignor, `package.module:Name`; a class is
called without arguments.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Sequence
from typing import TypeGuard

from consumer_membership.assignors import BUILT_IN
from consumer_membership.assignors.assignor import Assignor, RebalanceProtocol
from consumer_membership.text import excerpt, problem_of

#: librdkafka's default, so that mixed groups agree.
DEFAULT = (BUILT_IN["range"], BUILT_IN["roundrobin"])

_KNOWN = ", ".join(BUILT_IN)


def parse_strategies(value: object) -> tuple[Assignor, ...]:
    """Return the assignors in their order.

    Raises:
        ValueError: a name is unknown, cannot be imported, or is a duplicate; an object is not an assignor; or the
            assignors have no rebalance protocol in common.
    """
    assignors = tuple(_assignor(one) for one in _parts(value))
    if not assignors:
        raise ValueError(f"the list of assignors is empty; remove the key, or use {_KNOWN}")
    names = [assignor.name for assignor in assignors]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"duplicate assignor {twice!r}; list each assignor once")
    if not frozenset.intersection(*(frozenset(assignor.protocols) for assignor in assignors)):
        raise ValueError(
            f"{', '.join(names)} have no rebalance protocol (eager or cooperative) in common; use assignors that do"
        )
    return assignors


def is_own(assignor: Assignor) -> bool:
    """Return whether this is a custom assignor, which no broker has."""
    return assignor.name not in BUILT_IN


def remote_assignor(assignors: Sequence[Assignor]) -> str | None:
    """Return the broker's assignor (group.remote.assignor) that matches the preferred one; None: the broker's default.

    `range` users want its co-location of partitions; the other assignors balance with few moves, as the broker's
    default does.
    """
    return "range" if assignors and assignors[0] is BUILT_IN["range"] else None


def _parts(value: object) -> Sequence[object]:
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value if isinstance(value, list | tuple) else (value,)


def are_built_in(assignors: Collection[Assignor]) -> bool:
    """Whether all of these are Kafka's own assignors, and none is the application's."""
    return all(any(assignor is one for one in BUILT_IN.values()) for assignor in assignors)


def _assignor(given: object) -> Assignor:
    if isinstance(given, str):
        if given in BUILT_IN:
            return BUILT_IN[given]
        if ":" not in given:
            raise ValueError(
                f"Failed to create consumer: Unsupported partition.assignment.strategy: {given}; use one of {_KNOWN}, "
                "or the import path of your own assignor as package.module:Name"
            )
        return _checked(_imported(given), given)
    return _checked(given, given.__name__ if isinstance(given, type) else type(given).__name__)


def _imported(path: str) -> object:
    module, _, name = path.partition(":")
    try:
        found: object = getattr(importlib.import_module(module), name)
    except Exception as error:  # a user's own module may raise anything
        cause = f"{type(error).__name__}: {error}"
        raise ValueError(f"{path!r} cannot be imported: {cause}; expected package.module:Name") from error
    return found


def _checked(given: object, what: str) -> Assignor:
    assignor, name, protocols = _made(given, what)
    if not callable(getattr(assignor, "on_assignment", str)):
        raise ValueError(  # noqa: TRY004 - what a validator raises
            f"on_assignment of the assignor {what} is not callable; make it a method that takes an Assigned and the "
            "generation, or remove it"
        )
    if not _is_name(name):
        raise ValueError(
            f"the assignor {what} has the name {name!r}; the name must be non-empty text, by which members agree on it"
        )
    problem = problem_of(name)
    if problem is not None:
        raise ValueError(f"the assignor {what} has an invalid name {excerpt(name)!a}: {problem}")
    if not _is_protocols(protocols):
        raise ValueError(
            f"the assignor {name} supports {protocols!r}; its protocols are a frozenset of RebalanceProtocol.EAGER, "
            "RebalanceProtocol.COOPERATIVE or both"
        )
    if name in BUILT_IN and assignor is not BUILT_IN[name] and type(assignor) is not type(BUILT_IN[name]):
        raise ValueError(
            f"the assignor {what} has the name {name!r}, which is one of Kafka's own assignors; use another name"
        )
    return assignor


def _made(given: object, what: str) -> tuple[Assignor, object, object]:
    """Return the assignor, its name and its protocols."""
    try:
        assignor = given() if isinstance(given, type) else given
        if isinstance(assignor, Assignor):
            return assignor, assignor.name, assignor.protocols
    except Exception as error:  # a user's own code may raise anything
        cause = f"{type(error).__name__}: {error}"
        raise ValueError(
            f"the assignor {what} cannot be created without arguments, or its name cannot be read: {cause}"
        ) from error
    raise ValueError(
        f"{what} is not an assignor: it needs name, protocols, user_data() and assign(); see "
        "consumer_membership.Assignor"
    )


def _is_name(given: object) -> TypeGuard[str]:
    return isinstance(given, str) and bool(given)


def _is_protocols(given: object) -> bool:
    return isinstance(given, Collection) and bool(given) and all(isinstance(one, RebalanceProtocol) for one in given)
