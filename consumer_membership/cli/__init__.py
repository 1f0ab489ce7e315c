"""The command line `consumer-membership`: arguments in, text or JSON out.

It uses the package as any application does, so what it shows is what the public API tells.
"""

from consumer_membership.cli.command import main

__all__ = ["main"]
