"""Arbitrary texts, and checks: does C code accept a text, and did only a busy machine cause an output line?"""

from __future__ import annotations

from confluent_kafka import TopicPartition
from hypothesis import strategies as st

#: All texts that Python supports, including lone surrogates and NUL.
ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=())) | st.text("a\0\udc80\ud800é", max_size=6)


def is_taken_by_c(text: str) -> bool:
    """Return whether confluent-kafka's own argument parser accepts the text."""
    try:
        TopicPartition("t", 0, 0, text)
    except ValueError:  # UnicodeEncodeError, or "embedded null character"
        return False
    return True


def is_of_busy_broker(line: str) -> bool:
    """Return whether this is the warning of a broker that did not read the first request of a connection in time."""
    return "did not respond within" in line
