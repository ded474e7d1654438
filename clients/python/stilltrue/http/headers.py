"""What is said in HTTP headers: the stamp, and the address of the connection it was sent on.

Rules:

1. A request and its reply have one stamp each, in the header ``stilltrue-stamp``. Applications never see it: it is taken out
   of what they receive, and added to what they send when that is written to a connection.
2. Proxies pass headers on and end requests when they like (most after a minute). So a request also says from which address
   its connection was made, in ``stilltrue-from``. A server that sees another address at the other end, or signs of a proxy,
   takes the request for one from outside: nobody is known to wait for it.
3. A request is named by its verb and path. Parts of the path that look like keys (numbers, long hexadecimal words) become
   ``{}``: reports carry no data, and names stay few.
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
"""Headers that proxies add; a proxy need not add any."""
PROXIED_BYTES = frozenset(name.encode() for name in PROXIED)
PARTS_MAX = 12
PART_LENGTH_MAX = 40
_KEY = re.compile(r"\d+|(?=.*\d)[0-9A-Fa-f-]{8,}|(?=.*\d)[\w-]{20,}")


@lru_cache(maxsize=4_096)
def named(verb: str, path: str) -> tuple[str, str]:
    """What a request is called (``GET /orders/{}``), and how the name of the party that serves it begins (rule 3)."""
    parts = [_part(part) for part in path.split("/") if part][:PARTS_MAX]
    return f"{verb} /{'/'.join(parts)}", ":".join((verb, ".".join(parts))).rstrip(":")


def _part(part: str) -> str:
    if len(part) > PART_LENGTH_MAX or _KEY.fullmatch(part):
        return "{}"
    return "".join(letter if letter.isascii() and letter.isprintable() and letter not in " ;#" else "-" for letter in part)


@lru_cache(maxsize=4_096)
def path_of(target: str) -> str:
    """The path in a request's target, decoded, without its query."""
    return unquote(target.partition("?")[0].partition("#")[0]) or "/"


def address_text(address: Any) -> str:
    """A socket's address as in the header; empty for one that is not of TCP."""
    if not isinstance(address, tuple | list) or len(address) < 2 or not address[1]:
        return ""
    host = _host(str(address[0]))
    return f"{host} {address[1]}" if host else ""


@lru_cache(maxsize=1_024)
def _host(text: str) -> str:
    """An address of IP in one form, whichever way it is written; empty for anything else."""
    try:
        host = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return ""
    return str(getattr(host, "ipv4_mapped", None) or host)
