"""A few inputs of `tests.wire.fuzz`, with a check of their memory."""

from tests.wire.fuzz import Fuzz


def test_readers_accept_or_reject_random_bytes() -> None:
    """Both results occur."""
    came = Fuzz(0).run(5_000, measures=False)
    assert min(came["read"], came["refused"]) > 500


def test_reader_memory_is_bounded_by_input_size() -> None:
    """A length field alone never causes an allocation."""
    assert Fuzz(1).run(500, measures=True).total() == 500
