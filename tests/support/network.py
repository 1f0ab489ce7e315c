"""Hosts: network namespaces with an address each, joined by a switch without any other connection.

Processes of a host reach the other hosts only by their addresses; each host has its own loopback. The switch is a
bridge in its own namespace, so that no packet can leave. A cable can be pulled, and two hosts can be disconnected from
each other: each then sends the other's packets to a station that does not exist, as behind a firewall that drops
packets.

Needs Linux, root and iproute2.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "cm"
_NETWORK = "10.77.0"
_FIRST_HOST = 10
_CLONE_NEWNET = 0x40000000
#: Nobody's: of the range for local use.
_NOBODY = "02:00:00:00:00:fe"
_NEEDS = (
    "hosts are network namespaces, which take Linux, root and iproute2 (the command `ip`): {missing}; "
    "provide it, or leave these tests out with --no-hosts"
)


class Host:
    """One machine of the network; the other hosts reach it at `address`."""

    def __init__(self, space: str, number: int) -> None:
        self.space = space
        self.address = f"{_NETWORK}.{number}"
        self.port = f"port{number}"

    @property
    def path(self) -> str:
        """The namespace as a file."""
        return f"/run/netns/{self.space}"

    def command(self, words: Sequence[str]) -> list[str]:
        """A command line that runs this command on the host."""
        return [_tool("ip"), "netns", "exec", self.space, *words]

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Move this thread to the host for the block, with the processes, threads and sockets that it creates.

        They stay there.
        """
        with Path("/proc/thread-self/ns/net").open() as home:
            enter(self.path)
            try:
                yield
            finally:
                _set_namespace(home.fileno())


class Network:
    """Hosts that reach each other; made by `network`."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._switch = f"{prefix}-switch"
        self._hosts: dict[str, Host] = {}
        _ip("netns", "add", self._switch)
        _ip("-n", self._switch, "link", "add", "switch", "type", "bridge")
        _ip("-n", self._switch, "link", "set", "switch", "up")

    def host(self, name: str) -> Host:
        """The host with this name, created if needed."""
        if name not in self._hosts:
            host = self._hosts[name] = Host(f"{self._prefix}-{name}", _FIRST_HOST + len(self._hosts))
            _ip("netns", "add", host.space)
            _ip(
                "-n",
                self._switch,
                "link",
                "add",
                host.port,
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                host.space,
            )
            _ip("-n", self._switch, "link", "set", host.port, "master", "switch", "up")
            _ip("-n", host.space, "link", "set", "lo", "up")
            _ip("-n", host.space, "address", "add", f"{host.address}/24", "dev", "eth0")
            _ip("-n", host.space, "link", "set", "eth0", "up")
        return self._hosts[name]

    def pull(self, host: Host) -> None:
        """Pull the host's cable, which isolates it."""
        _ip("-n", self._switch, "link", "set", host.port, "down")

    def plug(self, host: Host) -> None:
        """Plug the host's cable in again."""
        _ip("-n", self._switch, "link", "set", host.port, "up")

    def cut(self, one: Host, other: Host) -> None:
        """Drop all packets between the two hosts, in both directions."""
        for here, there in ((one, other), (other, one)):
            words = ("lladdr", _NOBODY, "dev", "eth0", "nud", "permanent")
            _ip("-n", here.space, "neighbour", "replace", there.address, *words)

    def join(self, one: Host, other: Host) -> None:
        """Connect the two hosts again."""
        for here, there in ((one, other), (other, one)):
            _ip("-n", here.space, "neighbour", "delete", there.address, "dev", "eth0")

    def remove(self) -> None:
        """Remove the network with its links; remaining processes keep dead sockets."""
        for space in [self._switch, *(host.space for host in self._hosts.values())]:
            _ip("netns", "delete", space)


@contextmanager
def network() -> Iterator[Network]:
    """A network without hosts, for as long as the block lasts.

    Raises:
        RuntimeError: this machine does not support it; the text names what is missing.
    """
    _remove_orphans()
    try:
        made = Network(f"{_PREFIX}{os.getpid()}")
    except subprocess.CalledProcessError as failed:
        raise RuntimeError(_NEEDS.format(missing=failed.stderr.strip())) from failed
    try:
        yield made
    finally:
        made.remove()


def enter(path: str) -> None:
    """Move this thread, and all that it creates, into a namespace."""
    with Path(path).open() as space:
        _set_namespace(space.fileno())


def _set_namespace(number: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(number, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def _remove_orphans() -> None:
    """Remove the namespaces of ended test processes."""
    for path in Path("/run/netns").glob(f"{_PREFIX}*-*"):
        owner = path.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdecimal() and not Path(f"/proc/{owner}").exists():
            _ip("netns", "delete", path.name)


def _tool(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if found is None:
        raise RuntimeError(_NEEDS.format(missing=f"there is no `{name}` here"))
    return found


def _ip(*words: str) -> None:
    subprocess.run([_tool("ip"), *words], check=True, capture_output=True, text=True)
