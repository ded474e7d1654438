"""Servers that accept no calls because a party blocks their event loop, gRPC's own thread, or their only thread.

Rules:

1. A party that is blocked on a loop's thread, in a wait that one of our shells began and will end, holds the loop until that
   wait ends. Meanwhile no task, timer or callback of the loop runs, and a grpc.aio server does everything on its loop: it
   accepts no call and sends no reply.
2. Any other gRPC server accepts calls on gRPC's own thread, which a blocked interceptor holds. Handlers run on, so only calls
   that have not arrived wait for the thread. Our interceptor must be the first, so that it sees every call that has arrived.
3. A loop that runs inside another loop's callback is not a wait: only frames inside the inner loop count.
4. A server of the standard library that serves on its accepting thread (``wsgiref``, Flask without threads) accepts nothing
   while it serves a request.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from stilltrue.model import PartyName, WaitNumber
from stilltrue.runtime import compat
from stilltrue.runtime.calls.outgoing_call import outgoing_in
from stilltrue.runtime.declared.resources import ResourceRecord
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.session import Session

_PACKAGE = Path(__file__).parents[2]
_SHELLS = (str(_PACKAGE / "sync"), str(_PACKAGE / "http"))


@dataclass(frozen=True, slots=True)
class BlockedServer:
    """``party`` blocks the thread that runs ``loop``, accepts calls for ``server`` (gRPC's state) or uses ``acceptor``."""

    party: PartyName
    loop: asyncio.AbstractEventLoop | None = None
    server: Any = None
    acceptor: socket.socket | None = None
    frames: Sequence[FrameType] = ()


def blocked_servers(session: Session, threads: Iterable[list[FrameType]]) -> Iterator[BlockedServer]:
    """The servers blocked by ``threads`` (frames, innermost first) whose wait this session records."""
    for frames in threads:
        ours: list[FrameType] = []
        for frame in frames:
            if frame.f_code.co_filename.startswith(_SHELLS):
                ours.append(frame)
            loop = compat.loop_in(frame)
            server = variables_of(frame).get("state") if compat.is_serving(frame) else None
            acceptor = compat.server_socket(frame)
            if loop is not None or server is not None or acceptor is not None:
                wait = next((wait for one in ours if (wait := _wait_in(one, session)) is not None), None)
                party = None if wait is None else _waiter(session, wait)
                if party is not None:
                    yield BlockedServer(party, loop, server, acceptor, frames)
                break


def _wait_in(frame: FrameType, session: Session) -> WaitNumber | None:
    """The wait that a shell's frame is in."""
    names = variables_of(frame)
    wait = names.get("wait")
    record = names.get("record")
    if isinstance(record, ResourceRecord):
        return wait if record.is_of(session) else None
    call = outgoing_in(names)
    if call is None or call.session is not session:
        return None
    return wait or call.made.wait or None


def caller_at(frames: Iterable[FrameType]) -> PartyName | None:
    """The party as which a thread with these frames waits in a recorded call, of any agent of this process."""
    for frame in frames:
        if frame.f_code.co_filename.startswith(_SHELLS):
            call = outgoing_in(variables_of(frame))
            if call is None:
                continue
            wait = _wait_in(frame, call.session)
            party = None if wait is None else _waiter(call.session, wait)
            if party is not None:
                return party
    return None


def _waiter(session: Session, number: WaitNumber) -> PartyName | None:
    """The party of the wait, if the wait is still in force."""
    live = session.live
    with live.lock:
        wait = live.recorder.open_waits.get(number)  # read under its lock
        if wait is not None:
            return wait.waiter
        made = live.recorder.calls_made.values()
        return next((call.party for call in made if call.wait == number), None)
