"""Leave requests: what stands after the lines that came, however they came."""

from __future__ import annotations

import pytest

from consumer_membership.config import SaslMechanism, SaslSettings, TlsSettings
from consumer_membership.runtime.guardian.leave_requests import LeaveRequests, line_of
from consumer_membership.types import GroupProtocol
from tests.runtime.guardian.leave_requests import leave_request

ONE = leave_request(("10.0.0.1", 9092), [("kafka", 9092), ("::1", 9093)], member_id="one")
TWO = leave_request(("10.0.0.2", 9092), member_id="two", instance_id="i")
CLASSIC = leave_request(("10.0.0.3", 9092), member_id="three", protocol=GroupProtocol.CLASSIC)
#: Text that JSON has to escape, and what no UTF-8 can hold.
PASSWORD = 'p"\\\n\x7f ü \udc80'  # noqa: S105
SECURED = leave_request(
    ("kafka", 9093),
    member_id="four",
    tls=TlsSettings(ca_location="/ca", key_pem="KEY-PEM", key_password=PASSWORD, verifies=False, checks_hostname=False),
    sasl=SaslSettings(mechanism=SaslMechanism.SCRAM_SHA_256, username="jürgen", password=PASSWORD),
)


def after(data: bytes) -> LeaveRequests:
    """What stands after these bytes."""
    made = LeaveRequests()
    made.take(data)
    return made


def test_will_comes_out_as_it_went_in() -> None:
    """All fields, frames included; an epoch that a classic member has not is none afterwards, too."""
    standing = (ONE, TWO, CLASSIC, SECURED)
    assert after(b"".join(line_of(key, one) for key, one in enumerate(standing))).standing == standing


def test_secrets_of_a_will_are_not_shown() -> None:
    """Whoever prints one: before the pipe or behind it."""
    for shown in (repr(SECURED), repr(after(line_of(1, SECURED)).standing)):
        assert "jürgen" in shown
        assert repr(PASSWORD) not in shown
        assert "KEY-PEM" not in shown


def test_last_word_of_a_member_holds() -> None:
    """Its coordinator moved."""
    moved = leave_request(("10.0.0.3", 9092), member_id="one")
    assert after(line_of(1, ONE) + line_of(2, TWO) + line_of(1, moved)).standing == (moved, TWO)


def test_member_that_left_is_forgotten() -> None:
    """The others stay; to forget an unknown one is nothing."""
    assert after(line_of(1, ONE) + line_of(2, TWO) + line_of(1, None) + line_of(7, None)).standing == (TWO,)


@pytest.mark.parametrize("cut", [1, 10, -1])
def test_torn_last_line_is_no_news(cut: int) -> None:
    """The application died in the middle of it: what was said before holds."""
    assert after(line_of(1, ONE) + line_of(1, None)[:cut]).standing == (ONE,)


def test_lines_may_be_cut_anywhere() -> None:
    """The pipe gives what it has."""
    data = line_of(1, ONE) + line_of(2, TWO) + line_of(1, None)
    made = LeaveRequests()
    for place in range(len(data)):
        made.take(data[place : place + 1])
    assert made.standing == (TWO,)


@pytest.mark.parametrize("line", [b"nonsense\n", b"{}\n", b"[]\n", b'{"key": 1, "leave": {}}\n', b"\xff\n", b"\n"])
def test_line_of_nobody_is_passed_over(line: bytes) -> None:
    """One fault must not cost the other members their leave."""
    assert after(line_of(1, ONE) + line + line_of(2, TWO)).standing == (ONE, TWO)
