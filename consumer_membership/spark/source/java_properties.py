"""Java's consumer properties, as options of spark-sql-kafka have them (`kafka.*`), in librdkafka's words.

A query that changes from one source to the other keeps its options; what cannot be had is refused with what to give.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from consumer_membership.errors import ConfigurationError

#: What both have under different names.
_RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "request.timeout.ms": "socket.timeout.ms",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
#: What has no counterpart and changes no record: how much Java's client does at a time, and its metrics.
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
#: What spark-sql-kafka refuses, too, and what to do about each.
_REFUSED = {
    "enable.auto.commit": "leave it out: offsets are committed when a batch is",
    "enable.auto.offset.store": "leave it out: offsets are committed when a batch is",
    "enable.partition.eof": "leave it out: the end of a partition is looked after",
    "group.instance.id.pool": "leave it out: a query has one member; name it by group.instance.id",
    "interceptor.classes": "leave it out: classes of Java are not run here",
    "key.deserializer": "leave it out: keys are bytes; cast the column",
    "value.deserializer": "leave it out: values are bytes; cast the column",
}
_LOGIN = re.compile(
    r"^\s*(?P<module>[\w.]+)\s+(?:required|requisite|sufficient|optional)\s+(?P<options>.*);\s*$", re.DOTALL
)
_LOGIN_OPTION = re.compile(r"([\w.]+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s;\"']+))")
_WITH_A_PASSWORD = ("PlainLoginModule", "ScramLoginModule")
_IN_LIBRDKAFKA = "give librdkafka's keys with the same prefix: kafka.sasl.username and kafka.sasl.password"


def as_librdkafka(properties: Mapping[str, str]) -> dict[str, object]:
    """The same configuration in librdkafka's keys; keys that are librdkafka's already stay as they are.

    Raises:
        ConfigurationError: one that Java's client has and librdkafka cannot have; its value is not shown where it may
            be a secret.
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
    """The user and the password in `sasl.jaas.config`."""
    read = _LOGIN.match(properties["sasl.jaas.config"])
    module = read["module"] if read else "(not to be read)"
    if read is None or not module.endswith(_WITH_A_PASSWORD):
        raise ConfigurationError("kafka.sasl.jaas.config", module, f"a login module of Java's; {_IN_LIBRDKAFKA}")
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
            f"a truststore of Java's ({kind}); export it as PEM (keytool -exportcert -rfc) and give "
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
        f"a keystore of Java's ({kind}); convert it (keytool -importkeystore -deststoretype PKCS12) and give "
        "kafka.ssl.keystore.type=PKCS12"
    )
    raise ConfigurationError("kafka.ssl.keystore.location", path, remedy)


def _without_a_name(properties: Mapping[str, str]) -> dict[str, object]:
    """An empty text is how Java's client is told not to compare names."""
    return {"ssl.endpoint.identification.algorithm": properties["ssl.endpoint.identification.algorithm"] or "none"}


def _nothing(_: Mapping[str, str]) -> dict[str, object]:
    """Read with the file that it is of."""
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
