"""Text that Kafka and C can carry is let through, and all other text is named, whatever it is."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from consumer_membership.text import LONGEST_STRING, excerpt, printable, problem_of, speakable
from tests.support.texts import ANY_TEXT, is_taken_by_c


@given(ANY_TEXT)
def test_what_c_takes_is_no_problem_and_all_else_is(text: str) -> None:
    """The oracle is confluent-kafka's TopicPartition, which is strict."""
    assert (problem_of(text) is None) == is_taken_by_c(text)


@given(ANY_TEXT)
def test_problem_itself_can_be_told(text: str) -> None:
    """The words for what is wrong go into a KafkaError, which takes no such text."""
    problem = problem_of(text)
    assert problem is None or KafkaError(KafkaError.UNKNOWN, f"{excerpt(text)!a}: {problem}").str()


@given(ANY_TEXT)
def test_speakable_text_has_no_problem_and_good_text_stays(text: str) -> None:
    """Strangers' words are escaped as far as it is needed."""
    assert problem_of(speakable(text), None) is None
    assert (speakable(text) == text) == (problem_of(text, None) is None)


@given(ANY_TEXT)
def test_printable_text_is_one_line_and_good_text_stays(text: str) -> None:
    """Only signs that are not printable are escaped, each as in Python."""
    assert printable(text).isprintable()
    assert (printable(text) == text) == text.isprintable()


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")), st.integers(0, 40))
def test_bound_is_counted_in_bytes_of_utf8(text: str, longest: int) -> None:
    """A character may have four."""
    assert (problem_of(text, longest) is None) == (len(text.encode()) <= longest)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a\ud800", "it is not UTF-8 ('\\ud800' at position 1)"),
        ("a\udcff", "it is not UTF-8 ('\\udcff' at position 1)"),
        ("ab\0c", "it has a NUL character at position 2"),
        ("x" * 40_000, "it has 40000 bytes of UTF-8, and Kafka has room for 32767"),
        ("é" * 20_000, "it has 40000 bytes of UTF-8, and Kafka has room for 32767"),
    ],
)
def test_problem_says_what_and_where(text: str, words: str) -> None:
    """With an escape, so that a terminal and a log can show it."""
    assert str(problem_of(text)).startswith(words)
    assert problem_of("x" * LONGEST_STRING) is None


@pytest.mark.parametrize("text", ["pass\ud800word", "pass\0word"])
def test_problem_of_a_secret_tells_nothing_of_it(text: str) -> None:
    """Neither what stands in it nor where."""
    problem = problem_of(text, is_secret=True)
    assert problem is not None
    assert not any(part in problem for part in ("pass", "position", "ud800", "4"))
