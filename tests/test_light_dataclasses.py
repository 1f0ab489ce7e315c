"""A light dataclass behaves like one of the standard library when it is created, compared, copied or inspected."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, field, fields, is_dataclass
from typing import Any, ClassVar

import pytest

from consumer_membership import light_dataclasses

#: Decorators that create the same classes: the package's, and the standard one as the reference.
LIGHT, STANDARD = light_dataclasses.dataclass, dataclasses.dataclass


def frozen(dataclass: Callable[..., Any]) -> type[Any]:
    """Return a frozen class with every kind of field."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Offset:
        """An offset."""

        topic: str
        at: int = 7
        notes: list[str] = field(default_factory=list)
        secret: str = field(default="hidden", repr=False)

        @property
        def following(self) -> int:
            """The next offset."""
            return self.at + 1

    return Offset


def positional(dataclass: Callable[..., Any]) -> type[Any]:
    """Return a frozen class with one positional field."""

    @dataclass(frozen=True, slots=True)
    class Offset:
        at: int

    return Offset


def mutable(dataclass: Callable[..., Any]) -> type[Any]:
    """Return a class with mutable objects."""

    @dataclass(slots=True)
    class Offset:
        topic: str = "orders"
        at: int = 7

    return Offset


def empty(dataclass: Callable[..., Any]) -> type[Any]:
    """Return a frozen class without fields."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Offset:
        """Nothing is known."""

    return Offset


SHAPES = (frozen, positional, mutable, empty)
ARGUMENTS: dict[Callable[..., Any], tuple[tuple[Any, ...], dict[str, Any]]] = {
    frozen: ((), {"topic": "orders", "notes": ["late"]}),
    positional: ((9,), {}),
    mutable: (("payments",), {"at": 9}),
    empty: ((), {}),
}


@light_dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Picklable:
    """A class at module level, because pickles refer to classes by their module."""

    topic: str
    at: int = 7


@pytest.fixture(params=SHAPES, ids=lambda shape: shape.__name__)
def shape(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """One shape of class."""
    made: Callable[..., Any] = request.param
    return made


def both(shape: Callable[..., Any]) -> tuple[Any, Any]:
    """Return the class of this shape from both decorators, the package's first."""
    return shape(LIGHT), shape(STANDARD)


def objects(shape: Callable[..., Any]) -> tuple[Any, Any]:
    """Return an object of each of the two classes."""
    positions, names = ARGUMENTS[shape]
    light, standard = (cls(*positions, **names) for cls in both(shape))
    return light, standard


