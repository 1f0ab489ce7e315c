"""What cannot work, said before anything is opened: each refusal names the key, its value and the remedy."""

from __future__ import annotations

from collections.abc import Mapping

from consumer_membership.config.endpoints import parse_endpoints
from consumer_membership.config.environment import variable_of
from consumer_membership.config.refusals import NOT_OF_THE_CONSUMER_PROTOCOL, is_secret, refusal_of
from consumer_membership.config.security import sasl_settings, unhonoured
from consumer_membership.config.settings import SaslMechanism, SecurityProtocol
from consumer_membership.errors import ConfigurationError


def shown(key: str, value: object) -> object:
    """The value as it may be printed."""
    return "***" if value is not None and is_secret(key) else value


def servers_in(given: Mapping[str, object]) -> str:
    """The bootstrap list: `bootstrap.servers` and its older name `metadata.broker.list` together, as in librdkafka."""
    return ",".join(str(given[key]) for key in ("bootstrap.servers", "metadata.broker.list") if key in given)


def refuse_contradictions(given: Mapping[str, object]) -> None:
    """Raise `ConfigurationError` for the first thing in this configuration that cannot work.

    Single values' types and ranges are not judged here: the model does that for the keys of this package, librdkafka
    for the rest.
    """
    for key, value in given.items():
        remedy = refusal_of(key)
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
        for key, remedy in NOT_OF_THE_CONSUMER_PROTOCOL.items():
            if key in given:
                raise ConfigurationError(key, given[key], remedy)
    kind = given.get("group.protocol.type", "consumer")
    if kind != "consumer":
        remedy = "the members of a group of consumers are of the type consumer; remove the key"
        raise ConfigurationError("group.protocol.type", kind, remedy)
    for key, alternative in (
        ("group.instance.id", "leave it out for a dynamic member, or give this process its own id"),
        ("group.remote.assignor", "leave it out for the broker's default, or name one of the broker's assignors"),
    ):
        if key in given and not str(given[key]):
            raise ConfigurationError(key, given[key], f"it must not be empty; {alternative}")


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
