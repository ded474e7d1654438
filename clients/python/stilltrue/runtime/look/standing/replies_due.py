"""Calls whose reply is due while the party that serves them stands still.

Rules:

1. The reply of a call is due until the first byte of it is sent. A stream of replies may pause for as long as it likes, so none
   of its replies is due while its handler produces the next one, unless the handler waits for what another party holds: a
   pause is no wait for a lock.
2. A party in a wait with a timeout goes on by itself, so none of its replies counts as due.
3. A reply of a stream is due once gRPC has it: the caller does not read, so its flow-control window is full.
"""

from __future__ import annotations

import inspect
import threading
from dataclasses import dataclass
from types import CoroutineType, FrameType
from typing import Any

from stilltrue.model import PartyName
from stilltrue.runtime import compat
from stilltrue.runtime.calls.incoming_call import IncomingCall
from stilltrue.runtime.introspection.frames import awaited_by
from stilltrue.runtime.introspection.tasks import Task, read, timers
from stilltrue.runtime.introspection.threads_and_tasks import is_shell, served_by
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.parties import Parties, Root
from stilltrue.runtime.waits.wait import CallStack, ProcessView, SeenWait

BLOCKED_IN = "room for its next reply, since the caller does not read"
_GENERATES = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


@dataclass(frozen=True, slots=True)
class BlockedReply:
    """A reply of ``party`` that gRPC cannot send; ``frames``: where its handler has produced it, empty if unknown."""

    party: PartyName
    frames: tuple[FrameType, ...] = ()


def owes_reply(stack: CallStack, wait: SeenWait | None, view: ProcessView) -> bool:
    """Whether the party with this stack, in this ``wait``, serves a call whose reply is due (rules 1 and 2)."""
    if not serves_call(stack):
        return False
    if _streams(stack) and (wait is None or not wait.enders or wait.reached or wait.parks):
        return False
    return not (has_timeout(stack.frames[0]) if stack.task is None else _has_timer(stack.task, stack, view))


def serves_call(stack: CallStack, *, single_reply: bool = False) -> bool:
    """Whether the party with this stack serves a call that is not over; ``single_reply``: and that is no stream of replies."""
    call, _ = served_by(list(stack.frames))
    return call is not None and not call.over and not (single_reply and _streams(stack))


def _streams(stack: CallStack) -> bool:
    """Whether the call that the party with this stack serves has a stream of replies."""
    call, _ = served_by(list(stack.frames))
    shells = (frame for frame in stack.frames if is_shell(frame))
    return getattr(call, "response_streaming", False) or any(frame.f_code.co_flags & _GENERATES for frame in shells)


def has_timeout(innermost: FrameType) -> bool:
    """Whether a thread with this innermost frame waits with a timeout."""
    return innermost.f_code is threading.Condition.wait.__code__ and not compat.is_endless_wait(innermost)


def _has_timer(task: Task, stack: CallStack, view: ProcessView) -> bool:
    loop = task.get_loop()
    ended = view.cached(("timers that end tasks", id(loop)), lambda: timers(loop))
    outermost = next((one for one in reversed(stack.coroutines) if type(one) is CoroutineType), None)  # below gRPC's
    awaited = read(task, stack.future, outermost)
    return ended is None or id(task) in ended or (awaited is not None and awaited.until is not None)


def reply_blocked_in(stack: CallStack, parties: Parties) -> BlockedReply | None:
    """The reply at which a thread is blocked (rule 3); None if there is none, or if it is another agent's."""
    replies = compat.replies_being_sent(stack.frames)
    call = attribute_of(replies, "_handler")
    if not isinstance(call, IncomingCall) or call.session.parties is not parties:
        return None
    return BlockedReply(call.served.party, _frames_of(attribute_of(replies, "_inner")))


def reply_blocked_on_loop(stack: CallStack, root: Root) -> BlockedReply | None:
    """As :func:`reply_blocked_in`, for the task that serves the call of ``root``."""
    paused = inspect.isasyncgen(root.coroutine) and not root.coroutine.ag_running and awaited_by(root.coroutine) is None
    if not paused or any(is_shell(frame) for frame in stack.frames):
        return None
    return BlockedReply(root.served.party, _frames_of(root.coroutine))


def _frames_of(handler: Any) -> tuple[FrameType, ...]:
    frame = getattr(handler, "ag_frame" if inspect.isasyncgen(handler) else "gi_frame", None)
    return () if frame is None else (frame,)
