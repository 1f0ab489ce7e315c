"""Simulated hosts: network namespaces with an address each, which are connected only by a virtual switch.

Processes on a host can reach the other hosts only by their addresses; each host has its own loopback. The switch is a
bridge in its own namespace, so that no packet can leave it. You can pull the cable of a host. You can also disconnect
two hosts from each other: each host then sends packets for the other host to a MAC address that does not exist, as
behind a firewall that drops packets.

This module needs Linux, root and iproute2.
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
#: A MAC address that no host has, from the range for local use.
_UNUSED_MAC = "02:00:00:00:00:fe"
_NEEDS = (
    "simulated hosts need Linux, root and iproute2 (the command `ip`): {missing}; "
    "provide it, or deselect these tests with --no-hosts"
)


class Host:
    """One host of the network; the other hosts reach it at `address`."""

    def __init__(self, space: str, number: int) -> None:
        self.space = space
        self.address = f"{_NETWORK}.{number}"
        self.port = f"port{number}"

    @property
    def path(self) -> str:
        """The file of the namespace."""
        return f"/run/netns/{self.space}"

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Return a command line that runs this command on the host."""
        return [_tool("ip"), "netns", "exec", self.space, *arguments]

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Move this thread to the host within the block.

        Processes, threads and sockets that it creates in the block stay on the host.
        """
        with Path("/proc/thread-self/ns/net").open() as home:
            enter(self.path)
            try:
                yield
            finally:
                _set_namespace(home.fileno())


class Network:
    """Hosts that can reach each other; created by `network`."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._switch = f"{prefix}-switch"
        self._hosts: dict[str, Host] = {}
        _ip("netns", "add", self._switch)
        _ip("-n", self._switch, "link", "add", "switch", "type", "bridge")
        _ip("-n", self._switch, "link", "set", "switch", "up")

    def host(self, name: str) -> Host:
        """Return the host with this name; create it if it does not exist."""
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
            options = ("lladdr", _UNUSED_MAC, "dev", "eth0", "nud", "permanent")
            _ip("-n", here.space, "neighbour", "replace", there.address, *options)

    def join(self, one: Host, other: Host) -> None:
        """Connect the two hosts again."""
        for here, there in ((one, other), (other, one)):
            _ip("-n", here.space, "neighbour", "delete", there.address, "dev", "eth0")

    def remove(self) -> None:
        """Remove the network; the sockets of remaining processes no longer work."""
        for space in [self._switch, *(host.space for host in self._hosts.values())]:
            _ip("netns", "delete", space)


@contextmanager
def network() -> Iterator[Network]:
    """Create a network without hosts, which is removed at the end of the block.

    Raises:
        RuntimeError: This machine does not support it; the text names the missing requirement.
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
    """Move this thread into a namespace, with all processes, threads and sockets that it creates afterwards."""
    with Path(path).open() as space:
        _set_namespace(space.fileno())


def _set_namespace(number: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(number, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def _remove_orphans() -> None:
    """Remove the namespaces of test processes that have ended."""
    for path in Path("/run/netns").glob(f"{_PREFIX}*-*"):
        owner = path.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdecimal() and not Path(f"/proc/{owner}").exists():
            _ip("netns", "delete", path.name)


def _tool(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if found is None:
        raise RuntimeError(_NEEDS.format(missing=f"`{name}` is not installed"))
    return found


def _ip(*arguments: str) -> None:
    subprocess.run([_tool("ip"), *arguments], check=True, capture_output=True, text=True)
