"""Routes outbound calls to the upstream that their ``:authority`` names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from detector.ops.address import Address, AddressError, parse_address

EVERY = "*"
BY_AUTHORITY = "authority-routing"
"""In a list of upstreams: calls go to the address that their authority names."""
_PLAIN_PORT, _TLS_PORT = 80, 443


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstreams:
    """The upstreams by name; ``*`` matches any. With ``by_authority``, unknown names are addresses."""

    named: Mapping[str, Address]
    by_authority: bool = False
    tls: bool = False

    def __bool__(self) -> bool:
        return bool(self.named) or self.by_authority

    @property
    def only(self) -> Address | None:
        """The upstream of every call, if there is only one."""
        return self.named[EVERY] if set(self.named) == {EVERY} and not self.by_authority else None

    def find(self, authority: str, own_address: Address | None) -> Address:
        """Return the upstream for this ``:authority``, never ``own_address``. Raises :class:`AddressError`."""
        name = authority.rpartition("@")[2]
        host = name if name.endswith("]") else name.rpartition(":")[0] or name
        found = self.named.get(name) or self.named.get(host)
        if found is not None:
            return found
        if self.by_authority:
            address = parse_address(name, default_port=_TLS_PORT if self.tls else _PLAIN_PORT)
            if own_address is None or address.port != own_address.port or not address.loopback:
                return address
        if EVERY in self.named:
            return self.named[EVERY]
        known = ", ".join(sorted(self.named)) or "none"
        raise AddressError(f"no upstream is named {name!r} (--upstream NAME=HOST:PORT; known: {known})")


def upstream_of(text: str) -> tuple[str, Address]:
    """Parse ``NAME=HOST:PORT``; an upstream without a name takes all calls that no other upstream takes."""
    name, equals, address = text.partition("=")
    if not equals:
        return EVERY, parse_address(text)
    if not name:
        raise AddressError(f"{text!r} is not a valid NAME=HOST:PORT")
    return name, parse_address(address)
