"""Names for redis-py's locks on which the agent in the client and the probe beside the server agree.

Both know the server's address as its clients see it. With address translation in between the names differ, and nothing is tied.
A loopback address is unique only within a network namespace, which is then part of the name. Only a digest of a lock's token is
revealed.
"""

from __future__ import annotations

import hashlib
import re

from stilltrue.runtime.waits.databases.names import unique_host

DELETING = frozenset(
    {"delete", "unlink", "flushdb", "flushall", "expire", "pexpire", "expireat", "pexpireat", "getdel", "getex", "rename"}
    | {"eval", "evalsha", "execute_command", "register_script"}
)
"""Names of operations that may delete or expire a key, whoever set it."""
_TEXT_MAX = 60
_DIGEST_LENGTH = 16
_OTHER = re.compile(r"[^A-Za-z0-9_:.\-]")


def lock_resource(name: bytes, database: int, address: str, port: int, network: str | None) -> str | None:
    """The resource that a client waits for to acquire the lock ``name``; None if the address does not identify a server.

    ``network``: the client's, if known.
    """
    host = unique_host(address, network)
    if host is None or port <= 0:
        return None
    within = f" in {host[1]}" if host[1] else ""
    return f"redis lock {text_of(name)} ({_digest(name)}) of database {database} at {host[0]}:{port}{within}"


def token_resource(token: bytes) -> str:
    """The resource that the server waits for while a lock has this token; the party that must release the lock holds it."""
    return f"redis token {_digest(token)}"


def text_of(name: bytes) -> str:
    """The name of a lock as readable text."""
    return _OTHER.sub("?", name.decode("utf-8", "replace")[:_TEXT_MAX])


def _digest(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()[:_DIGEST_LENGTH]
