"""Invalid arguments of `GroupAdmin`, of any type, raise an error that names them before a request is sent."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_membership.admin import GroupAdmin, arguments
from consumer_membership.errors import ArgumentTypeError, ConfigurationError
from tests.support.texts import ANY_TEXT, is_taken_by_c

#: An address at which no server listens: each request ends with a TransportError.
NOBODY: dict[str, object] = {"bootstrap.servers": "127.0.0.1:1"}


def make(config: object = NOBODY, **kwargs: object) -> GroupAdmin:
    """Create an admin with arguments of any type."""
    return GroupAdmin(config, **kwargs)  # type: ignore[arg-type]  # wrong on purpose


def remove(group: object = "g", **kwargs: object) -> object:
    """Remove members with arguments of any type."""
    return make().remove_members(group, **kwargs)  # type: ignore[arg-type]  # wrong on purpose


def describe(group: object, **kwargs: object) -> object:
    """Request a description with arguments of any type."""
    return make().describe(group, **kwargs)  # type: ignore[arg-type]  # wrong on purpose


def committed(group: object) -> object:
    """Request committed offsets with an argument of any type."""
    return make().committed(group)  # type: ignore[arg-type]  # wrong on purpose


def history(since: object = 0.0, **kwargs: object) -> object:
    """Request a history with arguments of any type."""
    return make().history("g", since, **kwargs)  # type: ignore[arg-type]  # wrong on purpose


MISTAKES: list[tuple[Callable[[], object], str, type[ConfigurationError]]] = [
    (lambda: make(None), "config=None: pass a dict", ArgumentTypeError),
    (lambda: make(5), "config=5: pass a dict", ArgumentTypeError),
    (lambda: make("localhost:9092"), "config='localhost:9092': pass a dict", ArgumentTypeError),
    (lambda: make({**NOBODY, 5: 1}), '5=1: No such configuration property: "5"', ConfigurationError),  # type: ignore[misc]  # wrong on purpose
    (lambda: make({**NOBODY, "client.id": "a\ud800"}), "client.id='a\\ud800': it is not UTF-8", ConfigurationError),
    (lambda: make(timeout_s="5"), "timeout_s='5': the timeout must be a number of seconds above 0", ArgumentTypeError),
    (
        lambda: make(timeout_s=None),
        "timeout_s=None: the timeout must be a number of seconds above 0",
        ArgumentTypeError,
    ),
    (
        lambda: make(timeout_s=True),
        "timeout_s=True: the timeout must be a number of seconds above 0",
        ArgumentTypeError,
    ),
    (lambda: make(timeout_s=0), "timeout_s=0: the timeout must be above 0 seconds", ConfigurationError),
    (lambda: make(timeout_s=-1.5), "timeout_s=-1.5: the timeout must be above 0 seconds", ConfigurationError),
    (lambda: make(timeout_s=float("nan")), "timeout_s=nan: the timeout must be above 0 seconds", ConfigurationError),
    (lambda: describe(5), "group_id=5: a group id must be a string", ArgumentTypeError),
    (lambda: describe(None), "group_id=None: a group id must be a string", ArgumentTypeError),
    (lambda: describe(b"g"), "group_id=b'g': a group id must be a string", ArgumentTypeError),
    (lambda: describe(["g"]), "group_id=['g']: a group id must be a string", ArgumentTypeError),
    (lambda: describe(""), "group_id='': a group id must not be empty", ConfigurationError),
    (lambda: describe("g\ud800"), "group_id='g\\ud800': it is not UTF-8", ConfigurationError),
    (lambda: describe("g\0"), "group_id='g\\x00': it has a NUL character", ConfigurationError),
    (
        lambda: describe("g" * 40_000),
        "it has 40000 bytes of UTF-8, and Kafka accepts at most 32767",
        ConfigurationError,
    ),
    (lambda: describe("g", with_offsets="no"), "with_offsets='no': the value must be True or False", ArgumentTypeError),
    (lambda: committed(5), "group_id=5: a group id must be a string", ArgumentTypeError),
    (lambda: committed("g\udcff"), "group_id='g\\udcff': it is not UTF-8", ConfigurationError),
    (lambda: history("1h"), "since='1h': the time must be a number of seconds since 1970", ArgumentTypeError),
    (lambda: history(-1.0), "since=-1.0: the time must be in seconds since 1970", ConfigurationError),
    (lambda: history(grain_s="1"), "grain_s='1': the resolution must be a number of seconds", ArgumentTypeError),
    (lambda: history(grain_s=-0.1), "grain_s=-0.1: the resolution must be at least 0 seconds", ConfigurationError),
    (lambda: history(on_progress=5), "on_progress=5: the callback must be a function or None", ArgumentTypeError),
    (lambda: remove(5, all_members=True), "group_id=5: a group id must be a string", ArgumentTypeError),
    (lambda: remove(member_ids=[123]), "member_ids[0]=123: an id must be a string", ArgumentTypeError),
    (lambda: remove(member_ids=["m", None]), "member_ids[1]=None: an id must be a string", ArgumentTypeError),
    (lambda: remove(instance_ids=[b"i"]), "instance_ids[0]=b'i': an id must be a string", ArgumentTypeError),
    (lambda: remove(instance_ids=5), "instance_ids=5: the ids must be a list of strings", ArgumentTypeError),
    (lambda: remove(member_ids=None), "member_ids=None: the ids must be a list of strings", ArgumentTypeError),
    (lambda: remove(member_ids=b"m"), "member_ids=b'm': the ids must be a list of strings", ArgumentTypeError),
    (lambda: remove(member_ids="m"), "member_ids='m': the ids must be a list of strings", ConfigurationError),
    (lambda: remove(member_ids=["m", ""]), "an id must not be empty", ConfigurationError),
    (lambda: remove(instance_ids=["i\ud800"]), "instance_ids[0]='i\\ud800': it is not UTF-8", ConfigurationError),
    (lambda: remove(member_ids=["m\0"]), "member_ids[0]='m\\x00': it has a NUL character", ConfigurationError),
    (lambda: remove(instance_ids=["i" * 40_000]), "it has 40000 bytes of UTF-8", ConfigurationError),
    (lambda: remove(all_members="false"), "all_members='false': the value must be True or False", ArgumentTypeError),
    (
        lambda: remove(all_members=True, dry_run="yes"),
        "dry_run='yes': the value must be True or False",
        ArgumentTypeError,
    ),
    (lambda: remove(all_members=True, reason=5), "reason=5: the reason must be a string or None", ArgumentTypeError),
    (lambda: remove(all_members=True, reason="r\ud800"), "reason='r\\ud800': it is not UTF-8", ConfigurationError),
    (remove, "no member is selected", ConfigurationError),
]


@pytest.mark.parametrize(("go", "words", "kind"), MISTAKES, ids=[words[:40] for _, words, _ in MISTAKES])
def test_invalid_argument_raises_configuration_error_before_any_request(
    go: Callable[[], object], words: str, kind: type[ConfigurationError]
) -> None:
    """The error has the argument, the value and the fix; if the type is wrong, it is also a TypeError."""
    with pytest.raises(ConfigurationError) as caught:
        go()
    assert words in str(caught.value)
    assert type(caught.value) is kind
    assert issubclass(ArgumentTypeError, TypeError)
    assert len(str(caught.value)) < 300


@pytest.mark.slow
@given(ANY_TEXT.filter(bool))
def test_group_ids_and_reasons_accept_exactly_valid_text(text: str) -> None:
    """A text is accepted if and only if confluent-kafka's C code accepts it."""
    for check in (arguments.group_id, lambda one: arguments.ids("member_ids", [one])[0], arguments.reason):
        try:
            assert check(text) == text
            assert is_taken_by_c(text)
        except ConfigurationError:
            assert not is_taken_by_c(text)


@given(st.none() | st.integers() | st.floats() | st.binary() | st.lists(st.integers(), min_size=1) | ANY_TEXT)
def test_argument_checks_raise_only_configuration_error(thing: object) -> None:
    """Each argument is either accepted or raises ConfigurationError."""
    for check in (arguments.group_id, arguments.seconds, arguments.reason, lambda one: arguments.ids("ids", one)):
        try:
            check(thing)
        except ConfigurationError as error:
            str(error).encode()
