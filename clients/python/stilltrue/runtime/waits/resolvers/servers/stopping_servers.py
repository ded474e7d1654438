"""Waits for the end of a gRPC server that is being stopped: for all calls that it serves, until its grace period ends.

A handler that awaits the end of its own server waits for itself until then.
"""

from __future__ import annotations

from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.introspection.stopping_servers import end_of_grace
from stilltrue.runtime.waits.wait import CallStack, Enders, ProcessView, Resolver, SeenWait


def _read_thread(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    event = variables_of(stack.frames[at]).get("self")
    if stack.task is not None or not compat.is_endless_wait(stack.frames[0]):
        return None
    for server in view.cached(_read_thread, lambda: _servers(view)):
        if compat.is_told_of_end(server, event) and compat.is_stopping(server):
            serving = tuple(
                other.ident
                for other in view.stacks().values()
                if any(compat.serves_call_of(one, server) for one in other.frames)
            )
            return _wait(event, serving, server, end_of_grace(server, view.now, _none))
    return None


def _wait(on: Any, serving: Enders, server: Any, until: float | None = None) -> SeenWait:
    """A wait for all of ``serving``. Whoever stops the server once more may end it earlier."""
    return SeenWait(
        on=on,
        enders=serving or None,
        needs=None,
        until=until,
        what="the end of the calls of a server that is being stopped: {}",
        ended_through=(server,),
        ending_names=frozenset({"stop"}),
    )


def _servers(view: ProcessView) -> list[Any]:
    found = (compat.server_in(frame) for stack in view.stacks().values() for frame in stack.frames)
    return [server for server in found if server is not None]


def _none(_: object) -> None:
    """On threads no coroutine stops a server."""


def _read_task(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    server = variables_of(stack.frames[at]).get("self")
    inner = getattr(server, "_server", None)
    future = compat.shutdown_future_of(inner)
    if stack.task is None or future is None:
        return None
    handlers = (task for task, one in view.stacks_of_tasks().items() if any(is_application(each.f_code) for each in one.frames))
    serving = tuple(task for task in handlers if compat.aio_server_of(task) is inner)
    return _wait(future, serving, server)


RESOLVERS = (
    Resolver((("threading.py", "Event.wait"),), _read_thread),
    Resolver((("grpc/aio/_server.py", "Server.stop"),), _read_task, of_shells=True),
)
