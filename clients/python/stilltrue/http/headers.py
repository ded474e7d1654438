"""Our HTTP headers, the stamp and the address of the sending connection, and the names of requests.

Rules:

1. A request and its reply have one stamp each, in the header ``stilltrue-stamp``. Applications never see it: it is removed
   from the messages they receive, and added to those they send as they are written to a connection.
2. Proxies pass headers on, and end requests by their own rules (most after a minute). So a request also carries the local
   address of its connection, in ``stilltrue-from``. A server that sees another peer address, or signs of a proxy, treats the
   request as one from outside: no party is known to wait for it.
3. A request is named by its verb and path. Parts of the path that look like keys (numbers, long hexadecimal words) become
   ``{}``: reports carry no data, and there are few names.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from stilltrue.protocol.stamp import METADATA_KEY

STAMP = METADATA_KEY
ADDRESS = "stilltrue-from"
OURS = (STAMP, ADDRESS)
OURS_BYTES = tuple(name.encode() for name in OURS)
PROXIED = frozenset(
    {
        "via",
        "forwarded",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
        "x-real-ip",
        "x-envoy-expected-rq-timeout-ms",
        "x-envoy-external-address",
        "cf-connecting-ip",
    }
)
"""Headers that proxies may add."""
PROXIED_BYTES = frozenset(name.encode() for name in PROXIED)
PARTS_MAX = 12
PART_LENGTH_MAX = 40
VERB_LENGTH_MAX = 20
CACHED_LENGTH_MAX = 256
"""Longer paths are not cached: a stranger may send thousands of different paths of 64 KB."""
_KEY = re.compile(r"\d+|(?=.*\d)[0-9A-Fa-f-]{8,}|(?=.*\d)[\w-]{20,}")


def request_name(verb: str, path: str) -> tuple[str, str]:
    """The name of a request (``GET /orders/{}``), and the prefix of the name of the party that serves it (rule 3)."""
    return _cached_name(verb, path) if len(path) <= CACHED_LENGTH_MAX else _name(verb, path)


def _name(verb: str, path: str) -> tuple[str, str]:
    parts = [_part(part) for part in path.split("/") if part][:PARTS_MAX]
    return f"{verb} /{'/'.join(parts)}", ":".join((verb, ".".join(parts))).rstrip(":")


_cached_name = lru_cache(maxsize=4_096)(_name)


def _part(part: str) -> str:
    if len(part) > PART_LENGTH_MAX or _KEY.fullmatch(part):
        return "{}"
    return "".join(letter if letter.isascii() and letter.isprintable() and letter not in " ;#" else "-" for letter in part)


def path_of(target: str) -> str:
    """The decoded path of a request's target, without the query."""
    return _cached_path(target) if len(target) <= CACHED_LENGTH_MAX else _path(target)


def _path(target: str) -> str:
    return unquote(target.partition("?")[0].partition("#")[0]) or "/"


_cached_path = lru_cache(maxsize=4_096)(_path)


def address_text(address: Any) -> str:
    """A socket's address as in the header ``stilltrue-from``; empty if it is not a TCP address."""
    if not isinstance(address, tuple | list) or len(address) < 2 or not address[1]:
        return ""
    host = _host(str(address[0]))
    return f"{host} {address[1]}" if host else ""


@lru_cache(maxsize=1_024)
def _host(text: str) -> str:
    """An IP address in its normal form; empty for anything else."""
    try:
        host = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return ""
    return str(getattr(host, "ipv4_mapped", None) or host)
