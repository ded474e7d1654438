"""The name of a database connection, on which its two ends agree: the agent in the client, and the probe beside the server.

Both know the server's process (the server sends it when the session begins) and the client's address as the server sees it. If
a pooler or address translation is in between, the names differ, and nothing is tied. A loopback address is unique only within a
network namespace, which is then part of the name.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Link:
    """A connection: the server's process ``pid``, the client's ``address`` and ``port``, and a loopback's ``network``."""

    pid: int
    address: str
    port: int
    network: str = ""

    @property
    def server(self) -> str:
        """The resource that a client waits for after sending a statement; the server's process holds it."""
        return f"postgres process {self}"

    @property
    def client(self) -> str:
        """The resource that a server's process with an idle transaction waits for; the holders of the connection hold it."""
        return f"postgres client of process {self}"

    def __str__(self) -> str:
        """A readable, unique name."""
        within = f" in {self.network}" if self.network else ""
        return f"{self.pid} ({self.address}:{self.port}{within})"


def link(pid: int, address: str, port: int, network: str | None) -> Link | None:
    """The connection of this client; None if that does not identify one. ``network``: the client's, if known."""
    host = unique_host(address, network)
    return None if host is None or pid <= 0 or port <= 0 else Link(pid, host[0], port, host[1])


def unique_host(address: str, network: str | None) -> tuple[str, str] | None:
    """An IP address and the network that makes it unique (empty: none is needed); None if it is not valid or not unique."""
    try:
        known = ipaddress.ip_address(address)
    except ValueError:
        return None
    known = getattr(known, "ipv4_mapped", None) or known
    if not known.is_loopback:
        return str(known), ""
    return (str(known), network) if network else None
