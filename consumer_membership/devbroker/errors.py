"""The errors of the dev broker, in their own module because several modules raise them.

::

    BrokerUnavailableError      no broker is available; the message has the backend, the reason and the fix
    +-- BackendMissingError     a requirement of the backend is missing on this machine; another backend may work
    +-- PortTakenError          (tcp_ports) another program uses a port; other ports may work
"""


class BrokerUnavailableError(Exception):
    """No broker started, or a running broker does not match the request; the message has the fix."""


class BackendMissingError(BrokerUnavailableError):
    """A backend is not available on this machine: no engine, no image, no Java or no jars.

    Only this error leads to the next backend. The failure of a started broker is never hidden by another backend.
    """
