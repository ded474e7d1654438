"""Reads the connections of PostgreSQL drivers (psycopg2, psycopg 3, asyncpg), also through SQLAlchemy's and Django's objects.

Imports no driver. Attributes are read without running the application's code; of a connection, only data that the driver keeps
in memory.
"""

from __future__ import annotations

import functools
import os
import socket
import sys
from collections.abc import Callable, Hashable, Iterable
from enum import IntEnum
from typing import Any, cast

from stilltrue.runtime.look.code.attributes import UNKNOWN, attribute_of
from stilltrue.runtime.transport.channelz import namespace
from stilltrue.runtime.waits.databases.names import Link, link

DRIVERS = ("psycopg2", "psycopg", "asyncpg")
LIBRARIES = (*DRIVERS, "psycopg_pool", "sqlalchemy")
"""Their pools and engines refer to every connection, but do not use one that is checked out."""
TIMEOUTS = (
    "lock_timeout",
    "statement_timeout",
    "idle_in_transaction_session_timeout",
    "transaction_timeout",
    "idle_session_timeout",
)
"""The settings that make a server end a wait by itself."""


class Status(IntEnum):
    """The state of the session as the client last knew it (libpq's transaction status)."""

    IDLE = 0
    ACTIVE = 1
    IN_TRANSACTION = 2
    IN_ERROR = 3
    UNKNOWN = 4


IDLE_IN_TRANSACTION = (Status.IN_TRANSACTION, Status.IN_ERROR)


def is_loaded() -> bool:
    """Whether the process has imported one of the drivers."""
    return any(name in sys.modules for name in DRIVERS)


def connections_in(thing: Any) -> tuple[Any, ...]:
    """The connections of ``thing``: itself, or those of a cursor, a transaction or a session."""
    found = _reader_of(cast("Hashable", type(thing)))
    return () if found is None else tuple(one for one in found(thing) if one is not None and one is not UNKNOWN)


def is_library(module: str) -> bool:
    """Whether a module belongs to a driver, to a library with connection pools, or to Django's part for databases."""
    return module.partition(".")[0] in LIBRARIES or f"{module}.".startswith("django.db.")


def status_of(connection: Any) -> Status:
    """The client's status of its session. For asyncpg, a running statement does not show here."""
    try:
        match _driver_of(cast("Hashable", type(connection))):
            case "psycopg2":
                return Status(_base_of(connection, "psycopg2").get_transaction_status(connection))
            case "psycopg":
                return Status(int(attribute_of(connection, "pgconn").transaction_status))
            case "asyncpg":
                is_open = attribute_of(connection, "_protocol").is_in_transaction()
                return Status.IN_TRANSACTION if is_open else Status.IDLE
    except Exception:  # noqa: BLE001 - closed, or another version of the driver
        return Status.UNKNOWN
    return Status.UNKNOWN


def link_of(connection: Any) -> Link | None:
    """The connection's name; None if it has no name that the server also knows."""
    try:
        match _driver_of(cast("Hashable", type(connection))):
            case "psycopg2":
                base = _base_of(connection, "psycopg2")
                pid, address = base.get_backend_pid(connection), _address(base.fileno(connection))
            case "psycopg":
                inner = attribute_of(connection, "pgconn")
                pid, address = inner.backend_pid, _address(inner.socket)
            case "asyncpg":
                pid = attribute_of(connection, "_protocol").get_server_pid()
                address = attribute_of(connection, "_transport").get_extra_info("sockname")
            case _:
                return None
        return link(pid, address[0], address[1], namespace())
    except Exception:  # noqa: BLE001 - closed, a socket of another kind, or another version of the driver
        return None


def socket_of(connection: Any) -> int:
    """The file descriptor of a psycopg2 connection; -1 if it has none."""
    try:
        return int(_base_of(connection, "psycopg2").fileno(connection))
    except Exception:  # noqa: BLE001 - closed
        return -1


def settings_of(connection: Any) -> str:
    """The session's connection parameters, as text in which the name of a setting can be found."""
    try:
        match _driver_of(cast("Hashable", type(connection))):
            case "psycopg2":
                return str(_base_of(connection, "psycopg2").dsn.__get__(connection))
            case "psycopg":
                return " ".join(str(one.val) for one in attribute_of(connection, "pgconn").info if one.val)
            case "asyncpg":
                return str(attribute_of(connection, "_params").server_settings)
    except Exception:  # noqa: BLE001 - closed, or another version of the driver
        return TIMEOUTS[0]  # as if it had a timeout: doubt
    return TIMEOUTS[0]


