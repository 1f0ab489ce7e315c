"""A repeated failure is logged once, then counted."""

import logging

import pytest

from consumer_membership.runtime.failures import FailureLog


def test_failure_log_warns_of_the_first_failure_and_powers_of_ten(caplog: pytest.LogCaptureFixture) -> None:
    """A broker that is unreachable for a night causes a few warnings instead of thousands."""
    log = FailureLog("Connecting to h:1")
    with caplog.at_level(logging.DEBUG, logger="consumer_membership.network"):
        for _ in range(150):
            log.failed("refused")
        log.succeeded()
        log.succeeded()
    assert [(r.levelname, r.getMessage()) for r in caplog.records if r.levelno > logging.DEBUG] == [
        ("WARNING", "Connecting to h:1 failed: refused"),
        ("WARNING", "Connecting to h:1 failed 10 times in a row: refused"),
        ("WARNING", "Connecting to h:1 failed 100 times in a row: refused"),
        ("INFO", "Connecting to h:1 succeeded after 150 failures"),
    ]
    assert len(caplog.records) == 152


def test_failure_log_counts_from_one_again_after_a_success(caplog: pytest.LogCaptureFixture) -> None:
    """The next failure is logged as a first failure."""
    log = FailureLog("Connecting to h:1")
    with caplog.at_level(logging.WARNING, logger="consumer_membership.network"):
        log.failed("refused")
        log.succeeded()
        log.failed("reset")
    assert [r.getMessage() for r in caplog.records] == [
        "Connecting to h:1 failed: refused",
        "Connecting to h:1 failed: reset",
    ]
