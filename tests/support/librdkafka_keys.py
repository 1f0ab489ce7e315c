"""List all keys of the installed librdkafka, each with the connections that honor it: fetch, membership, or both.

librdkafka prints the list, with ranges and defaults. For most keys, the tables of the configuration determine which
connection honors them. The other keys are listed here, with a note for users. If a key is missing,
`tests/config/test_librdkafka_keys.py` fails.
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
#: Prefixes of keys for which `tls_and_sasl` raises an error if they would have an effect.
_REFUSED_PREFIXES = ("enable.sasl.oauthbearer.",)


class HonoredBy(Enum):
    """The connections that honor a key; the value is the text in the documentation's table."""

    BOTH = "both connections"
    FETCH = "fetch only"
    MEMBERSHIP = "membership only"
    REFUSED = "refused"
    NONE = "no effect"


class Verdict(NamedTuple):
    """The connections that honor one key, and a note for users."""

    honored_by: HonoredBy
    note: str


_C_FUNCTION = "a C function sets it, which confluent-kafka does not offer"
_INTERNAL = "internal to librdkafka"
_FOR_SHARE_CONSUMERS = "for share consumers"
_LEGACY = "for librdkafka's legacy consumer"
_ALWAYS_REQUESTED = "the membership always requests the broker's versions, and needs Kafka 2.4 or later"
_FOR_KINIT = "the membership uses the keytab itself, or else reads the ticket cache"
_LISTED: Mapping[str, tuple[HonoredBy, str]] = {
    "api.version.fallback.ms": (HonoredBy.FETCH, _ALWAYS_REQUESTED),
    "api.version.request": (HonoredBy.FETCH, _ALWAYS_REQUESTED),
    "api.version.request.timeout.ms": (
        HonoredBy.FETCH,
        "`socket.connection.setup.timeout.ms` limits the membership's complete handshake",
    ),
    "auto.commit.enable": (HonoredBy.NONE, _LEGACY),
    "background_event_cb": (HonoredBy.REFUSED, _C_FUNCTION),
    "broker.address.ttl": (HonoredBy.FETCH, "the membership resolves the host name each time it connects"),
    "broker.version.fallback": (HonoredBy.FETCH, _ALWAYS_REQUESTED),
    "builtin.features": (HonoredBy.FETCH, "checks that librdkafka has these features"),
    "check.crcs": (HonoredBy.FETCH, "the membership receives no records"),
    "client.dns.lookup": (
        HonoredBy.BOTH,
        "all addresses of a name are tried; the canonical names of bootstrap servers are resolved for each connection",
    ),
    "closesocket_cb": (HonoredBy.REFUSED, _C_FUNCTION),
    "connect_cb": (HonoredBy.REFUSED, _C_FUNCTION),
    "connections.max.idle.ms": (
        HonoredBy.BOTH,
        "a value below the heartbeat interval closes the coordinator's connection between heartbeats",
    ),
    "consume.callback.max.messages": (HonoredBy.NONE, _LEGACY),
    "consume_cb": (HonoredBy.REFUSED, _C_FUNCTION),
    "coordinator.query.interval.ms": (
        HonoredBy.NONE,
        "the membership looks up the coordinator when it has moved or does not respond",
    ),
    "debug": (HonoredBy.BOTH, "contexts of the membership: `cgrp`, `consumer`, `broker`, `protocol`, `all`"),
    "default_topic_conf": (HonoredBy.REFUSED, "set topic keys like all other keys"),
    "enable.metrics.push": (HonoredBy.MEMBERSHIP, "librdkafka's handle is not a group member and pushes nothing"),
    "enable.partition.eof": (HonoredBy.FETCH, ""),
    "enable.random.seed": (HonoredBy.FETCH, ""),
    "enabled_events": (HonoredBy.FETCH, "these events are not used"),
    "error_cb": (HonoredBy.FETCH, "errors that end the membership are also returned by `poll`"),
    "fetch.error.backoff.ms": (HonoredBy.FETCH, ""),
    "fetch.max.bytes": (HonoredBy.FETCH, ""),
    "fetch.message.max.bytes": (HonoredBy.FETCH, ""),
    "fetch.min.bytes": (HonoredBy.FETCH, ""),
    "fetch.queue.backoff.ms": (HonoredBy.FETCH, "this package's default is 5"),
    "fetch.wait.max.ms": (HonoredBy.FETCH, "this package's default is 100"),
    "interceptors": (HonoredBy.REFUSED, _INTERNAL),
    "internal.termination.signal": (HonoredBy.FETCH, ""),
    "log.connection.close": (
        HonoredBy.FETCH,
        "the membership logs a lost coordinator connection at INFO, other connections at DEBUG",
    ),
    "log.queue": (HonoredBy.FETCH, ""),
    "log.thread.name": (HonoredBy.FETCH, "Python's logging can show the membership's thread"),
    "log_cb": (HonoredBy.REFUSED, f"{_C_FUNCTION}; set `logger`"),
    "log_level": (HonoredBy.BOTH, ""),
    "max.in.flight": (HonoredBy.FETCH, "the membership has few requests in flight"),
    "max.in.flight.requests.per.connection": (HonoredBy.FETCH, "the membership has few requests in flight"),
    "max.partition.fetch.bytes": (HonoredBy.FETCH, ""),
    "max.poll.records": (HonoredBy.NONE, _FOR_SHARE_CONSUMERS),
    "message.copy.max.bytes": (HonoredBy.FETCH, ""),
    "message.max.bytes": (HonoredBy.FETCH, "the membership's requests are small"),
    "metadata.max.age.ms": (HonoredBy.FETCH, "the membership does not cache topic metadata"),
    "metadata.recovery.rebootstrap.trigger.ms": (
        HonoredBy.FETCH,
        "the membership uses the bootstrap servers as soon as no known broker can be reached",
    ),
    "metadata.recovery.strategy": (
        HonoredBy.BOTH,
        "`none`: the bootstrap servers are not used after the first metadata response",
    ),
    "oauthbearer_token_refresh_cb": (HonoredBy.REFUSED, f"{_C_FUNCTION}; set `oauth_cb`"),
    "offset.store.method": (
        HonoredBy.REFUSED,
        "except `broker`: offsets are committed only to the group; `enable.auto.commit=false` disables commits",
    ),
    "offset.store.path": (HonoredBy.NONE, _LEGACY),
    "offset.store.sync.interval.ms": (HonoredBy.NONE, _LEGACY),
    "offset_commit_cb": (HonoredBy.REFUSED, f"{_C_FUNCTION}; set `on_commit`"),
    "opaque": (HonoredBy.REFUSED, _C_FUNCTION),
    "open_cb": (HonoredBy.REFUSED, _C_FUNCTION),
    "plugin.library.paths": (
        HonoredBy.FETCH,
        "interceptors see fetched records, but neither commits nor group membership",
    ),
    "queued.max.messages.kbytes": (HonoredBy.FETCH, ""),
    "queued.min.messages": (HonoredBy.FETCH, ""),
    "rebalance_cb": (HonoredBy.REFUSED, f"{_C_FUNCTION}; pass `on_assign`, `on_revoke` and `on_lost` to `subscribe`"),
    "reconnect.backoff.jitter.ms": (HonoredBy.NONE, "deprecated in librdkafka"),
    "resolve_cb": (HonoredBy.REFUSED, _C_FUNCTION),
    "sasl.kerberos.kinit.cmd": (HonoredBy.FETCH, _FOR_KINIT),
    "sasl.kerberos.min.time.before.relogin": (HonoredBy.FETCH, _FOR_KINIT),
    "sasl.oauthbearer.metadata.authentication.type": (
        HonoredBy.BOTH,
        "with `sasl.oauthbearer.method=oidc`; `aws_iam` is refused: set an `oauth_cb`",
    ),
    "sasl.oauthbearer.method": (HonoredBy.BOTH, "`oidc` needs the extra `oidc`"),
    "share.acknowledgement.mode": (HonoredBy.NONE, _FOR_SHARE_CONSUMERS),
    "socket.blocking.max.ms": (HonoredBy.NONE, "deprecated in librdkafka"),
    "socket.max.fails": (
        HonoredBy.FETCH,
        "the membership closes a connection after the first missing response, which is librdkafka's default",
    ),
    "socket_cb": (HonoredBy.REFUSED, _C_FUNCTION),
    "ssl.certificate.verify_cb": (HonoredBy.REFUSED, _C_FUNCTION),
    "ssl.ca.certificate.stores": (HonoredBy.REFUSED, "with TLS"),
    "ssl.curves.list": (HonoredBy.REFUSED, "with TLS"),
    "ssl.engine.id": (HonoredBy.REFUSED, "with TLS"),
    "ssl.engine.location": (HonoredBy.REFUSED, "with TLS"),
    "ssl.keystore.location": (HonoredBy.BOTH, "PKCS#12; needs the extra `pkcs12`"),
    "ssl.keystore.password": (HonoredBy.BOTH, "the password of `ssl.keystore.location`"),
    "ssl.providers": (HonoredBy.REFUSED, "with TLS"),
    "ssl.sigalgs.list": (HonoredBy.REFUSED, "with TLS"),
    "ssl_ca": (HonoredBy.REFUSED, _INTERNAL),
    "ssl_certificate": (HonoredBy.REFUSED, _INTERNAL),
    "ssl_engine_callback_data": (HonoredBy.REFUSED, _C_FUNCTION),
    "ssl_key": (HonoredBy.REFUSED, _INTERNAL),
    "statistics.interval.ms": (HonoredBy.BOTH, "librdkafka's statistics include the membership's group state"),
    "stats_cb": (HonoredBy.BOTH, "librdkafka's statistics include the membership's group state"),
    "throttle_cb": (HonoredBy.FETCH, "not called for the membership's few and small requests"),
    "topic.metadata.propagation.max.ms": (HonoredBy.FETCH, ""),
    "topic.metadata.refresh.fast.cnt": (HonoredBy.NONE, "deprecated in librdkafka"),
    "topic.metadata.refresh.fast.interval.ms": (
        HonoredBy.FETCH,
        "the membership checks for missing topics after 1 to 30 s",
    ),
    "topic.metadata.refresh.sparse": (HonoredBy.FETCH, "the membership requests only its own topics"),
}


