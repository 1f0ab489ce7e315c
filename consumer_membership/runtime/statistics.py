"""librdkafka's statistics with the truth about the group in them.

The fetching handle is no member, so the `cgrp` object of its statistics shows a consumer that never joined anything.
Its fields are filled from the member's view, with librdkafka's names and words where it has some.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from time import monotonic
from types import MappingProxyType

from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView

_S = MemberState
#: The words of librdkafka's `cgrp.join_state` (rd_kafka_cgrp_join_state_names) for each state of the member.
JOIN_STATES: Mapping[MemberState, str] = MappingProxyType(
    {
        _S.UNSUBSCRIBED: "init",
        _S.JOINING: "wait-join",
        _S.RECONCILE: "wait-assign-call",
        _S.ACK: "wait-sync",
        _S.STABLE: "steady",
        _S.FENCED: "wait-unassign-call",
        _S.STALE: "wait-unassign-call",
        _S.UNSUBSCRIBING: "wait-unassign-call",
        _S.FATAL: "init",
    }
)


def rewritten(statistics: str, view: MembershipView, assigned: int, rebalances: int) -> str:
    """The same statistics, about this member; ages in milliseconds, as librdkafka gives them."""
    document = json.loads(statistics)
    document["cgrp"] = {
        "state": "init" if view.coordinator is None else "up",
        "stateage": _age_ms(view.transitions[-1].at if view.transitions else None),
        "join_state": JOIN_STATES[view.state],
        "rebalance_age": _age_ms(_last_rebalance(view)),
        "rebalance_cnt": rebalances,
        "rebalance_reason": view.transitions[-1].reason if view.transitions else "",
        "assignment_size": assigned,
    }
    return json.dumps(document)


def _last_rebalance(view: MembershipView) -> float | None:
    return next((step.at for step in reversed(view.transitions) if step.new is _S.RECONCILE), None)


def _age_ms(moment: float | None) -> int:
    return 0 if moment is None else round((monotonic() - moment) * 1000)
