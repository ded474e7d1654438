"""Who holds what a server accepts its calls with: the event loop, gRPC's own thread of the server, or the only thread of one.

Rules:

1. A loop is a resource of one: a party that is blocked on its thread, in a wait that one of our shells has begun and will end,
   holds it for as long as that wait lasts. No task, timer or callback of the loop runs meanwhile, and nothing that a server of
   grpc.aio does is done elsewhere: it accepts no call and sends no reply.
2. gRPC's thread of any other server accepts its calls; an interceptor that is blocked there holds it. Handlers run on, so only
   what has not arrived waits for it: our interceptor must be the first, that it sees all that has.
3. A loop that runs inside another's callback is no wait: only frames nearer than it count.
4. A server of the standard library that serves in the thread in which it accepts (``wsgiref``, Flask without threads) accepts
   nothing while a request is served there.
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
class Holder:
    """A thread that runs ``loop``, serves for ``server`` (gRPC's state) or accepts from ``acceptor`` waits as ``party``."""

    party: PartyName
    loop: asyncio.AbstractEventLoop | None = None
    server: Any = None
    acceptor: socket.socket | None = None
    frames: Sequence[FrameType] = ()


def holders(session: Session, threads: Iterable[list[FrameType]]) -> Iterator[Holder]:
    """Those among ``threads`` (frames, innermost first) whose wait is recorded by this session."""
    for frames in threads:
        ours: list[FrameType] = []
        for frame in frames:
            if frame.f_code.co_filename.startswith(_SHELLS):
                ours.append(frame)
            loop = compat.loop_in(frame)
            server = variables_of(frame).get("state") if compat.is_serving(frame) else None
            acceptor = compat.acceptor_in(frame)
            if loop is not None or server is not None or acceptor is not None:
                wait = next((wait for one in ours if (wait := _wait_in(one, session)) is not None), None)
                party = None if wait is None else _waiter(session, wait)
                if party is not None:
                    yield Holder(party, loop, server, acceptor, frames)
                break


def _wait_in(frame: FrameType, session: Session) -> WaitNumber | None:
    """The wait that a frame of a shell is in the middle of."""
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
    """The party that a thread with these frames is in a recorded call as, of whichever agent of this process."""
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
    """Whose wait it is, if it is still in force."""
    live = session.live
    with live.lock:
        wait = live.recorder._waits.get(number)  # noqa: SLF001 - read under its lock
        if wait is not None:
            return wait.waiter
        made = live.recorder._made.values()  # noqa: SLF001
        return next((call.party for call in made if call.wait == number), None)
