"""Waits of threads and tasks for a PostgreSQL statement: each is a wait for the server's process.

psycopg 3 (threads) and asyncpg wait in Python functions. psycopg2 waits in compiled code: a thread is in it if the system shows
that it polls only the connection's socket, without a timeout (Linux).
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, ref

from stilltrue.protocol.report import ResourceTarget
from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import frames_of_thread, variables_of
from stilltrue.runtime.waits.databases.drivers import Status, connections_in, link_of, socket_of, status_of
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait

_NEAR = 3
"""Number of innermost frames that may call a cursor's compiled method."""
_POLLS = {("x86_64", 7): False, ("x86_64", 271): True, ("aarch64", 73): True}
"""The system calls that poll, by machine and number, and whether their timeout is a pointer (null: no timeout)."""
_PROTOCOL = "asyncpg/protocol/protocol.pyx"
_TASKS = Path("/proc/self/task")
_MEMORY = Path("/proc/self/mem")
_POLLED = struct.Struct("ihh")


def _wait(connection: Any, on: Any, *, same: Callable[[], bool] | None = None, once: bool = False) -> SeenWait:
    known = link_of(connection)
    enders = None if known is None else (ResourceTarget(resource=known.server),)
    what = "the database" if known is None else f"the answer of {known.server}"
    return SeenWait(on=on, enders=enders, what=what, same=same, once=once)


def _read_psycopg(stack: CallStack, at: int, _: ProcessView) -> SeenWait | None:
    frame = stack.frames[at]
    names = variables_of(frame)
    connection, steps = names.get("self"), names.get("gen")
    if stack.task is not None or names.get("timeout") is not None or status_of(connection) is not Status.ACTIVE:
        return None
    weak, ident = ref(steps), stack.ident

    def same() -> bool:
        frames = frames_of_thread(ident)
        found = next((one for one in frames if one.f_code is frame.f_code), None)
        return found is not None and weak() is not None and variables_of(found).get("gen") is weak()

    return _wait(connection, steps, same=same)


def _read_psycopg2(stack: CallStack, _: int, __: ProcessView) -> SeenWait | None:
    if "psycopg2" not in sys.modules or stack.task is not None:
        return None
    thread = compat.threads().get(stack.ident)
    number = (None if thread is None else thread.native_id) or 0
    for frame in stack.frames[:_NEAR] if number else ():
        for thing in variables_of(frame).values():
            for connection in connections_in(thing):
                descriptor = socket_of(connection)
                if descriptor >= 0 and status_of(connection) is Status.ACTIVE and polls(number, descriptor):
                    return _wait(connection, _identity_of(connection))
    return None


def _read_asyncpg(stack: CallStack, at: int, _: ProcessView) -> SeenWait | None:
    files = [frame.f_code.co_filename for frame in stack.frames[:at]]
    if stack.task is None or compat.is_task(stack.future) or not files or not files[0].endswith(_PROTOCOL):
        return None
    if any("asyncpg/" not in file for file in files):
        return None
    owner = variables_of(stack.frames[at]).get("self")
    found = connections_in(owner)
    return _wait(found[0], stack.future, once=True) if len(found) == 1 else None


class _Identity:
    """Stands for a connection without keeping it open."""


_identities: WeakKeyDictionary[Any, _Identity] = WeakKeyDictionary()


def _identity_of(connection: Any) -> _Identity:
    return _identities.setdefault(connection, _Identity())


def polls(thread: int, descriptor: int) -> bool:
    """Whether a thread (native id) polls only this descriptor, without a timeout."""
    try:
        number, *arguments = (_TASKS / str(thread) / "syscall").read_text().split()
        timeout_is_pointer = _POLLS.get((os.uname().machine, int(number)))
        where, count, timeout = (int(one, 16) for one in arguments[:3])
        if timeout_is_pointer is None or count != 1:
            return False
        if timeout if timeout_is_pointer else timeout & 0xFFFFFFFF != 0xFFFFFFFF:
            return False
        with _MEMORY.open("rb", buffering=0) as memory:
            memory.seek(where)
            return bool(_POLLED.unpack(memory.read(_POLLED.size))[0] == descriptor)
    except (OSError, ValueError, struct.error):  # it is running, or the system does not show it
        return False


_OF_ASYNCPG = (
    ("asyncpg/connection.py", "Connection.execute"),
    ("asyncpg/connection.py", "Connection._do_execute"),
    ("asyncpg/connection.py", "Connection._get_statement"),
    ("asyncpg/prepared_stmt.py", "PreparedStatement.__bind_execute"),
    ("asyncpg/prepared_stmt.py", "PreparedStatement.__do_execute"),
)
RESOLVERS = (
    Resolver((("psycopg/connection.py", "Connection.wait"),), _read_psycopg),
    Resolver(_OF_ASYNCPG, _read_asyncpg),
    Resolver((), _read_psycopg2),
)
