"""What cannot work, said before anything is opened: each refusal names the key, its value and the remedy.

A key that asks for something which this version does not do is refused, never ignored: a consumer that silently leaves
out encryption, or an assignor, is worse than one that does not start. What is refused for a security.protocol or a
mechanism only stands in `tls_and_sasl`.

Text comes first, whichever way it came in: what confluent-kafka cannot turn into UTF-8 it drops, or aborts the process
(group.id, any key); what stands behind a NUL it drops, too.
"""

from __future__ import annotations

from collections.abc import Mapping

from consumer_membership.config.environment import variable_of
from consumer_membership.config.keys import LONGEST, guess, is_secret, shown
from consumer_membership.config.settings import SaslMechanism, SecurityProtocol
from consumer_membership.config.tls_and_sasl import sasl_settings, unhonoured
from consumer_membership.config.values import parse_endpoints
from consumer_membership.errors import ArgumentTypeError, ConfigurationError
from consumer_membership.text import excerpt, problem_of, speakable

#: Objects, or lists that are checked one by one where they are read.
_NO_TEXTS = frozenset({"oauth_cb", "partition.assignment.strategy", "group.instance.id.pool"})
#: Keys for which librdkafka takes empty text as no value.
_UNSET_BY_EMPTY_TEXT = frozenset({"group.instance.id", "group.remote.assignor"})
#: What the consumer protocol has no use for: confluent-kafka refuses these too when group.protocol=consumer is given.
_NOT_OF_THE_CONSUMER_PROTOCOL: Mapping[str, str] = {
    "session.timeout.ms": (
        "Failed to create consumer: `session.timeout.ms` is not supported for `group.protocol=consumer` or share "
        "consumer. It is defined broker side: by group.consumer.session.timeout.ms, or consumer.session.timeout.ms for "
        "one group; remove the key"
    ),
    "partition.assignment.strategy": (
        "Failed to create consumer: `partition.assignment.strategy` is not supported for `group.protocol=consumer`. "
        "Use `group.remote.assignor` instead"
    ),
    "group.protocol.type": (
        "Failed to create consumer: `group.protocol.type` is not supported for `group.protocol=consumer` or share "
        "consumer; remove the key"
    ),
}
_REFUSED: Mapping[str, str] = {
    # Java's, which librdkafka refuses in these words.
    "ssl.truststore.location": (
        "Java TrustStores are not supported, use `ssl.ca.location` and a certificate file instead. See "
        "https://github.com/confluentinc/librdkafka/wiki/Using-SSL-with-librdkafka for more information."
    ),
    "sasl.jaas.config": (
        "Java JAAS configuration is not supported, see "
        "https://github.com/confluentinc/librdkafka/wiki/Using-SASL-with-librdkafka for more information. Give "
        "sasl.mechanism, sasl.username and sasl.password"
    ),
    # What an environment variable for oauth_cb would be read as.
    "oauth.cb": "a callback cannot come from an environment variable; give oauth_cb in the program",
}


def checked_keys(config: object) -> Mapping[str, object]:
    """The same configuration, all of whose keys are text that can name something.

    Raises:
        ArgumentTypeError: it is no mapping.
        ConfigurationError: a key is no text, or text that no key can be.
    """
    if not isinstance(config, Mapping):
        remedy = "the configuration is a dict of keys and values, such as {'bootstrap.servers': 'localhost:9092'}"
        raise ArgumentTypeError("config", config, remedy)
    for key, value in config.items():
        problem = _problem_of_key(key)
        if problem is not None:
            name = key if isinstance(key, str) else repr(key)
            raise ConfigurationError(speakable(name), "***" if is_secret(name.lower()) else value, problem)
    return config


def is_unset(key: str, value: object) -> bool:
    """Whether this value means that the key is not given: templates write empty text where they have no value."""
    return value is None or (key in _UNSET_BY_EMPTY_TEXT and value == "")


def _problem_of_key(key: object) -> str | None:
    if not isinstance(key, str):
        kind = type(key).__name__
        return f'No such configuration property: "{key!a}"; a key is text, such as "client.id", and no {kind}'
    if key.startswith("_") or key != key.lower():  # pydantic-settings would take them for its own, or for another key
        return f'No such configuration property: "{speakable(key)}"; {guess(key)}'
    return problem_of(key, None)


def refuse_texts(given: Mapping[str, object]) -> None:
    """Raise `ConfigurationError` for the first value that is not UTF-8, has a NUL, or is too long for its place.

    Raises:
        ArgumentTypeError: a value cannot be turned into text at all.
    """
    for key, value in given.items():
        if key in _NO_TEXTS and not isinstance(value, str):
            continue
        text = _text_of(key, value)
        problem = problem_of(text, LONGEST.get(key), is_secret=is_secret(key))
        if problem is not None:
            raise ConfigurationError(key, "***" if is_secret(key) else excerpt(text), problem)


