"""Every key of the installed librdkafka, and which part honors it: the fetch handle, the membership, both, or none.

The library itself prints its list. Most verdicts follow from the configuration's own tables; the others are listed
here, with a note for users. A key without a verdict fails `tests/config/test_librdkafka_keys.py`.
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
from consumer_membership.config.tls_and_sasl import HONOURED_BY_SASL, HONOURED_BY_TLS

_ROW = re.compile(r"^(?P<key>[a-z][\w.]*)\s*\|\s*(?P<of>[CP*])\s*\|", re.MULTILINE)
#: Prefixes that `tls_and_sasl` refuses where they would matter.
_REFUSED_PREFIXES = ("sasl.kerberos.", "sasl.oauthbearer.", "enable.sasl.oauthbearer.", "https.")


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


_C_FUNCTION = "set by a function of C, which confluent-kafka does not offer"
_INTERNAL = "librdkafka's own, not to be set"
_OF_SHARES = "of share consumers"
_LEGACY = "of librdkafka's old consumer, which nothing here is"
_ASKS_ANYWAY = "the membership always asks a broker for its versions, and needs Kafka 2.4"
_SAID: Mapping[str, tuple[Who, str]] = {
    "api.version.fallback.ms": (Who.FETCH, _ASKS_ANYWAY),
    "api.version.request": (Who.FETCH, _ASKS_ANYWAY),
    "api.version.request.timeout.ms": (
        Who.FETCH,
        "the membership's handshake has `socket.connection.setup.timeout.ms` as a whole",
    ),
    "auto.commit.enable": (Who.NOBODY, _LEGACY),
    "background_event_cb": (Who.REFUSED, _C_FUNCTION),
    "broker.address.ttl": (Who.FETCH, "the membership looks a name up each time that it connects"),
    "broker.version.fallback": (Who.FETCH, _ASKS_ANYWAY),
    "builtin.features": (Who.FETCH, "whether librdkafka has these features"),
    "check.crcs": (Who.FETCH, "the membership gets no records"),
    "client.dns.lookup": (
        Who.BOTH,
        "all addresses of a name are tried; canonical names of bootstrap servers are asked for with each connection",
    ),
    "closesocket_cb": (Who.REFUSED, _C_FUNCTION),
    "connect_cb": (Who.REFUSED, _C_FUNCTION),
    "connections.max.idle.ms": (
        Who.BOTH,
        "the coordinator's carries the heartbeats: below their interval it is made anew for each",
    ),
    "consume.callback.max.messages": (Who.NOBODY, _LEGACY),
    "consume_cb": (Who.REFUSED, _C_FUNCTION),
    "coordinator.query.interval.ms": (
        Who.NOBODY,
        "the handle is never subscribed; the membership looks up a coordinator that moved, or does not answer",
    ),
    "debug": (Who.BOTH, "contexts of the membership: `cgrp`, `consumer`, `broker`, `protocol`, `all`"),
    "default_topic_conf": (Who.REFUSED, "give the keys of topics beside the others"),
    "enable.metrics.push": (Who.MEMBERSHIP, "librdkafka's own are those of a handle that is a member of no group"),
    "enable.partition.eof": (Who.FETCH, ""),
    "enable.random.seed": (Who.FETCH, ""),
    "enabled_events": (Who.FETCH, "events that nobody takes"),
    "error_cb": (Who.FETCH, "what ends the membership comes from `poll`, too"),
    "fetch.error.backoff.ms": (Who.FETCH, ""),
    "fetch.max.bytes": (Who.FETCH, ""),
    "fetch.message.max.bytes": (Who.FETCH, ""),
    "fetch.min.bytes": (Who.FETCH, ""),
    "fetch.queue.backoff.ms": (Who.FETCH, "5 unless it is given"),
    "fetch.wait.max.ms": (Who.FETCH, "100 unless it is given"),
    "interceptors": (Who.REFUSED, _INTERNAL),
    "internal.termination.signal": (Who.FETCH, ""),
    "log.connection.close": (
        Who.FETCH,
        "the membership says at INFO when a coordinator's connection is lost, the rest at DEBUG",
    ),
    "log.queue": (Who.FETCH, ""),
    "log.thread.name": (Who.FETCH, "a logger shows the membership's thread itself"),
    "log_cb": (Who.REFUSED, f"{_C_FUNCTION}; give `logger`"),
    "log_level": (Who.BOTH, ""),
    "max.in.flight": (Who.FETCH, "the membership has a handful of requests under way"),
    "max.in.flight.requests.per.connection": (Who.FETCH, "likewise"),
    "max.partition.fetch.bytes": (Who.FETCH, ""),
    "max.poll.records": (Who.NOBODY, _OF_SHARES),
    "message.copy.max.bytes": (Who.FETCH, ""),
    "message.max.bytes": (Who.FETCH, "the membership's requests are small"),
    "metadata.max.age.ms": (Who.FETCH, "the membership keeps no topic's metadata, it asks each time"),
    "metadata.recovery.rebootstrap.trigger.ms": (
        Who.FETCH,
        "the membership asks the bootstrap servers as soon as no known broker can be reached",
    ),
    "metadata.recovery.strategy": (
        Who.BOTH,
        "`none`: once brokers are known no bootstrap server is asked any more",
    ),
    "oauthbearer_token_refresh_cb": (Who.REFUSED, f"{_C_FUNCTION}; give `oauth_cb`"),
    "offset.store.method": (
        Who.REFUSED,
        "unless it is `broker`: offsets are committed to the group, or not at all with `enable.auto.commit=false`",
    ),
    "offset.store.path": (Who.NOBODY, _LEGACY),
    "offset.store.sync.interval.ms": (Who.NOBODY, _LEGACY),
    "offset_commit_cb": (Who.REFUSED, f"{_C_FUNCTION}; give `on_commit`"),
    "opaque": (Who.REFUSED, _C_FUNCTION),
    "open_cb": (Who.REFUSED, _C_FUNCTION),
    "plugin.library.paths": (
        Who.FETCH,
        "interceptors see what is fetched; commits and the group are the membership's, of which they hear nothing",
    ),
    "queued.max.messages.kbytes": (Who.FETCH, ""),
    "queued.min.messages": (Who.FETCH, ""),
    "rebalance_cb": (Who.REFUSED, f"{_C_FUNCTION}; give `on_assign` and the others to `subscribe`"),
    "reconnect.backoff.jitter.ms": (Who.NOBODY, "deprecated in librdkafka"),
    "resolve_cb": (Who.REFUSED, _C_FUNCTION),
    "share.acknowledgement.mode": (Who.NOBODY, _OF_SHARES),
    "socket.blocking.max.ms": (Who.NOBODY, "deprecated in librdkafka"),
    "socket.max.fails": (
        Who.FETCH,
        "the membership gives a connection up with the first answer that does not come, librdkafka's default",
    ),
    "socket_cb": (Who.REFUSED, _C_FUNCTION),
    "ssl.certificate.verify_cb": (Who.REFUSED, _C_FUNCTION),
    "ssl.ca.certificate.stores": (Who.REFUSED, "with TLS"),
    "ssl.curves.list": (Who.REFUSED, "with TLS"),
    "ssl.engine.id": (Who.REFUSED, "with TLS"),
    "ssl.engine.location": (Who.REFUSED, "with TLS"),
    "ssl.keystore.location": (Who.REFUSED, "with TLS; give PEM files"),
    "ssl.keystore.password": (Who.REFUSED, "with TLS; give PEM files"),
    "ssl.providers": (Who.REFUSED, "with TLS"),
    "ssl.sigalgs.list": (Who.REFUSED, "with TLS"),
    "ssl_ca": (Who.REFUSED, _INTERNAL),
    "ssl_certificate": (Who.REFUSED, _INTERNAL),
    "ssl_engine_callback_data": (Who.REFUSED, _C_FUNCTION),
    "ssl_key": (Who.REFUSED, _INTERNAL),
    "statistics.interval.ms": (Who.BOTH, "the membership's numbers are in librdkafka's statistics"),
    "stats_cb": (Who.BOTH, "likewise"),
    "throttle_cb": (Who.FETCH, "it is not called for the membership's requests, which are small and few"),
    "topic.metadata.propagation.max.ms": (Who.FETCH, ""),
    "topic.metadata.refresh.fast.cnt": (Who.NOBODY, "deprecated in librdkafka"),
    "topic.metadata.refresh.fast.interval.ms": (
        Who.FETCH,
        "the membership looks for missing topics after 1 to 30 s",
    ),
    "topic.metadata.refresh.sparse": (Who.FETCH, "the membership asks for its own topics only"),
}


@cache
def keys() -> Mapping[str, str]:
    """The keys of the installed library, in its order, with their clients: `C` consumers, `P` producers, `*` both.

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
    found: dict[str, str] = {}
    for row in _ROW.finditer(text):
        if row["key"] != "Property":
            # Some are keys of topics, too: what is for consumers anywhere is for consumers.
            found[row["key"]] = row["of"] if found.get(row["key"], "P") == "P" else found[row["key"]]
    return found


