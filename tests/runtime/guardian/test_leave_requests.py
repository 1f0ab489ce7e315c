"""The leave requests that the guardian has after lines arrived, however the lines were divided."""

from __future__ import annotations

import pytest

from consumer_membership.config import SaslMechanism, SaslSettings, TlsSettings
from consumer_membership.runtime.guardian.leave_requests import LeaveRequests, line_of
from consumer_membership.types import GroupProtocol
from tests.runtime.guardian.leave_requests import leave_request

ONE = leave_request(("10.0.0.1", 9092), [("kafka", 9092), ("::1", 9093)], member_id="one")
TWO = leave_request(("10.0.0.2", 9092), member_id="two", instance_id="i")
CLASSIC = leave_request(("10.0.0.3", 9092), member_id="three", protocol=GroupProtocol.CLASSIC)
#: Text that JSON has to escape, and a character that UTF-8 cannot encode.
PASSWORD = 'p"\\\n\x7f ü \udc80'  # noqa: S105
SECURED = leave_request(
    ("kafka", 9093),
    member_id="four",
    tls=TlsSettings(ca_location="/ca", key_pem="KEY-PEM", key_password=PASSWORD, verifies=False, checks_hostname=False),
    sasl=SaslSettings(mechanism=SaslMechanism.SCRAM_SHA_256, username="jürgen", password=PASSWORD),
)


def after(data: bytes) -> LeaveRequests:
    """Return the leave requests after these bytes."""
    made = LeaveRequests()
    made.take(data)
    return made


def test_leave_request_survives_its_encoding() -> None:
    """All fields are kept, including frames and the missing epoch of a classic member."""
    standing = (ONE, TWO, CLASSIC, SECURED)
    assert after(b"".join(line_of(key, one) for key, one in enumerate(standing))).standing == standing


def test_leave_request_repr_shows_no_secret() -> None:
    """The rule holds in the application and in the guardian."""
    for shown in (repr(SECURED), repr(after(line_of(1, SECURED)).standing)):
        assert "jürgen" in shown
        assert repr(PASSWORD) not in shown
        assert "KEY-PEM" not in shown


def test_leave_requests_keep_the_latest_line_of_a_member() -> None:
    """A member sends another line when its coordinator moves."""
    moved = leave_request(("10.0.0.3", 9092), member_id="one")
    assert after(line_of(1, ONE) + line_of(2, TWO) + line_of(1, moved)).standing == (moved, TWO)


def test_leave_requests_drop_a_member_that_left() -> None:
    """The other members stay, and dropping an unknown member does nothing."""
    assert after(line_of(1, ONE) + line_of(2, TWO) + line_of(1, None) + line_of(7, None)).standing == (TWO,)


@pytest.mark.parametrize("cut", [1, 10, -1])
def test_leave_requests_ignore_an_incomplete_last_line(cut: int) -> None:
    """If the application died in the middle of a line, the earlier line stays valid."""
    assert after(line_of(1, ONE) + line_of(1, None)[:cut]).standing == (ONE,)


def test_leave_requests_accept_lines_in_pieces() -> None:
    """A read from the pipe may end at any byte."""
    data = line_of(1, ONE) + line_of(2, TWO) + line_of(1, None)
    made = LeaveRequests()
    for place in range(len(data)):
        made.take(data[place : place + 1])
    assert made.standing == (TWO,)


@pytest.mark.parametrize(
    "line",
    [
        *(b"nonsense\n", b"{}\n", b"[]\n", b'{"key": 1, "leave": {}}\n', b"\xff\n", b"\n"),
        *(b'{"key": Infinity, "leave": null}\n', b"[" * 100_000 + b"\n"),
    ],
    ids=lambda line: line[:20],
)
def test_leave_requests_skip_an_invalid_line(line: bytes) -> None:
    """After an invalid line, the guardian still leaves for the other members."""
    assert after(line_of(1, ONE) + line + line_of(2, TWO)).standing == (ONE, TWO)