def _text_of(key: str, value: object) -> str:
    try:
        return str(value)
    except Exception as error:
        remedy = f"expected configuration property value as type unicode string; its str() raised {error!r}"
        raise ArgumentTypeError(key, f"<{type(value).__name__}>", remedy) from error


def _refusal_of(key: str, value: str) -> str | None:
    """Why this version cannot honour the key, or this value of it; None if it can."""
    if key == "offset.store.method" and value.strip().lower() in {"none", "file"}:
        return (
            "offsets are committed to the group, never to a file; remove the key, and set enable.auto.commit=false "
            "where nothing is to be committed by itself"
        )
    if key.startswith("test.mock."):
        return (
            "the mock cluster would live inside the fetching handle, where the member cannot reach it; start it with a "
            "Producer and give its address as bootstrap.servers"
        )
    return _REFUSED.get(key)


def servers_in(given: Mapping[str, object]) -> str:
    """The bootstrap list: `bootstrap.servers` and its older name `metadata.broker.list` together, as in librdkafka."""
    return ",".join(str(given[key]) for key in ("bootstrap.servers", "metadata.broker.list") if key in given)


def refuse_contradictions(given: Mapping[str, object]) -> None:
    """Raise `ConfigurationError` for the first thing in this configuration that cannot work.

    Single values' types and ranges are not judged here: the model does that for the keys of this package, librdkafka
    for the rest.
    """
    for key, value in given.items():
        remedy = _refusal_of(key, str(value))
        if remedy is not None:
            raise ConfigurationError(key, shown(key, value), remedy)
    _refuse_group(given)
    _refuse_instance(given)


def _refuse_group(given: Mapping[str, object]) -> None:
    group = given.get("group.id")
    if group is None or not str(group):
        remedy = "Failed to create consumer: group.id must be set; give it in the configuration or in the environment "
        raise ConfigurationError("group.id", group, f"{remedy}variable {variable_of('group.id')}")
    if str(given.get("group.protocol")).lower() == "consumer":
        for key, remedy in _NOT_OF_THE_CONSUMER_PROTOCOL.items():
            if key in given:
                raise ConfigurationError(key, given[key], remedy)
    kind = given.get("group.protocol.type", "consumer")
    if kind != "consumer":
        remedy = "the members of a group of consumers are of the type consumer; remove the key"
        raise ConfigurationError("group.protocol.type", kind, remedy)


def _refuse_instance(given: Mapping[str, object]) -> None:
    """Where the instance id comes from must be clear, and a pool's members must not rob each other."""
    pool = given.get("group.instance.id.pool")
    if pool is None:
        return
    if "group.instance.id" in given:
        remedy = "it cannot be given beside group.instance.id; give the process its own id, or let it claim one"
        raise ConfigurationError("group.instance.id.pool", pool, remedy)
    policy = given.get("group.instance.id.conflict.policy")
    if str(policy).strip().lower() == "takeover":
        remedy = (
            "with group.instance.id.pool nobody can tell which holder is dead, so that a takeover might rob a living "
            "member; set it to wait or fail, or leave it out"
        )
        raise ConfigurationError("group.instance.id.conflict.policy", policy, remedy)


def refuse_connection(given: Mapping[str, object], protocol: SecurityProtocol, *, has_guardian: bool) -> None:
    """Raise `ConfigurationError` for the first thing that the membership's connections would not do as librdkafka's."""
    _refuse_servers(given, protocol)
    refusal = next(unhonoured(given, protocol), None)
    if refusal is not None:
        raise ConfigurationError(refusal.key, shown(refusal.key, given.get(refusal.key)), refusal.remedy)
    sasl = sasl_settings(given, protocol)
    if has_guardian and sasl is not None and sasl.mechanism is SaslMechanism.OAUTHBEARER:
        key = "crash.guardian.enable"
        remedy = (
            "the guardian has no tokens: one from before the death may have ended, and nobody is left whose oauth_cb "
            "could fetch another; remove the key (a dead member then leaves when its session ends), or use a "
            "sasl.mechanism with a password"
        )
        raise ConfigurationError(key, given.get(key), remedy)


def _refuse_servers(given: Mapping[str, object], protocol: SecurityProtocol) -> None:
    servers = servers_in(given)
    try:
        parse_endpoints(servers, protocol)
    except ValueError as refused:
        remedy = f"{refused}; give HOST:PORT, several ones separated by commas"
        raise ConfigurationError("bootstrap.servers", servers, remedy) from refused


def require_servers(given: Mapping[str, object]) -> None:
    """Raise `ConfigurationError` where no broker is named: for whoever asks now, and could only wait in vain.

    A consumer may be made without one, as in confluent-kafka: it waits for brokers that nobody names.
    """
    if not servers_in(given).strip(" ,"):
        remedy = "no broker is named; give at least one HOST:PORT, or set the environment variable "
        raise ConfigurationError(
            "bootstrap.servers", given.get("bootstrap.servers"), remedy + variable_of("bootstrap.servers")
        )