class Property(NamedTuple):
    """A key of librdkafka: its clients (`C` consumers, `P` producers, `*` both), its range and its default."""

    of: str
    range: str
    default: str


@cache
def properties() -> Mapping[str, Property]:
    """Return the keys of the installed library, in its order.

    librdkafka, as included in confluent-kafka's wheel, prints its table to a file (`rd_kafka_conf_properties_show`).
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
        # Some keys are listed twice, also as topic keys. A key is for consumers if one of its entries is.
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
    """Return the verdict for this key; None if the key is unknown."""
    if keys().get(key) == "P":
        return Verdict(HonoredBy.NONE, "for producers")
    if key in _LISTED:
        return Verdict(*_LISTED[key])
    if key in READERS or key in HONORED_BY_TLS or key in HONORED_BY_SASL:
        return Verdict(HonoredBy.MEMBERSHIP if key in KEPT_FROM_THE_FETCHER else HonoredBy.BOTH, "")
    if key in HONORED_BY_OIDC:
        return Verdict(HonoredBy.BOTH, "with `sasl.oauthbearer.method=oidc`")
    if key in KEPT_FROM_THE_FETCHER:
        return Verdict(HonoredBy.MEMBERSHIP, "")
    if key.startswith(_REFUSED_PREFIXES):
        return Verdict(HonoredBy.REFUSED, "with OAUTHBEARER: tokens come from `oauth_cb`")
    return None


def rows() -> Iterator[str]:
    """Yield the rows of the documentation's table."""
    for key in sorted(keys()):
        found = verdict(key)
        assert found is not None, f"{key} has no verdict"
        of, span, default = properties()[key]
        if of != "P":
            yield f"| `{key}` | {found.honored_by.value} | {span} | {default} | {found.note} |"
