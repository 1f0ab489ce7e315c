"""Patterns: librdkafka's matching, Python's `re` and RE2/J agree on each topic name."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from consumer_membership.config.patterns import NotPosixError, as_written, translate
from consumer_membership.devbroker.java import classpath
from consumer_membership.devbroker.request import DEFAULT_VERSION
from consumer_membership.membership.topics import compiled
from consumer_membership.types import Subscription, TopicPattern
from tests.support.librdkafka_patterns import matches

_JAVA = Path(__file__).parents[1] / "support" / "java" / "Re2jMatches.java"

#: All names of up to three of these characters, and some longer ones.
NAMES = [
    "".join(name) for length in (1, 2, 3) for name in itertools.product("ab0-", repeat=length)
] + ["A", "_", "a.b", "Ab_", "a-b-0", "aaaa", "abab", "a_b", "b.", "zz", "a0a0", "orders-1", "a" * 249]  # fmt: skip

_SINGLE = r"a b A 0 - _ \. . ^ $ | ( ) * + ? { } [ ] : , / \w \W \s \S \` \' \d \n \( \\ \1 \2"
_BRACED = "{2} {0} {,2} {1,} {2,1} {,} (a) (a|b) (^a|b)"
_BRACKETS = "[] [^] [ab] [^a] [a-z] [a- [---] [.--] [a-b-z] [z-a] []a] [^]a] [a-] [\\]"
_NAMED = "[[:digit:]] [^[:alpha:]-] [[.a.]-b] [[=a=]b] [[:foo:]] [[.ab.]]"
#: Pieces of patterns in any order: half of the patterns are refused, and the other half look artificial.
wild = st.lists(st.sampled_from(f"{_SINGLE} {_BRACED} {_BRACKETS} {_NAMED}".split()), max_size=7).map("".join)
#: Word boundaries without repetition, because glibc is wrong there (`(.|\b){2}` matches twice in one hyphen).
places = st.lists(
    st.sampled_from(
        [r"a", r"b", r"0", r"-", r".", r"\w", r"[^a]", r"\b", r"\B", r"\<", r"\>", r"^", r"$", r"|", r"(a|\b)"]
    ),
    max_size=6,
).map("".join)


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeated = st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0}", "{,2}"]))
    return st.one_of(
        st.lists(inner, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map("|".join),
        inner.map("({})".format),
        repeated.map(lambda pair: f"({pair[0]}){pair[1]}"),
    )


_leaves = st.sampled_from(
    [r"a", r"b", r"0", r"-", r".", r"\.", r"^", r"$", r"[ab]", r"[^a-]", r"[[:alpha:]]", r"\w", r"\W"]
)
tame = st.recursive(_leaves, _grown, max_leaves=8)
patterns = st.tuples(st.sampled_from(["^", ""]), tame | wild | places).map("".join)


def matched(pattern: TopicPattern) -> list[bool]:
    """Return, for each name, whether a classic member's pattern matches it."""
    (one,) = compiled([pattern]).values()
    return [one.fullmatch(name) is not None for name in NAMES]


def by_us(text: str) -> list[bool] | None:
    """Translate and match the application's pattern; return None if it is rejected."""
    try:
        return matched(translate(text))
    except NotPosixError:
        return None


@pytest.mark.slow
@settings(max_examples=1500)
@example(r"^a|b")
@example("^a{300}")
@example("^()*a")
@example(r"^(a)(b)\2\1")
@example("^a)")
@given(patterns)
def test_translated_pattern_matches_same_names_as_librdkafka(text: str) -> None:
    """Librdkafka's C matching is the oracle for the matches and for which patterns are valid."""
    assert by_us(text) == matches(text, NAMES)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("^orders-", "^orders-.*"),
        ("^orders-.*", "^orders-.*"),
        ("^orders$", "^orders$"),
        ("^a|b", "^a.*|.*b.*"),
        ("^(eu|us)-[[:digit:]]+$", "^(?:eu|us)-[0-9]+$"),
        (r"^a\.b", r"^a\.b.*"),
        ("^a{300,}$", "^a{250,}$"),
        ("^a*?", "^(?:a*)?.*"),
        ("^[/]", "^/.*"),
    ],
)
def test_translate_keeps_common_patterns_readable(text: str, expected: str) -> None:
    """Common patterns change only in their suffix, because operators read them in `describe`."""
    pattern = translate(text)
    assert (pattern.broker, pattern.member, pattern.note) == (expected, expected, "")


