"""Settings of the group protocol for tests."""

from __future__ import annotations

from consumer_membership.assignors import BUILT_IN
from consumer_membership.membership.choice import ProtocolSettings
from consumer_membership.membership.settings import ClassicSettings
from consumer_membership.types import GroupProtocol

RANGE = ClassicSettings(assignors=(BUILT_IN["range"],))

CONSUMER_ONLY = ProtocolSettings(classic=RANGE, protocols=(GroupProtocol.CONSUMER,), reason="group.protocol=consumer")
CLASSIC_ONLY = ProtocolSettings(classic=RANGE, protocols=(GroupProtocol.CLASSIC,), reason="group.protocol=classic")
AUTO = ProtocolSettings(classic=RANGE)
