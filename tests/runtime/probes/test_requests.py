"""The parts of a probe request that are read, and the requests that are rejected."""

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
    """Return the head of a request."""
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
def test_read_request_accepts_the_forms_of_clients_and_proxies(first: str, meant: ProbeRequest) -> None:
    """Clients, proxies and people write the target in different forms."""
    assert read_request(head(first, "Host: pod")) == meant


BROWSER = ("User-Agent: Mozilla/5.0 (X11; Linux x86_64)", "Accept: text/html", "Accept-Language: en")
OWN_HOSTS = ("10.0.0.7:8080", "127.0.0.1", "[::1]:8080", "localhost:8080", "LOCALHOST")
NAMES = ("attacker.example:8080", "orders.shop.svc:8080", "10.0.0.7.attacker.example", "localhost.attacker.example", "")


@pytest.mark.parametrize("host", OWN_HOSTS)
def test_read_request_accepts_a_browser_at_an_address_or_localhost(host: str) -> None:
    """A user opens a pod's address or a forwarded port."""
    assert read_request(head("GET /health HTTP/1.1", f"Host: {host}", *BROWSER)) == ProbeRequest(path="/health")


@pytest.mark.parametrize("host", NAMES)
@pytest.mark.parametrize(
    "mark", ["Accept-Language: en", "Origin: http://a.example", "Referer: http://a.example/", "Sec-Fetch-Site: none"]
)
def test_read_request_rejects_a_browser_at_a_host_name(host: str, mark: str) -> None:
    """DNS rebinding: a page of another site could read groups, topics and offsets under its own name."""
    found = read_request(head("GET /health HTTP/1.1", f"hOST: {host}", mark))
    assert isinstance(found, ProbeAnswer)
    assert (found.status, b"DNS rebinding" in found.body) == (421, True)


def test_read_request_rejects_a_browser_with_two_host_fields() -> None:
    """The second field may have the name of another site's page."""
    found = read_request(head("GET /health HTTP/1.1", "Host: 10.0.0.7", "Host: a.example", *BROWSER))
    assert isinstance(found, ProbeAnswer)
    assert found.status == 421


@pytest.mark.parametrize("host", [*OWN_HOSTS, *NAMES])
@pytest.mark.parametrize(
    "fields",
    [
        ("User-Agent: kube-probe/1.34", "Accept: */*", "Connection: close"),
        ("User-Agent: Prometheus/3.5.0", "Accept: text/plain;version=0.0.4", "Accept-Encoding: gzip"),
        ("User-Agent: curl/8.15.0", "Accept: */*"),
    ],
    ids=["kubelet", "Prometheus", "curl"],
)
def test_read_request_accepts_a_program_at_any_host_name(host: str, fields: tuple[str, ...]) -> None:
    """A probe may set its own host (httpGet.host), and a scraper uses the name of a service."""
    assert read_request(head("GET /livez HTTP/1.1", f"Host: {host}", *fields)) == ProbeRequest(path="/livez")


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
def test_read_request_rejects_other_methods_versions_and_protocols(first: str, status: int) -> None:
    """A TLS client, for example, does not send HTTP."""
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
def test_read_request_takes_json_only_if_the_client_accepts_it(*, field: str, takes: bool) -> None:
    """Browsers, curl and the kubelet receive text."""
    found = read_request(head("GET /livez HTTP/1.1", "Host: pod", field, "X: y"))
    assert isinstance(found, ProbeRequest)
    assert found.takes_json is takes


@pytest.mark.parametrize(
    ("given", "whole"),
    [(b"GET / HTTP/1.1\r\n\r\n", True), (b"GET / HTTP/1.0\n\n", True), (b"GET / HTTP/1.1\r\n", False)],
)
def test_is_whole_detects_the_empty_line_after_the_head(*, given: bytes, whole: bool) -> None:
    """A bare line feed is accepted as a line end."""
    assert is_whole(given) is whole


def test_probe_answer_closes_its_connection_and_is_not_cached() -> None:
    """A response to HEAD has the length of the body, and a 405 response lists the supported methods."""
    answer = ProbeAnswer(status=200, body=b"ok\n").encoded().decode()
    assert answer == (
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 3\r\nCache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\nok\n"
    )
    assert ProbeAnswer(status=200, body=b"ok\n", has_body=False).encoded().decode() == answer.removesuffix("ok\n")
    assert b"\r\nAllow: GET, HEAD\r\n" in refusal(405, "no").encoded()
