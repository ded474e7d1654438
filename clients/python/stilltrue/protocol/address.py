"""Validates a detector's address, for flags, settings and the environment alike."""

from __future__ import annotations

import re

_ADDRESS = re.compile(r"unix:\S+|(?!https?://)\S+:0*([1-9]\d{0,4})")
_BARE_IPV6 = re.compile(r"([0-9a-fA-F:.]*:[0-9a-fA-F:.]*):(\d+)")
"""gRPC takes the port for the last part of the address, and dials port 443."""
_URL = re.compile(r"https?://([^/\s]*)\S*")
_PORT_MAX = 65535


def is_address(text: str) -> bool:
    """Whether ``text`` is HOST:PORT, another gRPC target with a port, or a Unix socket; or a comma-separated list of these."""
    parts = [part.strip() for part in text.split(",")]
    found = [None if _BARE_IPV6.fullmatch(part) else _ADDRESS.fullmatch(part) for part in parts]
    return all(each is not None and int(each[1] or 1) <= _PORT_MAX for each in found)


def what_is_wrong(text: str) -> str:
    """What is wrong with ``text``, which is not an address (:func:`is_address`), and what to write if that is known."""
    if url := _URL.fullmatch(text):
        return f"{text!r} is a URL, not HOST:PORT: write {url[1] if is_address(url[1]) else 'HOST:PORT'}"
    if bare := _BARE_IPV6.fullmatch(text):
        return f"{text!r} is not a valid HOST:PORT; an IPv6 address stands in brackets: write [{bare[1]}]:{bare[2]}"
    return f"{text!r} is not a valid HOST:PORT"
