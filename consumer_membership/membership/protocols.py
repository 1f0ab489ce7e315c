"""The one place that knows both protocols: which class a member's chosen protocol is."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from consumer_membership.membership.choice import ProtocolChoice
from consumer_membership.membership.consumer.protocol import ConsumerProtocol
from consumer_membership.membership.member_context import MemberContext
from consumer_membership.membership.protocol import MemberProtocol
from consumer_membership.types import GroupProtocol


def new_protocol(choice: ProtocolChoice, context: MemberContext, new_member_id: Callable[[], str]) -> MemberProtocol:
    """Create the chosen protocol in its initial state."""
    match choice.protocol:
        case GroupProtocol.CONSUMER:
            refuse_conversion = choice.settings.refuse_conversion
            return ConsumerProtocol(context, new_member_id=new_member_id, refuse_conversion=refuse_conversion)
        case GroupProtocol.CLASSIC:
            from consumer_membership.membership.classic.protocol import (  # noqa: PLC0415 - few members need it
                ClassicProtocol,
            )

            return ClassicProtocol(context, choice.settings.classic)
        case _:
            assert_never(choice.protocol)
