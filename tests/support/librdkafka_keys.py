"""List every key of the installed librdkafka and the part that honors it: the fetch handle, the membership, or both.

The library itself prints its list with ranges and defaults. Most verdicts follow from the configuration's own tables;
the others are listed here, with a note for users. A key without a verdict fails `tests/config/test_librdkafka_keys.py`.
"""

from __future__ import annotations

import ctypes
import re
import tempfile
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import cimpl

from consumer_membership.config.keys import KEPT_FROM_THE_FETCHER
from consumer_membership.config.model import READERS
from consumer_membership.config.tls_and_sasl import HONORED_BY_OIDC, HONORED_BY_SASL, HONORED_BY_TLS

_ROW = re.compile(
    r"^(?P<key>[a-z][\w.]*)\s*\|\s*(?P<of>[CP*])\s*\|\s*(?P<range>[^|]*?)\s*\|\s*(?P<default>[^|]*?)\s*\|", re.MULTILINE
)
#: Prefixes that `tls_and_sasl` refuses where they would matter.
_REFUSED_PREFIXES = ("enable.sasl.oauthbearer.",)


class Who(Enum):
    """The part that honors a key."""

    BOTH = "both connections"
    FETCH = "fetch only"
    MEMBERSHIP = "membership only"
    REFUSED = "refused"
    NOBODY = "no effect"


class Verdict(NamedTuple):
    """The part that honors one key, and the note for users."""

    who: Who
    words: str


