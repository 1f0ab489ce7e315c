"""Translate the Java consumer properties in options of spark-sql-kafka (`kafka.*`) to librdkafka's keys.

A query that changes from one source to the other keeps its options. Properties that librdkafka does not support raise
an error that names the replacement.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from consumer_membership.errors import ConfigurationError

#: Keys that have different names.
_RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "request.timeout.ms": "socket.timeout.ms",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
#: Keys without a counterpart and without effect on the records: sizes and timeouts of the Java client, and its metrics.
_WITHOUT_EFFECT = frozenset(
    {
        "auto.include.jmx.reporter",
        "default.api.timeout.ms",
        "exclude.internal.topics",
        "max.poll.interval.ms",
        "max.poll.records",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "socket.connection.setup.timeout.max.ms",
        "ssl.protocol",
        "ssl.enabled.protocols",
    }
)
#: Keys that are not supported, as in spark-sql-kafka, with the remedy for each.
_REFUSED = {
    "enable.auto.commit": "leave it out: offsets are committed when a batch is finished",
    "enable.auto.offset.store": "leave it out: offsets are committed when a batch is finished",
    "enable.partition.eof": "leave it out: the ends of partitions are detected automatically",
    "group.instance.id.pool": "leave it out: a query has one member; set group.instance.id",
    "interceptor.classes": "leave it out: Java classes cannot run here",
    "key.deserializer": "leave it out: keys are bytes; cast the column",
    "value.deserializer": "leave it out: values are bytes; cast the column",
}
_LOGIN = re.compile(
    r"^\s*(?P<module>[\w.]+)\s+(?:required|requisite|sufficient|optional)\s+(?P<options>.*);\s*$", re.DOTALL
)
_LOGIN_OPTION = re.compile(r"([\w.]+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s;\"']+))")
_WITH_A_PASSWORD = ("PlainLoginModule", "ScramLoginModule")
_IN_LIBRDKAFKA = "use librdkafka's keys with the same prefix: kafka.sasl.username and kafka.sasl.password"


def as_librdkafka(properties: Mapping[str, str]) -> dict[str, object]:
    """Return the configuration with librdkafka's keys; keys of librdkafka are kept.

    Raises:
        ConfigurationError: librdkafka does not support a property; its value is not shown if it may be a secret.
    """
    found: dict[str, object] = {}
    for key, value in properties.items():
        if key in _REFUSED:
            raise ConfigurationError(f"kafka.{key}", value, _REFUSED[key])
        if key in _WITHOUT_EFFECT:
            continue
        if key in TRANSLATED:
            found |= TRANSLATED[key](properties)
        else:
            found[_RENAMED.get(key, key)] = value
    return found


def _login(properties: Mapping[str, str]) -> dict[str, object]:
    """Return the user and the password in `sasl.jaas.config`."""
    read = _LOGIN.match(properties["sasl.jaas.config"])
    module = read["module"] if read else "(cannot be parsed)"
    if read is None or not module.endswith(_WITH_A_PASSWORD):
        remedy = f"this Java login module is not supported; {_IN_LIBRDKAFKA}"
        raise ConfigurationError("kafka.sasl.jaas.config", module, remedy)
    options = {
        name: re.sub(r"\\(.)", r"\1", quoted or single) or plain
        for name, quoted, single, plain in _LOGIN_OPTION.findall(read["options"])
    }
    if not options.keys() >= {"username", "password"}:
        raise ConfigurationError("kafka.sasl.jaas.config", module, f"it has no username or password; {_IN_LIBRDKAFKA}")
    return {"sasl.username": options["username"], "sasl.password": options["password"]}


def _truststore(properties: Mapping[str, str]) -> dict[str, object]:
    kind, path = properties.get("ssl.truststore.type", "JKS"), properties["ssl.truststore.location"]
    if kind.upper() != "PEM":
        remedy = (
            f"a Java truststore ({kind}) is not supported; export it as PEM (keytool -exportcert -rfc) and set "
            "kafka.ssl.ca.location, or kafka.ssl.truststore.type=PEM with that file"
        )
        raise ConfigurationError("kafka.ssl.truststore.location", path, remedy)
    return {"ssl.ca.location": path}


def _keystore(properties: Mapping[str, str]) -> dict[str, object]:
    kind, path = properties.get("ssl.keystore.type", "JKS").upper(), properties["ssl.keystore.location"]
    if kind == "PEM":
        return {"ssl.certificate.location": path, "ssl.key.location": path}
    if kind == "PKCS12":
        password = properties.get("ssl.keystore.password")
        return {"ssl.keystore.location": path, **({} if password is None else {"ssl.keystore.password": password})}
    remedy = (
        f"a Java keystore ({kind}) is not supported; convert it (keytool -importkeystore -deststoretype PKCS12) and "
        "set kafka.ssl.keystore.type=PKCS12"
    )
    raise ConfigurationError("kafka.ssl.keystore.location", path, remedy)


def _without_a_name(properties: Mapping[str, str]) -> dict[str, object]:
    """Translate an empty string, with which the Java client does not verify host names."""
    return {"ssl.endpoint.identification.algorithm": properties["ssl.endpoint.identification.algorithm"] or "none"}


def _nothing(_: Mapping[str, str]) -> dict[str, object]:
    """Return nothing: this key is read together with its file."""
    return {}


TRANSLATED: Mapping[str, Callable[[Mapping[str, str]], dict[str, object]]] = {
    "sasl.jaas.config": _login,
    "ssl.truststore.location": _truststore,
    "ssl.truststore.type": _nothing,
    "ssl.truststore.password": _nothing,
    "ssl.keystore.location": _keystore,
    "ssl.keystore.type": _nothing,
    "ssl.keystore.password": _nothing,
    "ssl.endpoint.identification.algorithm": _without_a_name,
}