def _address(descriptor: int) -> Any:
    with socket.socket(fileno=os.dup(descriptor)) as same:
        return same.getsockname()


def _only(name: str) -> Callable[[Any], Iterable[Any]]:
    return lambda thing: connections_in(attribute_of(thing, name))


def _of_cursor(thing: Any) -> Iterable[Any]:
    """A cursor of psycopg2, whose class is compiled."""
    return (_base_of(thing, "psycopg2").connection.__get__(thing),)


def _of_session(thing: Any) -> Iterable[Any]:
    """SQLAlchemy's session: the connections of its transaction."""
    return tuple(found for one in _connections_of_session(thing) for found in connections_in(one))


def _connections_of_session(thing: Any) -> tuple[Any, ...]:
    """SQLAlchemy's own connections, in which its session works."""
    transaction = attribute_of(thing, "_transaction")
    known = attribute_of(transaction, "_connections") if transaction is not None and transaction is not UNKNOWN else None
    pairs = list(dict.values(known)) if isinstance(known, dict) else []
    return tuple(pair[0] for pair in pairs if type(pair) is tuple)


def _found_by_class(
    table: dict[tuple[str, str], Callable[[Any], Iterable[Any]]], kind: Any
) -> Callable[[Any], Iterable[Any]] | None:
    """What a table has for a class or one of its bases."""
    names = ((base.__module__.partition(".")[0], base.__name__) for base in kind.__mro__)
    return next((table[name] for name in names if name in table), None)


_READERS: dict[tuple[str, str], Callable[[Any], Iterable[Any]]] = {
    ("psycopg2", "connection"): lambda thing: (thing,),
    ("psycopg2", "cursor"): _of_cursor,
    ("psycopg", "Connection"): lambda thing: (thing,),
    ("psycopg", "AsyncConnection"): lambda thing: (thing,),
    ("psycopg", "BaseCursor"): _only("_conn"),
    ("psycopg", "BaseTransaction"): _only("_conn"),
    ("psycopg", "BasePipeline"): _only("_conn"),
    ("asyncpg", "Connection"): lambda thing: (thing,),
    ("asyncpg", "PoolConnectionProxy"): _only("_con"),
    ("asyncpg", "ConnectionResource"): _only("_connection"),
    ("django", "BaseDatabaseWrapper"): _only("connection"),
    ("sqlalchemy", "Connection"): _only("_dbapi_connection"),
    ("sqlalchemy", "_ConnectionFairy"): _only("dbapi_connection"),
    ("sqlalchemy", "Transaction"): _only("connection"),
    ("sqlalchemy", "Session"): _of_session,
    ("sqlalchemy", "AdaptedConnection"): _only("_connection"),
    ("sqlalchemy", "AsyncConnection"): _only("sync_connection"),
    ("sqlalchemy", "AsyncTransaction"): _only("sync_transaction"),
    ("sqlalchemy", "AsyncSession"): _only("sync_session"),
}


_NEXT: dict[tuple[str, str], Callable[[Any], Iterable[Any]]] = {
    ("sqlalchemy", "AsyncSession"): lambda thing: (attribute_of(thing, "sync_session"),),
    ("sqlalchemy", "AsyncConnection"): lambda thing: (attribute_of(thing, "sync_connection"),),
    ("sqlalchemy", "AsyncTransaction"): lambda thing: (attribute_of(thing, "connection"),),
    ("sqlalchemy", "Transaction"): lambda thing: (attribute_of(thing, "connection"),),
    ("sqlalchemy", "Session"): _connections_of_session,
}


def works_through(thing: Any) -> list[Any]:
    """``thing`` and the objects of SQLAlchemy through which it works on a connection. Whoever has one may end its work."""
    found = [thing]
    for one in found:
        following = _found_by_class(_NEXT, cast("Hashable", type(one)))
        found += [each for each in (() if following is None else following(one)) if each is not None and each is not UNKNOWN]
    return found


_reader_of = functools.lru_cache(maxsize=10_000)(functools.partial(_found_by_class, _READERS))


@functools.lru_cache(maxsize=1_000)
def _driver_of(kind: Any) -> str:
    packages = (base.__module__.partition(".")[0] for base in kind.__mro__)
    return next((package for package in packages if package in DRIVERS), "")


def _base_of(thing: Any, package: str) -> Any:
    """The driver's own class of ``thing``, as the application may have derived a class with other methods."""
    return next(base for base in type(thing).__mro__ if base.__module__.partition(".")[0] == package and _is_compiled(base))


def _is_compiled(kind: type) -> bool:
    return not kind.__flags__ & (1 << 9)  # Py_TPFLAGS_HEAPTYPE: a class statement made it