_C_FUNCTION = "a C function sets it, which confluent-kafka does not offer"
_INTERNAL = "internal to librdkafka"
_OF_SHARES = "for share consumers"
_LEGACY = "for librdkafka's legacy consumer"
_ASKS_ANYWAY = "the membership always requests the broker's versions, and needs Kafka 2.4 or later"
_FOR_KINIT = "the membership uses the keytab itself, or else reads the ticket cache"
_SAID: Mapping[str, tuple[Who, str]] = {
    "api.version.fallback.ms": (Who.FETCH, _ASKS_ANYWAY),
    "api.version.request": (Who.FETCH, _ASKS_ANYWAY),
    "api.version.request.timeout.ms": (
        Who.FETCH,
        "`socket.connection.setup.timeout.ms` limits the membership's complete handshake",
    ),
    "auto.commit.enable": (Who.NOBODY, _LEGACY),
    "background_event_cb": (Who.REFUSED, _C_FUNCTION),
    "broker.address.ttl": (Who.FETCH, "the membership resolves the host name each time it connects"),
    "broker.version.fallback": (Who.FETCH, _ASKS_ANYWAY),
    "builtin.features": (Who.FETCH, "checks that librdkafka has these features"),
    "check.crcs": (Who.FETCH, "the membership receives no records"),
    "client.dns.lookup": (
        Who.BOTH,
        "all addresses of a name are tried; the canonical names of bootstrap servers are resolved for each connection",
    ),
    "closesocket_cb": (Who.REFUSED, _C_FUNCTION),
    "connect_cb": (Who.REFUSED, _C_FUNCTION),
    "connections.max.idle.ms": (
        Who.BOTH,
        "a value below the heartbeat interval closes the coordinator's connection between heartbeats",
    ),
    "consume.callback.max.messages": (Who.NOBODY, _LEGACY),
    "consume_cb": (Who.REFUSED, _C_FUNCTION),
    "coordinator.query.interval.ms": (
        Who.NOBODY,
        "the membership looks up the coordinator when it has moved or does not respond",
    ),
    "debug": (Who.BOTH, "contexts of the membership: `cgrp`, `consumer`, `broker`, `protocol`, `all`"),
    "default_topic_conf": (Who.REFUSED, "set topic keys like all other keys"),
    "enable.metrics.push": (Who.MEMBERSHIP, "librdkafka's handle is not a group member and pushes nothing"),
    "enable.partition.eof": (Who.FETCH, ""),
    "enable.random.seed": (Who.FETCH, ""),
    "enabled_events": (Who.FETCH, "these events are not used"),
    "error_cb": (Who.FETCH, "errors that end the membership are also returned by `poll`"),
    "fetch.error.backoff.ms": (Who.FETCH, ""),
    "fetch.max.bytes": (Who.FETCH, ""),
    "fetch.message.max.bytes": (Who.FETCH, ""),
    "fetch.min.bytes": (Who.FETCH, ""),
    "fetch.queue.backoff.ms": (Who.FETCH, "this package's default is 5"),
    "fetch.wait.max.ms": (Who.FETCH, "this package's default is 100"),
    "interceptors": (Who.REFUSED, _INTERNAL),
    "internal.termination.signal": (Who.FETCH, ""),
    "log.connection.close": (
        Who.FETCH,
        "the membership logs a lost coordinator connection at INFO, other connections at DEBUG",
    ),
    "log.queue": (Who.FETCH, ""),
    "log.thread.name": (Who.FETCH, "Python's logging can show the membership's thread"),
    "log_cb": (Who.REFUSED, f"{_C_FUNCTION}; set `logger`"),
    "log_level": (Who.BOTH, ""),
    "max.in.flight": (Who.FETCH, "the membership has few requests in flight"),
    "max.in.flight.requests.per.connection": (Who.FETCH, "the membership has few requests in flight"),
    "max.partition.fetch.bytes": (Who.FETCH, ""),
    "max.poll.records": (Who.NOBODY, _OF_SHARES),
    "message.copy.max.bytes": (Who.FETCH, ""),
    "message.max.bytes": (Who.FETCH, "the membership's requests are small"),
    "metadata.max.age.ms": (Who.FETCH, "the membership does not cache topic metadata"),
    "metadata.recovery.rebootstrap.trigger.ms": (
        Who.FETCH,
        "the membership uses the bootstrap servers as soon as no known broker can be reached",
    ),
    "metadata.recovery.strategy": (
        Who.BOTH,
        "`none`: the bootstrap servers are not used after the first metadata response",
    ),
    "oauthbearer_token_refresh_cb": (Who.REFUSED, f"{_C_FUNCTION}; set `oauth_cb`"),
    "offset.store.method": (
        Who.REFUSED,
        "except `broker`: offsets are committed only to the group; `enable.auto.commit=false` disables commits",
    ),
    "offset.store.path": (Who.NOBODY, _LEGACY),
    "offset.store.sync.interval.ms": (Who.NOBODY, _LEGACY),
    "offset_commit_cb": (Who.REFUSED, f"{_C_FUNCTION}; set `on_commit`"),
    "opaque": (Who.REFUSED, _C_FUNCTION),
    "open_cb": (Who.REFUSED, _C_FUNCTION),
    "plugin.library.paths": (
        Who.FETCH,
        "interceptors see fetched records, but neither commits nor group membership",
    ),
    "queued.max.messages.kbytes": (Who.FETCH, ""),
    "queued.min.messages": (Who.FETCH, ""),
    "rebalance_cb": (Who.REFUSED, f"{_C_FUNCTION}; pass `on_assign`, `on_revoke` and `on_lost` to `subscribe`"),
    "reconnect.backoff.jitter.ms": (Who.NOBODY, "deprecated in librdkafka"),
    "resolve_cb": (Who.REFUSED, _C_FUNCTION),
    "sasl.kerberos.kinit.cmd": (Who.FETCH, _FOR_KINIT),
    "sasl.kerberos.min.time.before.relogin": (Who.FETCH, _FOR_KINIT),
    "sasl.oauthbearer.metadata.authentication.type": (
        Who.BOTH,
        "with `sasl.oauthbearer.method=oidc`; `aws_iam` is refused: set an `oauth_cb`",
    ),
    "sasl.oauthbearer.method": (Who.BOTH, "`oidc` needs the extra `oidc`"),
    "share.acknowledgement.mode": (Who.NOBODY, _OF_SHARES),
    "socket.blocking.max.ms": (Who.NOBODY, "deprecated in librdkafka"),
    "socket.max.fails": (
        Who.FETCH,
        "the membership closes a connection after the first missing response, which is librdkafka's default",
    ),
    "socket_cb": (Who.REFUSED, _C_FUNCTION),
    "ssl.certificate.verify_cb": (Who.REFUSED, _C_FUNCTION),
    "ssl.ca.certificate.stores": (Who.REFUSED, "with TLS"),
    "ssl.curves.list": (Who.REFUSED, "with TLS"),
    "ssl.engine.id": (Who.REFUSED, "with TLS"),
    "ssl.engine.location": (Who.REFUSED, "with TLS"),
    "ssl.keystore.location": (Who.BOTH, "PKCS#12; needs the extra `pkcs12`"),
    "ssl.keystore.password": (Who.BOTH, "the password of `ssl.keystore.location`"),
    "ssl.providers": (Who.REFUSED, "with TLS"),
    "ssl.sigalgs.list": (Who.REFUSED, "with TLS"),
    "ssl_ca": (Who.REFUSED, _INTERNAL),
    "ssl_certificate": (Who.REFUSED, _INTERNAL),
    "ssl_engine_callback_data": (Who.REFUSED, _C_FUNCTION),
    "ssl_key": (Who.REFUSED, _INTERNAL),
    "statistics.interval.ms": (Who.BOTH, "librdkafka's statistics include the membership's group state"),
    "stats_cb": (Who.BOTH, "librdkafka's statistics include the membership's group state"),
    "throttle_cb": (Who.FETCH, "not called for the membership's few and small requests"),
    "topic.metadata.propagation.max.ms": (Who.FETCH, ""),
    "topic.metadata.refresh.fast.cnt": (Who.NOBODY, "deprecated in librdkafka"),
    "topic.metadata.refresh.fast.interval.ms": (
        Who.FETCH,
        "the membership checks for missing topics after 1 to 30 s",
    ),
    "topic.metadata.refresh.sparse": (Who.FETCH, "the membership requests only its own topics"),
}


