"""The keys that a consumer knows, to guess which one was meant; librdkafka decides which ones there are."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

#: librdkafka's of a consumer (2.16), and the callbacks and the logger that confluent-kafka adds.
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
sasl.kerberos.service.name sasl.mechanism sasl.mechanisms sasl.oauthbearer.client.id
sasl.oauthbearer.client.secret sasl.oauthbearer.config sasl.oauthbearer.extensions sasl.oauthbearer.method
sasl.oauthbearer.scope sasl.oauthbearer.token.endpoint.url sasl.password sasl.username security.protocol
session.timeout.ms socket.connection.setup.timeout.ms socket.keepalive.enable socket.max.fails
socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms
ssl.ca.certificate.stores ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem
ssl.cipher.suites ssl.crl.location ssl.curves.list ssl.endpoint.identification.algorithm ssl.engine.location
ssl.key.location ssl.key.password ssl.key.pem ssl.keystore.location ssl.keystore.password ssl.providers
ssl.sigalgs.list statistics.interval.ms stats_cb throttle_cb topic.blacklist
topic.metadata.propagation.max.ms topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms
topic.metadata.refresh.sparse
"""
#: This package's own.
_OWN = """
crash.guardian.enable group.instance.id.conflict.policy group.instance.id.pool heartbeat.active.interval.ms
"""
KEYS = tuple(f"{_LIBRDKAFKA} {_OWN}".split())

#: Below this likeness a guess is no help: `home` resembles `scope`.
_ALIKE = 0.75


def guess(key: str, keys: Iterable[str] = KEYS) -> str:
    """What to do about a key that nobody knows: the one that was meant, where one is near enough."""
    near = get_close_matches(key.lower().replace("_", ".").replace("-", "."), keys, n=1, cutoff=_ALIKE)
    return f"did you mean {near[0]}?" if near else "no key resembles it; remove it"
