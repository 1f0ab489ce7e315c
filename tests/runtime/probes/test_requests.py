"""What is read of a request, and what is refused."""

from __future__ import annotations

import pytest

from consumer_membership.runtime.probes.requests import (
    ProbeAnswer,
    ProbeRequest,
    is_whole,
    read_request,
    refusal,
)


def head(first: str, *fields: str) -> bytes:
    """The head of a request."""
    return "\r\n".join([first, *fields, "", ""]).encode("latin-1")


@pytest.mark.parametrize(
    ("first", "meant"),
    [
        ("GET /livez HTTP/1.1", ProbeRequest(path="/livez")),
        ("GET /livez HTTP/1.0", ProbeRequest(path="/livez")),
        ("HEAD /readyz HTTP/1.1", ProbeRequest(path="/readyz", is_head=True)),
        ("GET /livez?verbose HTTP/1.1", ProbeRequest(path="/livez", is_verbose=True)),
        ("GET /livez?a=b&verbose=1 HTTP/1.1", ProbeRequest(path="/livez", is_verbose=True)),
        ("GET /livez?notverbose HTTP/1.1", ProbeRequest(path="/livez")),
        ("GET http://pod:8080/health?verbose HTTP/1.1", ProbeRequest(path="/health", is_verbose=True)),
        ("GET http://pod:8080 HTTP/1.1", ProbeRequest(path="/")),
        ("GET /health#part HTTP/1.1", ProbeRequest(path="/health")),
    ],
)
def test_request_is_read(first: str, meant: ProbeRequest) -> None:
    """As clients, proxies and people write it."""
    assert read_request(head(first, "Host: pod")) == meant


@pytest.mark.parametrize(
    ("first", "status"),
    [
        ("POST /livez HTTP/1.1", 405),
        ("get /livez HTTP/1.1", 405),
        ("GET /livez HTTP/2.0", 505),
        ("GET /livez", 400),
        ("GET  /livez HTTP/1.1", 400),
        ("GET /l\xefvez HTTP/1.1", 400),
        ("\x16\x03\x01\x02\x00\x01\x00\x01", 400),
        ("", 400),
        (f"{'A' * 30} / HTTP/1.1", 400),
    ],
)
def test_what_is_no_such_request_is_refused(first: str, status: int) -> None:
    """Other methods, other versions, and what is no HTTP: somebody speaks TLS, for example."""
    found = read_request(head(first))
    assert isinstance(found, ProbeAnswer)
    assert found.status == status


@pytest.mark.parametrize(
    ("field", "takes"),
    [
        ("Accept: application/json", True),
        ("ACCEPT:text/plain;q=0.5, Application/JSON;q=0.1", True),
        ("Accept: application/json;q=0", False),
        ("Accept: application/json; q=0.00", False),
        ("Accept: */*", False),
        ("Accept: application/jsonp", False),
        ("Accepted: application/json", False),
    ],
)
def test_json_is_for_who_asks_for_it(*, field: str, takes: bool) -> None:
    """Browsers, curl and the kubelet get text."""
    found = read_request(head("GET /livez HTTP/1.1", "Host: pod", field, "X: y"))
    assert isinstance(found, ProbeRequest)
    assert found.takes_json is takes


@pytest.mark.parametrize(
    ("given", "whole"),
    [(b"GET / HTTP/1.1\r\n\r\n", True), (b"GET / HTTP/1.0\n\n", True), (b"GET / HTTP/1.1\r\n", False)],
)
def test_end_of_a_head_is_an_empty_line(*, given: bytes, whole: bool) -> None:
    """A bare line feed is let pass."""
    assert is_whole(given) is whole


def test_answer_ends_its_connection_and_is_kept_by_nobody() -> None:
    """An answer to HEAD says how long the body would be; 405 says what is answered."""
    answer = ProbeAnswer(status=200, body=b"ok\n").encoded().decode()
    assert answer == (
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 3\r\nCache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\nok\n"
    )
    assert ProbeAnswer(status=200, body=b"ok\n", has_body=False).encoded().decode() == answer.removesuffix("ok\n")
    assert b"\r\nAllow: GET, HEAD\r\n" in refusal(405, "no").encoded()
