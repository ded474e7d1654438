"""Host names: whether one is loopback, and the host in a ``Host`` header."""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Whether ``host`` can only be reached from this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def host_of(authority: str) -> str:
    """The host in ``HOST`` or ``HOST:PORT``, without the brackets of an IPv6 address."""
    if authority.startswith("["):
        return authority[1:].partition("]")[0].lower()
    return authority.partition(":")[0].rstrip(".").lower()
