"""aiohttp's connectors with a limit: reading or releasing a response releases its connection.

The server also releases it by sending the rest of the response, so a share counts only while its holder has paused reading.
A finalizer releases an unreferenced connection, so a share without a holder is unknown.
"""

from __future__ import annotations

from typing import Any

from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.waits.pools.shares import PoolState, has_type, number, read, wait_for_share
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait


def _read(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    names = variables_of(stack.frames[at])
    connector = names.get("self")
    if stack.task is None or not has_type(connector, "aiohttp.connector", "BaseConnector"):
        return None
    if stack.future is not names.get("fut"):  # it awaits a trace callback
        return None
    taken = _taken(connector, names.get("key"))
    if not taken or any(read(one, "_reading_paused") is not True for one in taken):
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
