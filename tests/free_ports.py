"""Ports for servers that must be told their port before they start.

They are below the range from which the system takes the ports of clients and of servers that ask for any, so that no other
process is given one of them before its server has started.
"""

from __future__ import annotations

import random
import socket

FIRST, LAST = 15_000, 32_000
_RANDOM = random.SystemRandom()


def free_port() -> int:
    """Return a port on loopback on which nobody listens."""
    while True:
        port = _RANDOM.randint(FIRST, LAST)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
