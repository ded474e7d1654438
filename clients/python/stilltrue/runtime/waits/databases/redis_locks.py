"""Waits of threads for redis-py's locks.

Rules (:mod:`~stilltrue.runtime.waits.databases.redis_holders` applies rules 2 and 3):

1. A thread that polls in ``Lock.acquire()`` without a limit waits for the key with the lock's name. Only the server knows the
   key's holder, which the probe beside it reports.
2. A thread in the block of such a lock, or between ``acquire()`` and the ``finally`` that releases it, holds the lock's token.
   The lock keeps the token in thread-local storage, so no other thread can release it through the lock.
3. A lock whose token other threads can also read (``thread_local=False``) has no known holder. One with a timeout has a time to
   live, which the probe reads.
4. A party that can reach the waiter's client, and whose code mentions deleting or expiring keys, is a way out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

from stilltrue.protocol.report import ResourceTarget
from stilltrue.runtime.introspection.frames import frames_of_threads, variables_of
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.transport.channelz import namespace
from stilltrue.runtime.waits.databases.redis_names import DELETING, lock_resource
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait

MODULE = "redis.lock"
_POLLS = "Lock.acquire"
_CONNECTIONS = ("_available_connections", "_in_use_connections", "_connections")


class _Identity:
    """Stands for one ``acquire()`` without keeping it alive."""


_identities: WeakKeyDictionary[Any, dict[int, tuple[bytes, _Identity]]] = WeakKeyDictionary()
"""By lock and polling thread: the token, which is new for each ``acquire()``, and the object that stands for it."""


def _read(stack: CallStack, at: int, _: ProcessView) -> SeenWait | None:
    names = variables_of(stack.frames[at])
    lock, token = names.get("self"), names.get("token")
    if stack.task is not None or not is_lock(lock) or type(token) is not bytes or "stop_trying_at" not in names:
        return None
    if names.get("blocking") is not True or names["stop_trying_at"] is not None:
        return None
    client = attribute_of(lock, "redis")
    known = _name_of(lock, client)
    enders = None if known is None else (ResourceTarget(resource=known),)
    ident, code = stack.ident, stack.frames[at].f_code

    def same() -> bool:
        frames = frames_of_threads().get(ident, [])
        return any(one.f_code is code and variables_of(one).get("token") == token for one in frames)

    what = "a Redis lock" if known is None else known
    return SeenWait(
        on=_identity_of(lock, ident, token), enders=enders, what=what, ended_through=(client,), ending_names=DELETING, same=same
    )


def _identity_of(lock: Any, ident: int, token: bytes) -> _Identity:
    of_threads = _identities.setdefault(lock, {})
    known = of_threads.get(ident)
    if known is None or known[0] != token:
        known = of_threads[ident] = token, _Identity()
    return known[1]


def is_lock(thing: Any) -> bool:
    """Whether it is one of redis-py's locks for threads."""
    module = sys.modules.get(MODULE)
    kind = None if module is None else module.__dict__.get("Lock")
    return isinstance(kind, type) and issubclass(type(thing), kind)


def _name_of(lock: Any, client: Any) -> str | None:
    """The name of the lock's resource, if its client is connected to a single database of a single server."""
    name = attribute_of(lock, "name")
    servers = {_server_of(one) for one in _connections_of(attribute_of(client, "connection_pool"))} - {None}
    server = servers.pop() if len(servers) == 1 else None
    if type(name) not in (str, bytes) or server is None:
        return None
    address, port, database = server
    return lock_resource(name.encode() if isinstance(name, str) else name, database, address, port, namespace())


def _connections_of(pool: Any) -> Iterator[Any]:
    for attribute in _CONNECTIONS:
        found = attribute_of(pool, attribute)
        if type(found) in (list, set):
            yield from list(found)


def _server_of(connection: Any) -> tuple[str, int, int] | None:
    """The server's address as a connection sees it, and the database number; None if it is not connected."""
    found, database = attribute_of(connection, "_sock"), attribute_of(connection, "db")
    try:
        address = found.getpeername()
        return str(address[0]), int(address[1]), int(database or 0)
    except (OSError, AttributeError, IndexError, TypeError, ValueError):  # not connected, or a Unix socket
        return None


RESOLVERS = (Resolver((("redis/lock.py", _POLLS),), _read),)