def error_of(call: Callable[[], object]) -> str:
    """Return the repr of the result, or of the exception."""
    try:
        return repr(call())
    except (TypeError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"


def is_left(cls: type) -> bool:
    """Return whether the standard library created the class: it describes the fields of its classes eagerly."""
    return isinstance(inspect.getattr_static(cls, "__dataclass_fields__"), dict)


def test_light_dataclass_creates_each_shape_itself(shape: Callable[..., Any]) -> None:
    """None of the shapes in this module is left to the standard library."""
    assert [is_left(cls) for cls in both(shape)] == [False, True]


def test_light_dataclass_has_the_repr_and_fields_of_a_standard_one(shape: Callable[..., Any]) -> None:
    """`repr`, `fields`, `asdict` and `is_dataclass` return equal results for both classes."""
    light, standard = objects(shape)
    assert repr(light) == repr(standard).replace("STANDARD", "LIGHT")
    assert [(one.name, one.type, one.kw_only) for one in fields(light)] == [
        (one.name, one.type, one.kw_only) for one in fields(standard)
    ]
    assert asdict(light) == asdict(standard)
    assert is_dataclass(light)
    assert repr(type(light).__dataclass_params__) == repr(type(standard).__dataclass_params__)  # type: ignore[union-attr]  # both have them


def test_light_dataclass_has_the_slots_signature_and_names_of_a_standard_one(shape: Callable[..., Any]) -> None:
    """Slots, signature, positional match arguments and names equal those of the standard library's class."""
    light, standard = both(shape)
    assert light.__slots__ == standard.__slots__
    assert light.__match_args__ == standard.__match_args__
    assert (light.__name__, light.__qualname__, light.__module__, light.__bases__) == (
        standard.__name__,
        standard.__qualname__,
        standard.__module__,
        standard.__bases__,
    )
    assert str(inspect.signature(light)) == str(inspect.signature(standard))
    assert light.__init__.__qualname__ == standard.__init__.__qualname__.replace("__create_fn__.<locals>.", "")
    assert light.__init__.__annotations__ == standard.__init__.__annotations__


def test_light_dataclass_keeps_properties_and_docstring() -> None:
    """A light dataclass keeps the properties and the docstring of its class body."""
    light, standard = objects(frozen)
    assert light.following == standard.following == 8
    assert type(light).__doc__ == "An offset."


def test_light_dataclass_rejects_wrong_arguments_with_the_standard_message(shape: Callable[..., Any]) -> None:
    """An extra positional, an unknown and a missing argument raise the standard library's messages."""
    light, standard = both(shape)
    for mistake in (((1, 2, 3, 4, 5), {}), ((), {"unknown": 1}), ((), {})):  # type: ignore[var-annotated]  # of several shapes
        positions, names = mistake
        refused, expected = (error_of(lambda cls=cls: cls(*positions, **names)) for cls in (light, standard))  # type: ignore[misc]  # noqa: B023
        assert refused == expected


def test_light_dataclass_compares_and_hashes_by_its_fields(shape: Callable[..., Any]) -> None:
    """Objects are equal if class and field values are equal, and mutable objects have no hash."""
    light, standard = objects(shape)
    positions, names = ARGUMENTS[shape]
    assert light == type(light)(*positions, **names)
    assert light != standard
    assert light != 1
    assert error_of(lambda: hash(light)) == error_of(lambda: hash(standard)).replace("STANDARD", "LIGHT")


def test_light_dataclass_compares_every_field(shape: Callable[..., Any]) -> None:
    """Every field counts in the comparison, also one that the repr omits."""
    light, _ = objects(shape)
    for one in fields(light):
        assert dataclasses.replace(light, **{one.name: "another"}) != light


def test_frozen_light_dataclass_rejects_assignment_and_deletion() -> None:
    """A frozen object rejects the assignment and deletion of fields and of other attributes."""
    for shape in (frozen, positional, empty):
        light, standard = objects(shape)
        for attribute in ("at", "other"):
            with pytest.raises(FrozenInstanceError, match=f"cannot assign to field '{attribute}'"):
                setattr(light, attribute, 1)
            with pytest.raises(FrozenInstanceError, match=f"cannot delete field '{attribute}'"):
                delattr(light, attribute)
        if shape is not empty:
            for change in (lambda one: setattr(one, "at", 1), lambda one: delattr(one, "at")):
                refused, expected = (error_of(lambda one=one, change=change: change(one)) for one in (light, standard))  # type: ignore[misc]
                assert refused == expected


def test_mutable_light_dataclass_accepts_only_its_fields() -> None:
    """A mutable object accepts assignments to its fields and rejects other attributes."""
    light, _ = objects(mutable)
    light.at = 12
    assert light.at == 12
    with pytest.raises(AttributeError, match="other"):
        light.other = 1


def test_replace_changes_the_given_fields_and_rejects_unknown_names(shape: Callable[..., Any]) -> None:
    """Both `replace` functions accept objects of both kinds of classes and reject unknown fields."""
    for one in objects(shape):
        for replace in (light_dataclasses.replace, dataclasses.replace):
            assert replace(one) == one
            assert "unknown" in error_of(lambda one=one, replace=replace: replace(one, unknown=1))  # type: ignore[misc]
            if fields(one):
                assert replace(one, at=11).at == 11
    if sys.version_info >= (3, 13):
        assert copy.replace(objects(frozen)[0], at=11).at == 11


def test_light_dataclass_copies_and_pickles_are_equal(shape: Callable[..., Any]) -> None:
    """Copies and pickles are equal, also those of frozen objects."""
    light, _ = objects(shape)
    assert copy.copy(light) == light
    assert copy.deepcopy(light) == light
    assert pickle.loads(pickle.dumps(Picklable(topic="orders"))) == Picklable(topic="orders")  # noqa: S301 - our own


def test_light_dataclass_calls_the_default_factory_for_each_object() -> None:
    """No two objects share a value from a default factory."""
    light = frozen(LIGHT)
    assert light(topic="orders").notes is not light(topic="orders").notes


# ---- classes that the standard library creates -----------------------------------------------------------------------


def test_dataclass_with_special_rules_is_created_by_the_standard_library() -> None:
    """The standard library creates classes with bases, hooks, class variables, field options or no slots."""

    @LIGHT(frozen=True, slots=True, kw_only=True)
    class Base:
        at: int

    @LIGHT(frozen=True, slots=True, kw_only=True)
    class Derived(Base):
        topic: str

    @LIGHT(frozen=True, slots=True, kw_only=True)
    class Checked:
        at: int

        def __post_init__(self) -> None:
            if self.at < 0:
                raise ValueError(self.at)

    @LIGHT(frozen=True, slots=True, kw_only=True)
    class Counted:
        at: int
        most: ClassVar[int] = 5

    @LIGHT(frozen=True, slots=True, kw_only=True)
    class Uncompared:
        at: int
        when: float = field(compare=False)

    @LIGHT(frozen=True, slots=True, kw_only=True)
    class Hashed:
        at: int

        def __hash__(self) -> int:
            return 0

    @LIGHT(frozen=True, kw_only=True)
    class Slotless:
        at: int

    assert all(map(is_left, (Derived, Checked, Counted, Uncompared, Hashed, Slotless)))
    assert repr(Derived(at=1, topic="orders")).endswith("Derived(at=1, topic='orders')")  # type: ignore[call-arg]  # the decorator has no types
    assert Uncompared(at=1, when=1.0) == Uncompared(at=1, when=2.0)  # type: ignore[call-arg]  # the decorator has no types
    assert hash(Hashed(at=1)) == 0  # type: ignore[call-arg]  # the decorator has no types
    with pytest.raises(ValueError, match="-1"):
        Checked(at=-1)  # type: ignore[call-arg]  # the decorator has no types
    with pytest.raises(FrozenInstanceError):
        Derived(at=1, topic="orders").at = 2  # type: ignore[call-arg]  # the decorator has no types