@pytest.mark.parametrize(
    ("text", "reason", "is_re2"),
    [
        ("^a(", "a ( is not closed", False),
        ("^[a", "a [ is not closed", False),
        ("^*", "`*` has nothing to repeat", False),
        ("^a\\", "it ends with a backslash", False),
        ("^a{2,1}", "{2,1} has its bounds in the wrong order", False),
        ("^a{99999}", "{99999} repeats more than 32767 times", False),
        ("^a\0b", "it has a NUL character", False),
        (r"^a\1", r"`\1` refers to a group that does not exist", False),
        ("^(?:a)", "`?` has nothing to repeat", True),
        ("^[[:word:]]", "[:word:] is not a character class", True),
    ],
)
def test_translate_error_states_reason_and_whether_re2_accepts_pattern(text: str, reason: str, is_re2: bool) -> None:  # noqa: FBT001 - a parameter
    """The error states the reason and whether RE2/J may accept the pattern."""
    with pytest.raises(NotPosixError) as refused:
        translate(text)
    assert (str(refused.value), refused.value.is_re2) == (reason, is_re2)


@pytest.mark.parametrize("text", [r"^(a)\1", r"^\<a", r"^a\>"])
def test_pattern_that_re2j_lacks_is_matched_by_members_only(text: str) -> None:
    """RE2/J supports neither back references nor word ends, so these patterns have no broker form."""
    pattern = translate(text)
    assert (pattern.broker, pattern.of_members_only.startswith("RE2/J has no")) == (None, True)


def test_backslash_letter_produces_note() -> None:
    r"""`\d` is the letter d in librdkafka, but a digit in RE2/J and Python; a note explains this."""
    pattern = translate(r"^orders-\d+")
    assert pattern.broker == "^orders-d+.*"
    assert "`\\d` is the letter d" in pattern.note


@pytest.mark.parametrize(
    ("text", "member"), [("^a(?:b|c)", "^a(?:b|c)"), ("^abc(?i).*", None), (r"^\pL+", None), ("^[[:alpha:]]", None)]
)
def test_broker_pattern_is_sent_unchanged(text: str, member: str | None) -> None:
    """An RE2/J pattern is sent unchanged; the member matches with it if Python reads it the same way."""
    assert as_written(text) == TopicPattern(text=text, broker=text, member=member)


@pytest.mark.slow
@pytest.mark.integration
def test_re2j_matches_same_names_as_librdkafka() -> None:
    """The broker's RE2/J matches each translated pattern as librdkafka matches the original."""
    texts: dict[str, str] = {}

    @settings(max_examples=1500)
    @given(patterns)
    def gather(text: str) -> None:
        try:
            pattern = translate(text)
        except NotPosixError:
            return
        if pattern.broker is not None and "\n" not in pattern.broker:
            texts[text] = pattern.broker

    gather()
    texts |= {"^a{300,400}": "^a{250}.*"}
    lines = "\n".join([" ".join(NAMES), *texts.values()]) + "\n"
    done = subprocess.run(
        ["java", "-cp", classpath(DEFAULT_VERSION), str(_JAVA)],  # noqa: S607 - java is what the broker runs with
        input=lines,
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    answers = dict(zip(texts, done.stdout.splitlines(), strict=True))
    expected = {text: "".join("01"[is_one] for is_one in matches(text, NAMES) or ()) for text in texts}
    assert len(texts) > 300
    assert {text: (texts[text], result) for text, result in answers.items() if result != expected[text]} == {}


def test_subscription_joins_patterns_without_sharing_flags() -> None:
    """A broker receives several patterns as one; a flag in one pattern does not affect another."""
    both = Subscription(patterns=frozenset({as_written("^b(?i)c"), translate("^a|b$")}))
    assert both.pattern == "(?:^a.*|.*b$)|(?:^b(?i)c)"