class Property(NamedTuple):
    """A key of librdkafka: its clients (`C` consumers, `P` producers, `*` both), its range and its default."""

    of: str
    range: str
    default: str


@cache
def properties() -> Mapping[str, Property]:
    """Return the keys of the installed library in its order.

    The wheel's own copy of librdkafka prints its table to a file (`rd_kafka_conf_properties_show`).
    """
    library = ctypes.CDLL(str(_library()))
    libc = ctypes.CDLL(None)
    libc.fdopen.restype = ctypes.c_void_p
    library.rd_kafka_conf_properties_show.argtypes = [ctypes.c_void_p]
    libc.fflush.argtypes = [ctypes.c_void_p]
    with tempfile.TemporaryFile() as file:
        stream = libc.fdopen(file.fileno(), b"w")
        library.rd_kafka_conf_properties_show(stream)
        libc.fflush(stream)
        file.seek(0)
        text = file.read().decode()
    found: dict[str, Property] = {}
    for row in _ROW.finditer(text):
        key = row["key"]
        # Some keys are listed twice, also as keys of topics; a key for consumers in one list is for consumers.
        if key not in found or found[key].of == "P":
            found[key] = Property(row["of"], row["range"].replace(" .. ", " to "), row["default"])
    return found


def keys() -> Mapping[str, str]:
    """Return the keys of the installed library with their clients: `C` consumers, `P` producers, `*` both."""
    return {key: found.of for key, found in properties().items()}


def _library() -> Path:
    folder = Path(cimpl.__file__).parent / ".." / "confluent_kafka.libs"
    (found,) = folder.resolve().glob("librdkafka-*.so*")
    return found


def verdict(key: str) -> Verdict | None:
    """The verdict about this key; None if there is none."""
    if keys().get(key) == "P":
        return Verdict(Who.NOBODY, "for producers")
    if key in _SAID:
        return Verdict(*_SAID[key])
    if key in READERS or key in HONORED_BY_TLS or key in HONORED_BY_SASL:
        return Verdict(Who.MEMBERSHIP if key in KEPT_FROM_THE_FETCHER else Who.BOTH, "")
    if key in HONORED_BY_OIDC:
        return Verdict(Who.BOTH, "with `sasl.oauthbearer.method=oidc`")
    if key in KEPT_FROM_THE_FETCHER:
        return Verdict(Who.MEMBERSHIP, "")
    if key.startswith(_REFUSED_PREFIXES):
        return Verdict(Who.REFUSED, "with OAUTHBEARER: tokens come from `oauth_cb`")
    return None


def rows() -> Iterator[str]:
    """The rows of the documentation's table."""
    for key in sorted(keys()):
        found = verdict(key)
        assert found is not None, f"{key} has no verdict"
        of, span, default = properties()[key]
        if of != "P":
            yield f"| `{key}` | {found.who.value} | {span} | {default} | {found.words} |"
