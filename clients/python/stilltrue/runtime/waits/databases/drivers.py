"""Reads the connections of PostgreSQL drivers (psycopg2, psycopg 3, asyncpg), also through cursors and SQLAlchemy's objects.

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
    """Whether a module belongs to a driver, or to a library with connection pools."""
    return module.partition(".")[0] in LIBRARIES


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
    transaction = attribute_of(thing, "_transaction")
    known = attribute_of(transaction, "_connections") if transaction is not None and transaction is not UNKNOWN else None
    pairs = list(dict.values(known)) if isinstance(known, dict) else []
    return tuple(found for pair in pairs if type(pair) is tuple for found in connections_in(pair[0]))


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
    ("sqlalchemy", "Connection"): _only("_dbapi_connection"),
    ("sqlalchemy", "_ConnectionFairy"): _only("dbapi_connection"),
    ("sqlalchemy", "Transaction"): _only("connection"),
    ("sqlalchemy", "Session"): _of_session,
}


@functools.lru_cache(maxsize=10_000)
def _reader_of(kind: Any) -> Callable[[Any], Iterable[Any]] | None:
    for base in kind.__mro__:
        found = _READERS.get((base.__module__.partition(".")[0], base.__name__))
        if found is not None:
            return found
    return None


@functools.lru_cache(maxsize=1_000)
def _driver_of(kind: Any) -> str:
    packages = (base.__module__.partition(".")[0] for base in kind.__mro__)
    return next((package for package in packages if package in DRIVERS), "")


def _base_of(thing: Any, package: str) -> Any:
    """The driver's own class of ``thing``, as the application may have derived a class with other methods."""
    return next(base for base in type(thing).__mro__ if base.__module__.partition(".")[0] == package and _is_compiled(base))


def _is_compiled(kind: type) -> bool:
    return not kind.__flags__ & (1 << 9)  # Py_TPFLAGS_HEAPTYPE: a class statement made it
