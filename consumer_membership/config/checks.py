"""Reject configurations that cannot work, before anything is opened; each error has the key, the value and the fix.

A key for a feature that this version does not have raises an error and is never ignored: a consumer that silently omits
encryption or an assignor is worse than one that does not start. `tls_and_sasl` rejects keys that depend on
security.protocol or on the mechanism.

Text is checked first, from any source. confluent-kafka drops text that is not UTF-8, or aborts the process (group.id,
any key), and drops the part of a text after a NUL.
"""

from __future__ import annotations

from collections.abc import Mapping

from consumer_membership.config.environment import variable_of
from consumer_membership.config.keys import LONGEST, guess, is_secret, shown
from consumer_membership.config.settings import SaslMechanism, SecurityProtocol
from consumer_membership.config.tls_and_sasl import sasl_settings, unhonored
from consumer_membership.config.values import parse_endpoints
from consumer_membership.errors import ArgumentTypeError, ConfigurationError
from consumer_membership.text import excerpt, problem_of, speakable

#: Keys whose values are objects, or lists whose elements are checked where they are read.
_NO_TEXTS = frozenset({"oauth_cb", "partition.assignment.strategy", "group.instance.id.pool"})
#: Keys for which librdkafka treats empty text as unset.
_UNSET_BY_EMPTY_TEXT = frozenset({"group.instance.id", "group.remote.assignor"})
#: Keys that do not apply to the consumer protocol; confluent-kafka also rejects them if group.protocol=consumer is set.
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
    # Java's keys; librdkafka rejects them with these messages.
    "ssl.truststore.location": (
        "Java TrustStores are not supported, use `ssl.ca.location` and a certificate file instead. See "
        "https://github.com/confluentinc/librdkafka/wiki/Using-SSL-with-librdkafka for more information."
    ),
    "sasl.jaas.config": (
        "Java JAAS configuration is not supported, see "
        "https://github.com/confluentinc/librdkafka/wiki/Using-SASL-with-librdkafka for more information. Set "
        "sasl.mechanism, sasl.username and sasl.password"
    ),
    # The key that an environment variable for oauth_cb would set.
    "oauth.cb": "a callback cannot come from an environment variable; set oauth_cb in the program",
}


def checked_keys(config: object) -> Mapping[str, object]:
    """Return the configuration if all of its keys are valid text.

    Raises:
        ArgumentTypeError: the configuration is not a mapping.
        ConfigurationError: a key is not text, or is text that cannot be a key.
    """
    if not isinstance(config, Mapping):
        remedy = "pass a dict of keys and values, such as {'bootstrap.servers': 'localhost:9092'}"
        raise ArgumentTypeError("config", config, remedy)
    for key, value in config.items():
        problem = _problem_of_key(key)
        if problem is not None:
            name = key if isinstance(key, str) else repr(key)
            raise ConfigurationError(speakable(name), "***" if is_secret(name.lower()) else value, problem)
    return config


def is_unset(key: str, value: object) -> bool:
    """Return whether this value means that the key is not set; templates write empty text for missing values."""
    return value is None or (key in _UNSET_BY_EMPTY_TEXT and value == "")


def _problem_of_key(key: object) -> str | None:
    if not isinstance(key, str):
        kind = type(key).__name__
        return f'No such configuration property: "{key!a}"; a key must be text, such as "client.id", not {kind}'
    # pydantic-settings would use such a key for itself or for another key
    if key.startswith("_") or key != key.lower():
        return f'No such configuration property: "{speakable(key)}"; {guess(key)}'
    return problem_of(key, None)


