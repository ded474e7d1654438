"""Addresses of the form ``HOST:PORT``: parsing with helpful errors, and loopback hosts."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from urllib.parse import urlsplit

PORT_MAX = 65535
PORT_DIGITS_MAX = 5


class AddressError(ValueError):
    """An invalid address; the message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether only this machine (or pod) can reach it."""
        return is_loopback(self.host)


def parse_address(text: str, *, default_port: int | None = None, port_min: int = 0) -> Address:
    """Parse ``HOST:PORT`` (``[HOST]:PORT`` for IPv6); without a port, ``default_port`` is used if given.

    Raises
    ------
    AddressError
        If it is not an address, has a scheme, or its port is not between ``port_min`` and 65535.

    Examples
    --------
    >>> str(parse_address("[::1]:7600")), str(parse_address("orders", default_port=80))
    ('[::1]:7600', 'orders:80')
    """
    if "://" in text:
        plain = urlsplit(text).netloc or "HOST:PORT"
        if plain.endswith(":7601"):
            plain = f"{plain.removesuffix('7601')}7600 (7601 is the port of the web UI; that of gRPC is 7600 by default)"
        raise AddressError(f"{text!r} is a URL, not HOST:PORT: write {plain}")
    host, colon, number = text.rpartition(":")
    if not colon or (text.startswith("[") and text.endswith("]")):
        host, number = text, ""
    if ":" in host and not host.startswith("["):
        hint = f"; an IPv6 address stands in brackets: write [{host}]:{number}" if _is_ipv6(host) else ""
        raise AddressError(f"{text!r} is not a valid HOST:PORT{hint}")
    host = host.removeprefix("[").removesuffix("]")
    if not number and default_port is not None and host:
        return Address(host=host, port=default_port)
    if not host or not number.isascii() or not number.isdigit():
        raise AddressError(f"{text!r} is not a valid HOST:PORT")
    port = int(number[-PORT_DIGITS_MAX:]) if number[:-PORT_DIGITS_MAX].strip("0") == "" else PORT_MAX + 1
    if not port_min <= port <= PORT_MAX:
        raise AddressError(f"{text!r}: the port must be between {port_min} and {PORT_MAX}")
    return Address(host=host, port=port)


def _is_ipv6(host: str) -> bool:
    try:
        IPv6Address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether ``host`` can be reached only from this machine."""
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


def bare_host(host: str) -> str:
    """``host`` without the brackets of an IPv6 address."""
    return host.removeprefix("[").removesuffix("]")


def address_of(host: str, port: int) -> Address:
    """The address of a host, which may be in brackets."""
    return Address(host=bare_host(host), port=port)


def why_not_bound(error: OSError) -> str:
    """Why an address cannot be listened on, such as "address already in use"; asyncio's own text repeats the address."""
    if error.errno is None or isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    return os.strerror(error.errno).lower()
