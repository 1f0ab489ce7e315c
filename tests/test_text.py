"""`text` accepts every string that Kafka and C can carry, and describes the problem of every other string."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from consumer_membership.text import LONGEST_STRING, excerpt, printable, problem_of, speakable
from tests.support.texts import ANY_TEXT, is_taken_by_c


@given(ANY_TEXT)
def test_problem_of_accepts_exactly_the_text_that_c_accepts(text: str) -> None:
    """`problem_of` accepts exactly the text that confluent-kafka's strict TopicPartition accepts."""
    assert (problem_of(text) is None) == is_taken_by_c(text)


@given(ANY_TEXT)
def test_problem_of_returns_text_that_a_kafka_error_can_carry(text: str) -> None:
    """The description of a problem fits into a KafkaError, which accepts no invalid text."""
    problem = problem_of(text)
    assert problem is None or KafkaError(KafkaError.UNKNOWN, f"{excerpt(text)!a}: {problem}").str()


@given(ANY_TEXT)
def test_speakable_escapes_only_invalid_text(text: str) -> None:
    """`speakable` escapes invalid text and returns valid text unchanged."""
    assert problem_of(speakable(text), None) is None
    assert (speakable(text) == text) == (problem_of(text, None) is None)


@given(ANY_TEXT)
def test_printable_escapes_only_characters_that_are_not_printable(text: str) -> None:
    """`printable` returns one printable line and returns printable text unchanged."""
    assert printable(text).isprintable()
    assert (printable(text) == text) == text.isprintable()


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")), st.integers(0, 40))
def test_problem_of_counts_the_limit_in_utf8_bytes(text: str, longest: int) -> None:
    """The limit counts UTF-8 bytes, of which a character may have four."""
    assert (problem_of(text, longest) is None) == (len(text.encode()) <= longest)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a\ud800", "it is not UTF-8 ('\\ud800' at position 1)"),
        ("a\udcff", "it is not UTF-8 ('\\udcff' at position 1)"),
        ("ab\0c", "it has a NUL character at position 2"),
        ("x" * 40_000, "it has 40000 bytes of UTF-8, and Kafka accepts at most 32767"),
        ("é" * 20_000, "it has 40000 bytes of UTF-8, and Kafka accepts at most 32767"),
    ],
)
def test_problem_of_describes_the_problem_and_its_position(text: str, words: str) -> None:
    """The description escapes the character, so that a terminal and a log can show it."""
    assert str(problem_of(text)).startswith(words)
    assert problem_of("x" * LONGEST_STRING) is None


@pytest.mark.parametrize("text", ["pass\ud800word", "pass\0word"])
def test_problem_of_a_secret_reveals_neither_content_nor_position(text: str) -> None:
    """The description of a secret reveals neither its content nor the position of the problem."""
    problem = problem_of(text, is_secret=True)
    assert problem is not None
    assert not any(part in problem for part in ("pass", "position", "ud800", "4"))
