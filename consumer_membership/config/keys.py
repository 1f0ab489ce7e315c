"""Facts about keys by name: the known keys, which are secret, which are passed to librdkafka, and size limits.

librdkafka decides which keys exist; the list here is used only to suggest the intended key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from consumer_membership.text import LONGEST_ID_PREFIX, LONGEST_STRING

#: librdkafka's consumer keys (2.16), and the callbacks and the logger that confluent-kafka adds.
_LIBRDKAFKA = """
allow.auto.create.topics api.version.fallback.ms api.version.request api.version.request.timeout.ms
auto.commit.interval.ms auto.offset.reset bootstrap.servers broker.address.family broker.address.ttl
broker.version.fallback check.crcs client.dns.lookup client.id client.rack connections.max.idle.ms
coordinator.query.interval.ms debug enable.auto.commit enable.auto.offset.store enable.metrics.push
enable.partition.eof enable.random.seed enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification
error_cb fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms
fetch.wait.max.ms group.id group.instance.id group.protocol group.protocol.type group.remote.assignor
heartbeat.interval.ms https.ca.location https.ca.pem isolation.level log.connection.close log.queue log.thread.name
log_level logger max.in.flight max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms
message.copy.max.bytes message.max.bytes metadata.broker.list metadata.max.age.ms
metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy oauth_cb on_commit
partition.assignment.strategy plugin.library.paths queued.max.messages.kbytes queued.min.messages
receive.message.max.bytes reconnect.backoff.max.ms reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms
sasl.kerberos.keytab sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.principal
sasl.kerberos.service.name sasl.mechanism sasl.mechanisms sasl.oauthbearer.assertion.algorithm
sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
sasl.oauthbearer.assertion.jwt.template.file sasl.oauthbearer.assertion.private.key.file
sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.private.key.pem
sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
sasl.oauthbearer.client.id sasl.oauthbearer.client.secret sasl.oauthbearer.config sasl.oauthbearer.extensions
sasl.oauthbearer.grant.type sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.method
sasl.oauthbearer.scope sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url sasl.password
sasl.username security.protocol
session.timeout.ms socket.connection.setup.timeout.ms socket.keepalive.enable socket.max.fails
socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms
ssl.ca.certificate.stores ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem
ssl.cipher.suites ssl.crl.location ssl.curves.list ssl.endpoint.identification.algorithm ssl.engine.location
ssl.key.location ssl.key.password ssl.key.pem ssl.keystore.location ssl.keystore.password ssl.providers
ssl.sigalgs.list statistics.interval.ms stats_cb throttle_cb topic.blacklist
topic.metadata.propagation.max.ms topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms
topic.metadata.refresh.sparse
"""
#: The keys of this package.
_OWN = """
allow.commit.revoked crash.guardian.enable drain.timeout.ms group.instance.id.conflict.policy
group.instance.id.lock.directory group.instance.id.pool health.file health.http.address health.stuck.after.ms
heartbeat.active.interval.ms membership.threads ownership.lease.enable rebalance.callbacks recorder.directory
recorder.enable recorder.signal.enable
"""
OF_LIBRDKAFKA = tuple(_LIBRDKAFKA.split())
KEYS = (*OF_LIBRDKAFKA, *_OWN.split())

_SECRET_WORDS = ("password", "secret", "passphrase", "key.pem", "private.key", "sasl.oauthbearer.config", "jaas")
#: A callback may contain secrets (`functools.partial`), and a value given instead of a callback may be the token.
_SECRET_KEYS = frozenset({"oauth_cb", "oauth.cb"})

#: The values that are sent in Kafka's requests, with their greatest size in bytes of UTF-8.
LONGEST: Mapping[str, int] = {
    "group.id": LONGEST_STRING,
    "group.instance.id": LONGEST_ID_PREFIX,
    "group.remote.assignor": LONGEST_STRING,
    "client.id": LONGEST_ID_PREFIX,
    "client.rack": LONGEST_STRING,
}

# ---- which keys the fetcher receives ----

#: Keys of the membership, and keys that would make librdkafka a second member; never passed to the fetcher.
KEPT_FROM_THE_FETCHER = frozenset(
    {
        "group.instance.id",
        "group.instance.id.pool",
        "group.instance.id.conflict.policy",
        "group.instance.id.lock.directory",
        "group.protocol",
        "group.protocol.type",
        "group.remote.assignor",
        "partition.assignment.strategy",
        "allow.commit.revoked",
        "drain.timeout.ms",
        "membership.threads",
        "ownership.lease.enable",
        "rebalance.callbacks",
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "heartbeat.active.interval.ms",
        "max.poll.interval.ms",
        "enable.auto.commit",
        "auto.commit.interval.ms",
        "enable.auto.offset.store",
        "crash.guardian.enable",
        "health.file",
        "health.http.address",
        "health.stuck.after.ms",
        "recorder.directory",
        "recorder.enable",
        "recorder.signal.enable",
    }
)
#: Defaults of this package for fetching; a key that the user sets takes precedence.
FETCHER_DEFAULTS: Mapping[str, str] = {
    # librdkafka stops fetching for this time whenever its queue is full. Its default of 1000 ms limits a consumer to
    # 0.18 M msg/s where 5 ms gives 1.2 M msg/s (12 partitions, 100 B records, a 4.3.1 broker).
    "fetch.queue.backoff.ms": "5",
    # With the short backoff, a fetch at the end of the log may return a little earlier without a loss of throughput.
    "fetch.wait.max.ms": "100",
}
#: Values of the fetcher's handle that users cannot change. This package makes all commits and keeps the stored offsets:
#: librdkafka would store one offset per record, a tenth of the CPU time of a batch, which is never read. It would also
#: push metrics of a member that never joins, commits nothing and has no partitions, as a separate client.
FETCHER_FORCED: Mapping[str, str] = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.metrics.push": "false",
}
#: Prefixes of the keys that define the connection to the cluster, in addition to those of TLS and SASL.
OF_THE_CLUSTER = (
    "bootstrap.servers",
    "metadata.broker.list",
    "client.id",
    "security.protocol",
    "oauth_cb",
    "broker.address.family",
    "socket.",
    "reconnect.",
    "ssl.",
    "enable.ssl.",
    "sasl.",
)

#: Below this similarity a suggestion does not help: `home` resembles `scope`.
_ALIKE = 0.75


def guess(key: str, keys: Iterable[str] = KEYS) -> str:
    """Return the fix for an unknown key: a suggestion if a known key is similar enough."""
    near = get_close_matches(key.lower().replace("_", ".").replace("-", "."), keys, n=1, cutoff=_ALIKE)
    return f"did you mean {near[0]}?" if near else "no known key is similar; remove it"


def is_secret(key: str) -> bool:
    """Return whether the key's value must never be printed."""
    return key in _SECRET_KEYS or any(key_part in key for key_part in _SECRET_WORDS)


def shown(key: str, value: object) -> object:
    """Return the value for display: `***` for a secret."""
    return "***" if value is not None and is_secret(key) else value
