"""The user that an authenticating proxy names in a header, for example after single sign-on.

Rules:

1. The header is trusted only from the proxies' addresses; from others it is ignored.
2. If it occurs twice, it is ignored: the proxy has not removed the client's own header.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_address

from aiohttp import web

USER_CHARACTERS_MAX = 256
Network = IPv4Network | IPv6Network


class ProxyUser:
    """Reads the header ``name`` of requests from ``proxies``; an empty name disables it."""

    def __init__(self, name: str = "", proxies: Iterable[Network] = ()) -> None:
        self._name = name
        self._proxies = tuple(proxies)

    def of(self, request: web.BaseRequest) -> str:
        """The trusted user of a request; empty if there is none."""
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
