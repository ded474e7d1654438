"""Where outbound calls go: to the upstream that their ``:authority`` names."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

EVERY = "*"
_PLAIN_PORT, _TLS_PORT = 80, 443


class AddressRefusedError(ValueError):
    """An address that cannot be; one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether nobody outside this machine (or pod) can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def address_of(text: str, port: int | None = None) -> Address:
    """The address in ``HOST:PORT`` (``[HOST]:PORT`` for IPv6); ``port`` is for a text without one."""
    host, colon, number = text.rpartition(":")
    if not colon or (text.startswith("[") and text.endswith("]")):
        host, number = text, ""
    host = host.removeprefix("[").removesuffix("]")
    if not number and port is not None and host:
        return Address(host=host, port=port)
    if not host or not number.isascii() or not number.isdigit() or int(number) > 65535:
        raise AddressRefusedError(f"{text!r} is no HOST:PORT")
    return Address(host=host, port=int(number))


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstreams:
    """The upstreams by name; ``*`` is any name. ``by_authority``: a name that is not among them is an address itself."""

    named: Mapping[str, Address]
    by_authority: bool = False
    tls: bool = False

    def __bool__(self) -> bool:
        return bool(self.named) or self.by_authority

    @property
    def only(self) -> Address | None:
        """Where every call goes, if there is only one way."""
        return self.named[EVERY] if set(self.named) == {EVERY} and not self.by_authority else None

    def find(self, authority: str, ourselves: Address | None) -> Address:
        """Where a call with this ``:authority`` goes; raises :class:`AddressRefusedError` with what to change."""
        name = authority.rpartition("@")[2]
        host = name if name.endswith("]") else name.rpartition(":")[0] or name
        found = self.named.get(name) or self.named.get(host)
        if found is not None:
            return found
        if self.by_authority:
            address = address_of(name, _TLS_PORT if self.tls else _PLAIN_PORT)
            if ourselves is None or address.port != ourselves.port or not address.loopback:
                return address
        if EVERY in self.named:
            return self.named[EVERY]
        known = ", ".join(sorted(self.named)) or "none"
        raise AddressRefusedError(f"no upstream is named {name!r} (--upstream NAME=HOST:PORT; there are: {known})")


def upstream_of(text: str) -> tuple[str, Address]:
    """The name and address in ``NAME=HOST:PORT``; without a name it takes every call that no other takes."""
    name, equals, address = text.partition("=")
    if not equals:
        return EVERY, address_of(text)
    if not name:
        raise AddressRefusedError(f"{text!r} is no NAME=HOST:PORT")
    return name, address_of(address)
