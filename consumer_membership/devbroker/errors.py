"""The errors of the dev broker, in a module of their own because listeners, requests and readiness all raise them.

::

    BrokerUnavailableError      no broker: which backend was tried, with what, and what to do about it
    +-- BackendMissingError         this machine lacks a backend's ingredients; the next backend may still work
    +-- PortTakenError          (tcp_ports) another program listens on a port; other ports may work
"""


class BrokerUnavailableError(Exception):
    """No broker came up, or one that is up cannot do what was asked; the text says what to change."""


class BackendMissingError(BrokerUnavailableError):
    """One backend to a broker does not exist on this machine: no engine, no image, no Java, no jars.

    Apart from its base so that only an absent backend leads to the next one. A broker that was started and failed is
    never hidden by another one that happens to work.
    """
