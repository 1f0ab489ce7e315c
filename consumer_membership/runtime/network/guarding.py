"""The guardian of this process: one, for all members that have asked for it, and imported with the first of them."""

from __future__ import annotations

from consumer_membership.config import ConnectionSettings
from consumer_membership.runtime.guardian.guarded_member import GuardedMember
from consumer_membership.runtime.guardian.owner import Guardian
from consumer_membership.runtime.network.connection_security import ConnectionSecurity

#: Of the process, whose death it waits for: its members are all that `guarded` makes. Tests give others a guardian of
#: their own.
GUARDIAN = Guardian(follows_forks=True)


def guarded(connection: ConnectionSettings, security: ConnectionSecurity) -> GuardedMember:
    """An observer that tells this process's guardian of one member."""
    return GuardedMember(GUARDIAN, connection, security)
