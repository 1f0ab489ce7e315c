"""What can go wrong when a broker is asked for.

The room's own small tree::

    BrokerUnavailableError      no broker: which way was tried, with what, and what to do about it
    +-- WayMissingError         this machine lacks a way's ingredients; the next way may still do
"""


class BrokerUnavailableError(Exception):
    """No broker came up, or one that is up cannot do what was asked; the text says what to change."""


class WayMissingError(BrokerUnavailableError):
    """One way to a broker does not exist on this machine: no engine, no image, no Java, no jars.

    Apart from its base so that only an absent way leads to the next one. A broker that was started and failed is
    never hidden by another one that happens to work.
    """
