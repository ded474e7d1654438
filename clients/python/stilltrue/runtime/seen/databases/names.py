"""What the two ends of a connection to a database call it: the agent in the client, and the probe beside the server.

Both know the server's process (the driver is told at the start) and the client's address as the server sees it, unless a pooler
or a translation of addresses is in between: then the names differ, and nothing is tied. An address of the loopback is of one
network alone, which is then part of the name.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Link:
    """One connection: the server's process ``pid``, the client's ``address`` and ``port``, the ``network`` of a loopback."""

    pid: int
    address: str
    port: int
    network: str = ""

    @property
    def server(self) -> str:
        """What a client waits for that has sent a statement: held by the server's process."""
        return f"postgres process {self}"

    @property
    def client(self) -> str:
        """What a server's process waits for that has a transaction open and nothing to do: held by who has the connection."""
        return f"postgres client of process {self}"

    def __str__(self) -> str:
        """For people, and unique."""
        within = f" in {self.network}" if self.network else ""
        return f"{self.pid} ({self.address}:{self.port}{within})"


def link(pid: int, address: str, port: int, network: str | None) -> Link | None:
    """The connection of this client; None where that names no connection. ``network``: the client's, if known."""
    try:
        known = ipaddress.ip_address(address)
    except ValueError:
        return None
    known = getattr(known, "ipv4_mapped", None) or known
    if pid <= 0 or port <= 0 or (known.is_loopback and not network):
        return None
    return Link(pid, str(known), port, (network or "") if known.is_loopback else "")
