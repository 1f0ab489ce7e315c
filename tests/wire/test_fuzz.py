"""A few of the inputs of `tests.wire.fuzz`, with their memory."""

from tests.wire.fuzz import Fuzz


def test_bytes_by_chance_are_read_or_refused() -> None:
    """Both happen."""
    came = Fuzz(0).run(5_000, measures=False)
    assert min(came["read"], came["refused"]) > 500


def test_memory_is_bounded_by_the_bytes_that_are_there() -> None:
    """No length is believed."""
    assert Fuzz(1).run(500, measures=True).total() == 500
