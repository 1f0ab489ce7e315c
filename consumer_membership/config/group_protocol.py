"""Which group protocols a configuration allows (`group.protocol`), and which keys have no effect under one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from consumer_membership.assignors.assignor import Assignor
from consumer_membership.config.strategies import is_own, remote_assignor
from consumer_membership.errors import ConfigurationError
from consumer_membership.membership.choice import ProtocolSettings
from consumer_membership.membership.settings import ClassicSettings
from consumer_membership.types import GroupProtocol

_CONSUMER, _CLASSIC = GroupProtocol.CONSUMER, GroupProtocol.CLASSIC

#: The session timeout of a KIP-848 broker (group.consumer.session.timeout.ms): a slower heartbeat loses the membership.
BROKER_SESSION_TIMEOUT_MS = 45_000
#: heartbeat.interval.ms of a classic member, half of Java's and librdkafka's value. It bounds the time until an idle
#: member learns of a rebalance, and with it how long a group stalls when a member joins or leaves.
CLASSIC_HEARTBEAT_MS = 1_500
#: One lost heartbeat must not end the session.
_HEARTBEATS_A_SESSION = 3
#: Longer lists are shortened in messages.
_MOST_SHOWN = 5
#: One day means "never".
_NEVER_MS = 86_400_000

_STRATEGY, _SESSION, _HEARTBEAT = "partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms"
_POOL, _POLICY, _REMOTE = "group.instance.id.pool", "group.instance.id.conflict.policy", "group.remote.assignor"
_POLL, _BLACKLIST = "max.poll.interval.ms", "topic.blacklist"


def protocol_settings(
    given: Mapping[str, object],
    *,
    wanted: tuple[GroupProtocol, ...],
    strategies: Sequence[Assignor],
    session_timeout_ms: int,
    heartbeat_interval_ms: int | None,
    refresh_interval_ms: int,
    blacklist: tuple[str, ...] = (),
) -> ProtocolSettings:
    """Return the protocols that the member may use, and the settings of the classic protocol.

    Raises:
        ConfigurationError: no protocol can honor all keys.
    """
    protocols, reason = _fitting(given, wanted, strategies)
    alternative = "" if len(protocols) > 1 else _alternative(given, wanted, strategies)
    _check_times(given, protocols, session_timeout_ms, heartbeat_interval_ms)
    interval_ms = heartbeat_interval_ms or min(CLASSIC_HEARTBEAT_MS, session_timeout_ms // _HEARTBEATS_A_SESSION or 1)
    return ProtocolSettings(
        protocols=protocols,
        reason=reason,
        classic=ClassicSettings(
            assignors=tuple(strategies),
            session_timeout_s=session_timeout_ms / 1000,
            heartbeat_interval_s=interval_ms / 1000,
            refresh_interval_s=(refresh_interval_ms if refresh_interval_ms > 0 else _NEVER_MS) / 1000,
            blacklist=blacklist,
        ),
        alternative=alternative,
        refuse_conversion=len(wanted) > 1,
        notes={_CONSUMER: _in_vain_under_consumer(given, strategies), _CLASSIC: _in_vain_under_classic(given)},
    )


def _fitting(
    given: Mapping[str, object], wanted: tuple[GroupProtocol, ...], strategies: Sequence[Assignor]
) -> tuple[tuple[GroupProtocol, ...], str]:
    """Return the protocols that this configuration allows, and the reason."""
    own = next((assignor.name for assignor in strategies if is_own(assignor)), None)
    required_key = _needs_consumer(given)
    if wanted == (_CLASSIC,):
        if required_key is not None:
            raise _conflict(given, required_key, "set group.protocol to consumer or auto")
        return wanted, "group.protocol=classic"
    if wanted == (_CONSUMER,):
        return wanted, "group.protocol=consumer"
    if own is not None:
        if required_key is not None:
            remedy = (
                f"remove the assignor {own!r} from {_STRATEGY}, because custom assignors run in classic groups only"
            )
            raise _conflict(given, required_key, remedy)
        return (_CLASSIC,), f"group.protocol=auto; the assignor {own!r} of {_STRATEGY} runs in classic groups only"
    if required_key is not None:
        return (_CONSUMER,), f"group.protocol=auto; {required_key} works in groups of the consumer protocol only"
    if given.get(_BLACKLIST):
        reason = f"brokers resolve patterns and do not know {_BLACKLIST}"
        return (_CLASSIC,), f"group.protocol=auto; {reason}"
    return wanted, "group.protocol=auto"


def _alternative(given: Mapping[str, object], wanted: tuple[GroupProtocol, ...], strategies: Sequence[Assignor]) -> str:
    """Return what to change so that the member also tries the other protocol."""
    auto = "" if len(wanted) > 1 else "set group.protocol to auto"
    if wanted == (_CLASSIC,) or (len(wanted) > 1 and _needs_consumer(given) is None):
        own = next((assignor.name for assignor in strategies if is_own(assignor)), None)
        left_out = (
            f"remove the assignor {own!r} from {_STRATEGY}, because custom assignors run in classic groups only"
            if own
            else ""
        )
        if own is None and given.get(_BLACKLIST):
            left_out = f"remove {_BLACKLIST}={_shown(given[_BLACKLIST])}, which brokers do not know"
        return _joined(left_out, auto, "to use the consumer protocol if the group uses it")
    required_key = _needs_consumer(given)
    left_out = (
        f"remove {required_key}={_shown(given[required_key])}, which needs the consumer protocol, and set a "
        "different group.instance.id in each process"
        if required_key
        else ""
    )
    return _joined(left_out, auto, "to use the classic protocol if the consumer protocol is not available")


def _joined(first: str, second: str, aim: str) -> str:
    return f"{' and '.join(part for part in (first, second) if part)}, {aim}"


def _shown(value: object) -> str:
    """Return a value of the configuration for display: a list with commas, a long list shortened."""
    if not isinstance(value, list | tuple):
        return str(value)
    is_long = len(value) > _MOST_SHOWN
    return ",".join(map(str, [value[0], "...", value[-1]] if is_long else value))


def _needs_consumer(given: Mapping[str, object]) -> str | None:
    """Return the key that only the consumer protocol can honor: in a classic group the newest holder of an id wins."""
    if _POOL in given:
        return _POOL
    return _POLICY if str(given.get(_POLICY, "takeover")).strip().lower() != "takeover" else None


def _conflict(given: Mapping[str, object], key: str, remedy: str) -> ConfigurationError:
    why = (
        "in a classic group the newest member with an instance id fences the older one, and no request shows the holder"
    )
    return ConfigurationError(key, given[key], f"{why}; {remedy}, or give each process its own group.instance.id")


def _check_times(
    given: Mapping[str, object],
    protocols: tuple[GroupProtocol, ...],
    session_timeout_ms: int,
    heartbeat_interval_ms: int | None,
) -> None:
    if heartbeat_interval_ms is not None:
        if _CONSUMER in protocols and heartbeat_interval_ms >= BROKER_SESSION_TIMEOUT_MS:
            remedy = (
                f"the broker removes a member after {BROKER_SESSION_TIMEOUT_MS} ms without a heartbeat "
                "(group.consumer.session.timeout.ms); remove the key to use the broker's interval, or set a shorter one"
            )
            raise ConfigurationError(_HEARTBEAT, given[_HEARTBEAT], remedy)
        if _CLASSIC in protocols and heartbeat_interval_ms >= session_timeout_ms:
            remedy = f"the session would end before the next heartbeat; set at most a third of {_SESSION}"
            raise ConfigurationError(_HEARTBEAT, given[_HEARTBEAT], remedy)
    poll = given.get(_POLL)
    if _SESSION in given and poll is not None and float(str(poll)) < session_timeout_ms:
        remedy = f"Failed to create consumer: `{_POLL}`must be >= `{_SESSION}`; raise it, or lower the session timeout"
        raise ConfigurationError(_POLL, poll, remedy)


def _in_vain_under_consumer(given: Mapping[str, object], strategies: Sequence[Assignor]) -> tuple[str, ...]:
    notes = []
    if _SESSION in given:
        notes.append(
            f"{_SESSION}={given[_SESSION]} is not used under the consumer protocol: the broker decides by "
            "group.consumer.session.timeout.ms, or by consumer.session.timeout.ms for one group; change it there"
        )
    if _STRATEGY in given:
        by = given.get(_REMOTE) or remote_assignor(strategies)
        how = f"with its assignor {by}" if by else "with its default assignor"
        notes.append(
            f"{_STRATEGY}={given[_STRATEGY]} is not used under the consumer protocol: the broker assigns, {how}; "
            f"{_REMOTE} chooses another one"
        )
    return tuple(notes)


def _in_vain_under_classic(given: Mapping[str, object]) -> tuple[str, ...]:
    if _REMOTE not in given:
        return ()
    note = f"{_REMOTE}={given[_REMOTE]} is not used under the classic protocol: the group's leader assigns; "
    return (f"{note}{_STRATEGY} says how",)