def _library() -> Path:
    folder = Path(cimpl.__file__).parent / ".." / "confluent_kafka.libs"
    (found,) = folder.resolve().glob("librdkafka-*.so*")
    return found


def verdict(key: str) -> Verdict | None:
    """The verdict about this key; None if there is none."""
    if keys().get(key) == "P":
        return Verdict(Who.NOBODY, "a producer's")
    if key in _SAID:
        return Verdict(*_SAID[key])
    if key in READERS or key in HONOURED_BY_TLS or key in HONOURED_BY_SASL:
        return Verdict(Who.MEMBERSHIP if key in KEPT_FROM_THE_FETCHER else Who.BOTH, "")
    if key in KEPT_FROM_THE_FETCHER:
        return Verdict(Who.MEMBERSHIP, "")
    if key.startswith(_REFUSED_PREFIXES):
        kind = "GSSAPI" if key.startswith("sasl.kerberos.") else "OAUTHBEARER"
        words = "the membership does not speak it" if kind == "GSSAPI" else "tokens come from `oauth_cb`"
        return Verdict(Who.REFUSED, f"with {kind}: {words}")
    return None


def rows() -> Iterator[str]:
    """The rows of the documentation's table."""
    for key in sorted(keys()):
        found = verdict(key)
        assert found is not None, f"{key} has no verdict"
        if keys()[key] != "P":
            yield f"| `{key}` | {found.who.value} | {found.words} |"
