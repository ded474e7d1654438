"""Validates a detector's address, for flags, settings and the environment alike."""

from __future__ import annotations

import re

_ADDRESS = re.compile(r"unix:\S+|(?!https?://)\S+:0*([1-9]\d{0,4})")
_PORT_MAX = 65535


def is_address(text: str) -> bool:
    """Whether ``text`` is HOST:PORT, another gRPC target with a port, or a Unix socket; or a comma-separated list of these."""
    found = [_ADDRESS.fullmatch(part.strip()) for part in text.split(",")]
    return all(each is not None and int(each[1] or 1) <= _PORT_MAX for each in found)
