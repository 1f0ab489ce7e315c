"""The part of HTTP that probes use: one request per connection, of which only the head is read, and one response.

RFC 9112 for the form, RFC 9110 for the codes. GET and HEAD only; each connection is closed after its response.
"""

from __future__ import annotations

import re
from http import HTTPStatus

from consumer_membership.light_dataclasses import dataclass

#: The longest head of a request, in bytes: kubelet's and Prometheus' have some hundred.
LONGEST_HEAD = 8192
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"

_FIRST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,20}) ([!-~]+) HTTP/([0-9])\.[0-9]")
#: A proxy's form of the target also contains the host.
_ABSOLUTE = re.compile(r"https?://[^/?#]*", re.IGNORECASE)
#: A weight of zero (RFC 9110, 12.4.2).
_REFUSES = re.compile(rb"q=0(\.0*)?")
#: A host name that no foreign site can have: a literal address, or this machine.
_OWN_HOST = re.compile(rb"(\d{1,3}(\.\d{1,3}){3}|\[[0-9a-f:.]+\]|localhost)(:\d*)?", re.IGNORECASE)
#: Header fields that browsers send and a page's script cannot leave out; probes, scrapers and curl send none of them.
_OF_BROWSERS = (b"accept-language", b"origin", b"referer", b"sec-fetch-site", b"sec-fetch-mode")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRequest:
    """A parsed request."""

    path: str
    is_head: bool = False
    is_verbose: bool = False
    takes_json: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAnswer:
    """A response; `has_body` is false if only the head was requested."""

    status: int
    body: bytes
    kind: str = TEXT
    has_body: bool = True

    def encoded(self) -> bytes:
        """The whole response."""
        lines = [
            f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}",
            f"Content-Type: {self.kind}",
            f"Content-Length: {len(self.body)}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            "Connection: close",
        ]
        if self.status == HTTPStatus.METHOD_NOT_ALLOWED:  # RFC 9110, 15.5.6
            lines.append("Allow: GET, HEAD")
        head = "\r\n".join(lines).encode() + b"\r\n\r\n"
        return head + self.body if self.has_body else head


def refusal(status: int, message: str) -> ProbeAnswer:
    """Return the response to a request that cannot be served."""
    return ProbeAnswer(status=status, body=f"{message}\n".encode())


TOO_LATE = refusal(408, "the request was not received in time")
TOO_LONG = refusal(431, f"the request head exceeds {LONGEST_HEAD} bytes")


def is_whole(head: bytes | bytearray) -> bool:
    """Whether the empty line that ends a head is there; a bare line feed is enough (RFC 9112, 2.2)."""
    return b"\r\n\r\n" in head or b"\n\n" in head


def read_request(head: bytes) -> ProbeRequest | ProbeAnswer:
    """Parse a whole head; return the request, or the refusal."""
    first, _, fields = head.lstrip(b"\r\n").partition(b"\n")
    match = _FIRST_LINE.fullmatch(first.rstrip(b"\r"))
    if match is None:
        return refusal(400, "this is not an HTTP/1.1 request")
    method, target, version = match[1], match[2].decode("ascii"), match[3]
    if version != b"1":
        return refusal(505, "only HTTP/1.0 and HTTP/1.1 are supported")
    if method not in (b"GET", b"HEAD"):
        return refusal(405, "only GET and HEAD are supported")
    if _may_be_another_site(fields):
        return refusal(421, "browsers must use an IP address or localhost, as a protection against DNS rebinding")
    path, _, query = _ABSOLUTE.sub("", target, count=1).partition("#")[0].partition("?")
    return ProbeRequest(
        path=path or "/",
        is_head=method == b"HEAD",
        is_verbose=any(part.partition("=")[0] == "verbose" for part in query.split("&")),
        takes_json=_takes_json(fields),
    )


def _may_be_another_site(fields: bytes) -> bool:
    """Whether a browser uses a host name, which another site may have pointed at this address (DNS rebinding).

    Programs may use any name: Prometheus and kubelet reach a service by its name if they are configured so.
    """
    names, hosts = set(), []
    for line in fields.split(b"\n"):
        name, _, value = line.partition(b":")
        names.add(name.strip().lower())
        if name.strip().lower() == b"host":
            hosts.append(value.strip())
    is_browser = not names.isdisjoint(_OF_BROWSERS)
    return is_browser and not all(_OWN_HOST.fullmatch(host) for host in hosts)


def _takes_json(fields: bytes) -> bool:
    """Whether `Accept` has JSON, with a weight above zero."""
    for line in fields.split(b"\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() != b"accept":
            continue
        for element in value.lower().split(b","):
            kind, *parameters = (part.strip() for part in element.split(b";"))
            if kind == b"application/json":
                return not any(_REFUSES.fullmatch(parameter) for parameter in parameters)
    return False
