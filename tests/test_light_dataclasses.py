"""A light dataclass is what the standard library's is: to whoever makes, compares, copies, pickles or inspects it."""

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

#: Makers of the same classes: ours, and the one that it is measured by.
LIGHT, STANDARD = light_dataclasses.dataclass, dataclasses.dataclass


def frozen(dataclass: Callable[..., Any]) -> type[Any]:
    """A frozen class with every kind of field."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Offset:
        """An offset."""

        topic: str
        at: int = 7
        notes: list[str] = field(default_factory=list)
        secret: str = field(default="hidden", repr=False)

        @property
        def following(self) -> int:
            """The next one."""
            return self.at + 1

    return Offset


def positional(dataclass: Callable[..., Any]) -> type[Any]:
    """A frozen class of one field, which is given by position."""

    @dataclass(frozen=True, slots=True)
    class Offset:
        at: int

    return Offset


def mutable(dataclass: Callable[..., Any]) -> type[Any]:
    """A class whose objects change."""

    @dataclass(slots=True)
    class Offset:
        topic: str = "orders"
        at: int = 7

    return Offset


def empty(dataclass: Callable[..., Any]) -> type[Any]:
    """A frozen class without fields."""

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
    """Pickles name a module's classes."""

    topic: str
    at: int = 7


@pytest.fixture(params=SHAPES, ids=lambda shape: shape.__name__)
def shape(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """One shape of class."""
    made: Callable[..., Any] = request.param
    return made


def both(shape: Callable[..., Any]) -> tuple[Any, Any]:
    """The class of this shape, ours and the standard library's."""
    return shape(LIGHT), shape(STANDARD)


def objects(shape: Callable[..., Any]) -> tuple[Any, Any]:
    """An object of each of the two."""
    positions, names = ARGUMENTS[shape]
    light, standard = (cls(*positions, **names) for cls in both(shape))
    return light, standard


def told(call: Callable[[], object]) -> str:
    """What it gives, or what it raises."""
    try:
        return repr(call())
    except (TypeError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"


def is_left(cls: type) -> bool:
    """Whether the standard library made it: it describes the fields of its classes at once."""
    return isinstance(inspect.getattr_static(cls, "__dataclass_fields__"), dict)


def test_class_is_made_light(shape: Callable[..., Any]) -> None:
    """Every shape here is one that is not left to the standard library."""
    assert [is_left(cls) for cls in both(shape)] == [False, True]


def test_objects_have_the_same_words_and_fields(shape: Callable[..., Any]) -> None:
    """`repr`, `fields`, `asdict` and `is_dataclass` tell no difference."""
    light, standard = objects(shape)
    assert repr(light) == repr(standard).replace("STANDARD", "LIGHT")
    assert [(one.name, one.type, one.kw_only) for one in fields(light)] == [
        (one.name, one.type, one.kw_only) for one in fields(standard)
    ]
    assert asdict(light) == asdict(standard)
    assert is_dataclass(light)
    assert repr(type(light).__dataclass_params__) == repr(type(standard).__dataclass_params__)  # type: ignore[union-attr]  # both have them


def test_class_looks_the_same(shape: Callable[..., Any]) -> None:
    """Slots, signature, what `match` reads by position, and names."""
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


def test_what_a_class_defines_stays() -> None:
    """Properties and docstrings."""
    light, standard = objects(frozen)
    assert light.following == standard.following == 8
    assert type(light).__doc__ == "An offset."


def test_mistaken_arguments_are_refused_in_the_same_words(shape: Callable[..., Any]) -> None:
    """One too many by position, an unknown name, one that is missing."""
    light, standard = both(shape)
    for mistake in (((1, 2, 3, 4, 5), {}), ((), {"unknown": 1}), ((), {})):  # type: ignore[var-annotated]  # of several shapes
        positions, names = mistake
        refused, expected = (told(lambda cls=cls: cls(*positions, **names)) for cls in (light, standard))  # type: ignore[misc]  # noqa: B023
        assert refused == expected


def test_values_decide_equality_and_hash(shape: Callable[..., Any]) -> None:
    """Equal values are equal, whatever else an object of another class holds; what can change has no hash."""
    light, standard = objects(shape)
    positions, names = ARGUMENTS[shape]
    assert light == type(light)(*positions, **names)
    assert light != standard
    assert light != 1
    assert told(lambda: hash(light)) == told(lambda: hash(standard)).replace("STANDARD", "LIGHT")


def test_another_value_of_any_field_is_unequal(shape: Callable[..., Any]) -> None:
    """Each field counts, one that is not shown too."""
    light, _ = objects(shape)
    for one in fields(light):
        assert dataclasses.replace(light, **{one.name: "another"}) != light


def test_frozen_objects_refuse_to_change() -> None:
    """Assigning and deleting, a field and what is none, by an object's attributes and by nothing else."""
    for shape in (frozen, positional, empty):
        light, standard = objects(shape)
        for attribute in ("at", "other"):
            with pytest.raises(FrozenInstanceError, match=f"cannot assign to field '{attribute}'"):
                setattr(light, attribute, 1)
            with pytest.raises(FrozenInstanceError, match=f"cannot delete field '{attribute}'"):
                delattr(light, attribute)
        if shape is not empty:
            for change in (lambda one: setattr(one, "at", 1), lambda one: delattr(one, "at")):
                refused, expected = (told(lambda one=one, change=change: change(one)) for one in (light, standard))  # type: ignore[misc]
                assert refused == expected


def test_mutable_objects_change() -> None:
    """Fields are assigned, what is none is refused."""
    light, _ = objects(mutable)
    light.at = 12
    assert light.at == 12
    with pytest.raises(AttributeError, match="other"):
        light.other = 1


def test_replace_changes_what_it_is_told(shape: Callable[..., Any]) -> None:
    """The light one and the standard library's, of either kind of class, a name that is no field refused alike."""
    for one in objects(shape):
        for replace in (light_dataclasses.replace, dataclasses.replace):
            assert replace(one) == one
            assert "unknown" in told(lambda one=one, replace=replace: replace(one, unknown=1))  # type: ignore[misc]
            if fields(one):
                assert replace(one, at=11).at == 11
    if sys.version_info >= (3, 13):
        assert copy.replace(objects(frozen)[0], at=11).at == 11


def test_copies_and_pickles_are_equal(shape: Callable[..., Any]) -> None:
    """Frozen ones, too, which refuse to be filled in from outside."""
    light, _ = objects(shape)
    assert copy.copy(light) == light
    assert copy.deepcopy(light) == light
    assert pickle.loads(pickle.dumps(Picklable(topic="orders"))) == Picklable(topic="orders")  # noqa: S301 - our own


def test_factory_is_asked_for_each_object() -> None:
    """No two objects share what a factory made."""
    light = frozen(LIGHT)
    assert light(topic="orders").notes is not light(topic="orders").notes


# ---- what is left to the standard library ---------------------------------------------------------------------------


def test_whatever_has_rules_of_its_own_is_left_to_the_standard_library() -> None:
    """Bases, hooks, what is annotated and no field, fields with other options, classes without slots."""

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