def refuse_texts(given: Mapping[str, object]) -> None:
    """Raise `ConfigurationError` for the first value that is not UTF-8, has a NUL, or is too long.

    Raises:
        ArgumentTypeError: a value cannot be converted to text.
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
    """Return why this version cannot honor the key or this value of it, or None."""
    if key == "offset.store.method" and value.strip().lower() in {"none", "file"}:
        return (
            "offsets are committed to the group, never to a file; remove the key, and set enable.auto.commit=false "
            "if offsets must not be committed automatically"
        )
    if key.startswith("test.mock."):
        return (
            "the mock cluster would run inside the fetching handle, where the member cannot reach it; start it with a "
            "Producer and set bootstrap.servers to its address"
        )
    return _REFUSED.get(key)


def servers_in(given: Mapping[str, object]) -> str:
    """Return the values of `bootstrap.servers` and its older name `metadata.broker.list` together, as in librdkafka."""
    return ",".join(str(given[key]) for key in ("bootstrap.servers", "metadata.broker.list") if key in given)


def refuse_contradictions(given: Mapping[str, object]) -> None:
    """Raise `ConfigurationError` for the first setting that cannot work.

    Types and ranges of single values are not checked here: the model checks the keys of this package, librdkafka the
    others.
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
        remedy = "Failed to create consumer: group.id must be set; set it in the configuration or in the environment "
        raise ConfigurationError("group.id", group, f"{remedy}variable {variable_of('group.id')}")
    if str(given.get("group.protocol")).lower() == "consumer":
        for key, remedy in _NOT_OF_THE_CONSUMER_PROTOCOL.items():
            if key in given:
                raise ConfigurationError(key, given[key], remedy)
    kind = given.get("group.protocol.type", "consumer")
    if kind != "consumer":
        remedy = "only the type consumer is supported; remove the key"
        raise ConfigurationError("group.protocol.type", kind, remedy)


def _refuse_instance(given: Mapping[str, object]) -> None:
    """Raise if the source of the instance id is ambiguous or missing, or if the policy does not fit the source."""
    pool = given.get("group.instance.id.pool")
    policy = given.get("group.instance.id.conflict.policy")
    name = str(policy).strip().lower()
    if pool is None:
        if name == "hand-over" and not given.get("group.instance.id"):
            remedy = (
                "hand-over needs an instance id to hand over; set group.instance.id or "
                "group.instance.id.pool, or remove the key"
            )
            raise ConfigurationError("group.instance.id.conflict.policy", policy, remedy)
        return
    if "group.instance.id" in given:
        remedy = "cannot be combined with group.instance.id; remove one of the two keys"
        raise ConfigurationError("group.instance.id.pool", pool, remedy)
    if name in ("takeover", "takeover-when-dead"):
        remedy = (
            f"{name} is not supported with group.instance.id.pool, because the live holder of an id cannot be "
            "identified; set wait, hand-over or fail, or remove the key"
        )
        raise ConfigurationError("group.instance.id.conflict.policy", policy, remedy)


def refuse_connection(given: Mapping[str, object], protocol: SecurityProtocol, *, has_guardian: bool) -> None:
    """Raise `ConfigurationError` for the first setting that the membership's connections cannot honor."""
    _refuse_servers(given, protocol)
    refusal = next(unhonored(given, protocol), None)
    if refusal is not None:
        raise ConfigurationError(refusal.key, shown(refusal.key, given.get(refusal.key)), refusal.remedy)
    sasl = sasl_settings(given, protocol)
    if has_guardian and sasl is not None and sasl.mechanism is SaslMechanism.OAUTHBEARER:
        key = "crash.guardian.enable"
        remedy = (
            "not supported with OAUTHBEARER: after the process has died, no process fetches a new token; remove "
            "the key (a dead member then leaves after its session timeout), or use a sasl.mechanism with a password"
        )
        raise ConfigurationError(key, given.get(key), remedy)


def _refuse_servers(given: Mapping[str, object], protocol: SecurityProtocol) -> None:
    servers = servers_in(given)
    try:
        parse_endpoints(servers, protocol)
    except ValueError as refused:
        remedy = f"{refused}; expected a comma-separated list of HOST:PORT"
        raise ConfigurationError("bootstrap.servers", servers, remedy) from refused


def require_servers(given: Mapping[str, object]) -> None:
    """Raise `ConfigurationError` if no broker is configured, for calls that need a broker now.

    A consumer can be created without brokers, as in confluent-kafka; it then waits.
    """
    if not servers_in(given).strip(" ,"):
        remedy = "no broker is configured; set at least one HOST:PORT, or the environment variable "
        raise ConfigurationError(
            "bootstrap.servers", given.get("bootstrap.servers"), remedy + variable_of("bootstrap.servers")
        )
