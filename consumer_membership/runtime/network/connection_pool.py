"""The connections of all members on one loop: members with equal settings and credentials share them.

Settings are equal if every key of the connection is: servers, `client.id`, timeouts, TLS, SASL. A member that changes
its credentials leaves the others, and continues with connections of its own.
"""

from __future__ import annotations

from consumer_membership.config import ConnectionSettings
from consumer_membership.light_dataclasses import replace
from consumer_membership.runtime.network.connection_security import ConnectionSecurity
from consumer_membership.runtime.network.connections import Connections


class _Entry:
    """Connections, the settings that their users have in common, and the number of users."""

    def __init__(self, settings: ConnectionSettings, connections: Connections) -> None:
        self.settings = settings
        self.connections = connections
        self.users = 1


class ConnectionPool:
    """The shared connections of one loop; used on that loop only."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []

    def acquire(self, settings: ConnectionSettings, security: ConnectionSecurity) -> Connections:
        """Return the connections for these settings and the present credentials of `security`.

        Later connections use the TLS files as the latest user read them, because a file may have been renewed since an
        earlier user was created.
        """
        wanted = _with_credentials(settings, security)
        for entry in self._entries:
            if entry.settings == wanted:
                entry.users += 1
                entry.connections.security = security.copy()
                return entry.connections
        made = _Entry(wanted, Connections(settings, security.copy()))
        self._entries.append(made)
        return made.connections

    async def release(self, connections: Connections) -> None:
        """End the use by one user; the last one closes the connections."""
        if self._forget_user(connections):
            await connections.close()

    def change_credentials(
        self, connections: Connections, settings: ConnectionSettings, security: ConnectionSecurity
    ) -> Connections:
        """Return connections for the present credentials of one user.

        The only user keeps its connections, which authenticate with the new credentials from now on.
        """
        entry = self._entry(connections)
        if entry.users == 1:
            entry.settings = _with_credentials(settings, security)
            connections.security = security.copy()
            return connections
        entry.users -= 1
        return self.acquire(settings, security)

    def _forget_user(self, connections: Connections) -> bool:
        """Count one user less; return whether it was the last one."""
        entry = self._entry(connections)
        entry.users -= 1
        if entry.users:
            return False
        self._entries.remove(entry)
        return True

    def _entry(self, connections: Connections) -> _Entry:
        return next(entry for entry in self._entries if entry.connections is connections)


def _with_credentials(settings: ConnectionSettings, security: ConnectionSecurity) -> ConnectionSettings:
    return replace(settings, sasl=security.sasl)
