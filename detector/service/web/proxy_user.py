"""The user whom an authenticating proxy names in a header, such as by a client certificate or a single sign-on.

Rules:

1. The header is believed from the proxies' own addresses alone: whoever else sends it is nobody.
2. Sent twice, it names nobody: a proxy that adds its own to a client's has not taken the client's away.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_address

from aiohttp import web

USER_CHARACTERS_MAX = 256
Network = IPv4Network | IPv6Network


class ProxyUser:
    """Reads the header ``name`` of requests that come from ``proxies``; an empty name: there is no such proxy."""

    def __init__(self, name: str = "", proxies: Iterable[Network] = ()) -> None:
        self._name = name
        self._proxies = tuple(proxies)

    def of(self, request: web.BaseRequest) -> str:
        """The user; empty: none is named, or none that is believed."""
        if not self._name:
            return ""
        named = request.headers.getall(self._name, [])
        if len(named) != 1 or not self._is_proxy(request.remote or ""):
            return ""
        user = named[0].strip()
        return user if len(user) <= USER_CHARACTERS_MAX and user.isprintable() else ""

    def _is_proxy(self, address: str) -> bool:
        try:
            found = ip_address(address.partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(found, "ipv4_mapped", None)
        return any((mapped or found) in network for network in self._proxies)
