"""What the two ends of a lock of redis-py call it: the agent in the client, and the probe beside the server.

Both know the address of the server as its clients see it, unless a translation of addresses is in between: then the names
differ, and nothing is tied. An address of the loopback is of one network alone, which is then part of the name. Of a lock's
token only a digest is told.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re

_TEXT_MAX = 60
_DIGEST_LENGTH = 16
_OTHER = re.compile(r"[^A-Za-z0-9_:.\-]")


def waited_for(name: bytes, database: int, address: str, port: int, network: str | None) -> str | None:
    """What somebody waits for who wants the lock of this name; None where the address names no server.

    ``network``: the client's, if known.
    """
    try:
        known = ipaddress.ip_address(address)
    except ValueError:
        return None
    known = getattr(known, "ipv4_mapped", None) or known
    if port <= 0 or (known.is_loopback and not network):
        return None
    within = f" in {network}" if known.is_loopback else ""
    return f"redis lock {text_of(name)} ({_digest(name)}) of database {database} at {known}:{port}{within}"


def held_by_token(token: bytes) -> str:
    """What the server waits for that has a lock with this token: held by who is bound to give that back."""
    return f"redis token {_digest(token)}"


def text_of(name: bytes) -> str:
    """The name of a lock for people."""
    return _OTHER.sub("?", name.decode("utf-8", "replace")[:_TEXT_MAX])


def _digest(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()[:_DIGEST_LENGTH]
