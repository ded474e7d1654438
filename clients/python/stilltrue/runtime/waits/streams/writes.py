"""Writes to a stream of gRPC that the other end must read first: its flow-control window is full.

Rules:

1. A thread of gRPC that feeds a call's requests, or a thread that serves a call with a stream of replies, waits for the other
   end to read, once gRPC has not accepted its item for :data:`WRITE_SECONDS_MIN`. What is under way in the network, which is no
   more than a window, should have arrived by then.
2. It is the same wait while the same thread is in the same write of its call, as the number of items tells.
3. Who reads is a resource of the call (:func:`~stilltrue.protocol.report.room_for_request_of`). Only the other end can tell
   which parties may read (:mod:`~stilltrue.runtime.waits.streams.readers`).
4. Such a wait is a suspicion that no look confirms, since other calls on the connection may enlarge the window (docs/proofs.md,
   limit 6): with it in the core, the answer is UNDETERMINED, and names the parties.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from types import FrameType

from stilltrue.protocol.books.ledger import ClientCall, ServerCall
from stilltrue.protocol.report import ResourceTarget, room_for_reply_of, room_for_request_of
from stilltrue.runtime import compat
from stilltrue.runtime.calls.incoming_call import IncomingCall
from stilltrue.runtime.calls.outgoing_call import OutgoingCall
from stilltrue.runtime.introspection.frames import frames_of_thread
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Referable, Resolver, SeenWait

WRITE_SECONDS_MIN = 3.0


@dataclass(slots=True, eq=False)
class _Write(Referable):
    """The item of a call that a thread writes, and since when (monotonic)."""

    entry: ClientCall | ServerCall
    sent: int
    since: float


_writes: dict[int, _Write] = {}
"""By thread. Another agent of this process has its own calls, and other threads write these."""


def request_written(frames: Sequence[FrameType]) -> OutgoingCall | None:
    """The call whose request gRPC's thread with these frames is writing; None if it is not."""
    call = attribute_of(compat.requests_being_sent(frames), "_call")
    return call if isinstance(call, OutgoingCall) else None


def reply_written(frames: Sequence[FrameType]) -> IncomingCall | None:
    """The call whose reply a thread with these frames is writing; None if it is not."""
    call = attribute_of(compat.replies_being_sent(frames), "_handler")
    return call if isinstance(call, IncomingCall) else None


def writes_item(frames: Sequence[FrameType]) -> bool:
    """Whether a thread with these frames is writing an item of a call."""
    return _written_by(frames) is not None


def are_there_writes(view: ProcessView) -> bool:
    """Whether some thread has written one item for long, as far as its waits have been read."""
    for ident in list(_writes):
        stack = view.stacks().get(ident)
        if stack is None or _written_by(stack.frames) is None:
            _writes.pop(ident, None)
    return bool(_writes)


def _read_request(stack: CallStack, _: int, view: ProcessView) -> SeenWait | None:
    call = request_written(stack.frames)
    if call is None or call.session.parties.process != view.process:
        return None
    return _wait(stack, call.made, room_for_request_of(view.process, call.made.number))


def _read_reply(stack: CallStack, _: int, view: ProcessView) -> SeenWait | None:
    call = reply_written(stack.frames)
    if call is None or call.served.caller is None or call.session.parties.process != view.process:
        return None
    return _wait(stack, call.served, room_for_reply_of(call.served.caller.process, call.served.number))


def _wait(stack: CallStack, entry: ClientCall | ServerCall, room: str) -> SeenWait | None:
    write = _writes.get(stack.ident)
    if write is None or write.entry is not entry or write.sent != entry.sent:
        write = _writes[stack.ident] = _Write(entry, entry.sent, time.monotonic())
    if time.monotonic() - write.since < WRITE_SECONDS_MIN:
        return None
    target, same = ResourceTarget(resource=room), partial(_lasts, stack.ident, write)
    return SeenWait(on=write, enders=(target,), until=entry.deadline, what="{}", same=same)


def _lasts(ident: int, write: _Write) -> bool:
    """Whether a thread is still in this write (rule 2)."""
    written = _written_by(frames_of_thread(ident))
    return written is write.entry and write.entry.sent == write.sent


def _written_by(frames: Sequence[FrameType]) -> ClientCall | ServerCall | None:
    made, served = request_written(frames), reply_written(frames)
    return made.made if made is not None else None if served is None else served.served


RESOLVERS = (
    Resolver(
        (("grpc/_channel.py", "_consume_request_iterator.<locals>.consume_request_iterator"),), _read_request, of_shells=True
    ),
    Resolver((("grpc/_server.py", "_send_response"),), _read_reply, of_shells=True),
)
