"""aiohttp's connectors with a limit: reading or releasing a response releases its connection.

The server also releases it by sending the rest of the response. So a share counts only while its holder has paused reading, or
is in :meth:`ClientResponse.start`: a response releases nothing by itself before its task has read its head there.
A finalizer releases an unreferenced connection, so a share without a holder is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType
from typing import Any

from stilltrue.runtime.bytecode.qualified_names import qualname_of
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.waits.pools.shares import PoolState, has_type, number, read, wait_for_share
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait

_START = ("aiohttp/client_reqrep.py", "ClientResponse.start")


def _read(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    names = variables_of(stack.frames[at])
    connector = names.get("self")
    if stack.task is None or not has_type(connector, "aiohttp.connector", "BaseConnector"):
        return None
    if stack.future is not names.get("fut"):  # it awaits a trace callback
        return None
    taken = _taken(connector, names.get("key"))
    if not taken or not _are_kept(taken, view):
        return None
    known = {id(one) for one in taken}
    state = PoolState(
        pool=connector,
        name="an aiohttp connector",
        taken=len(known),
        share_of=lambda thing: _share_of(thing, connector, known),
        closers=(connector,),
        lines=(read(connector, "_waiters"),),
        around=(("aiohttp.client", "ClientSession"),),
    )
    return wait_for_share(state, view)


def _are_kept(taken: list[Any], view: ProcessView) -> bool:
    """Whether only the holders of these connections can release them."""
    reading = [one for one in taken if read(one, "_reading_paused") is not True]
    starting = view.cached(__name__, lambda: set(_starting(view))) if reading else set()
    return all(id(one) in starting for one in reading)


def _starting(view: ProcessView) -> Iterator[int]:
    """The connections (``id``) whose tasks wait for the head of a response."""
    for stack in view.stacks_of_tasks().values():
        for frame in stack.frames:
            if _starts(frame.f_code):
                yield id(read(variables_of(frame).get("connection"), "_protocol"))


@cached_by_code
def _starts(code: CodeType) -> bool:
    return qualname_of(code) == _START[1] and code.co_filename.replace("\\", "/").endswith(_START[0])


def _taken(connector: Any, key: Any) -> list[Any] | None:
    """The taken connections if the limit, total or per host, is reached; None if not, or if unknown."""
    used, limit = read(connector, "_acquired"), number(read(connector, "_limit"))
    if type(used) is not set or limit is None or read(connector, "_closed") is not False:
        return None
    if limit and len(used) >= limit:
        return list(used)
    per_host, most = read(connector, "_acquired_per_host"), number(read(connector, "_limit_per_host"))
    of_host = dict.get(per_host, key) if issubclass(type(per_host), dict) else None
    return list(of_host) if type(of_host) is set and most and len(of_host) >= most else None


def _share_of(thing: Any, connector: Any, taken: set[int]) -> Any:
    if id(thing) in taken:  # one that is connecting, or that a frame of aiohttp uses
        return thing
    if not has_type(thing, "aiohttp.connector", "Connection") or read(thing, "_connector") is not connector:
        return None
    protocol = read(thing, "_protocol")
    return protocol if id(protocol) in taken else None


RESOLVERS = (Resolver((("aiohttp/connector.py", "BaseConnector._wait_for_available_connection"),), _read),)
