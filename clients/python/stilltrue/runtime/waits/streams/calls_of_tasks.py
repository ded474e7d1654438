"""The call whose stream a task feeds or reads, by the task's frames."""

from __future__ import annotations

from collections.abc import Sequence
from types import FrameType

from stilltrue.runtime import compat
from stilltrue.runtime.bytecode.qualified_names import qualname_of
from stilltrue.runtime.calls.outgoing_call import OutgoingCall
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_ours
from stilltrue.runtime.introspection.tasks import Task
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.waits.call_stack import stack_of_task

_FEEDING, _FEEDS = "__aiter__", "OutgoingRequests.__aiter__"
_READING = frozenset({"_next_item", "__await__", "_at_end"})
"""The agent's functions in which a task awaits a reply or the call's end."""


def is_fed_in(frame: FrameType) -> bool:
    """Whether this frame of a task is the agent's that asks the application's iterator for the next request of a call."""
    return frame.f_code.co_name == _FEEDING and qualname_of(frame.f_code) == _FEEDS and is_ours(frame.f_code)


def call_fed_in(frames: Sequence[FrameType]) -> OutgoingCall | None:
    """The call for whose next request a task with these frames asks the application's iterator; None if it does not."""
    for frame in frames:
        if is_fed_in(frame):
            call = attribute_of(variables_of(frame).get("self"), "_call")
            return call if type(call) is OutgoingCall else None
    return None


def call_read_in(frames: Sequence[FrameType]) -> OutgoingCall | None:
    """The call whose reply, or next reply, a task with these frames awaits; None if it does not."""
    for frame in frames:
        if frame.f_code.co_name in _READING and is_ours(frame.f_code):
            call = variables_of(frame).get("call")
            return call if type(call) is OutgoingCall else None
    return None


def call_fed_by(task: Task) -> OutgoingCall | None:
    """The call for which a suspended task sends requests; None if it does not."""
    return call_fed_in(stack_of_task(task).frames)


def readers_of(call: OutgoingCall, feeding: Task) -> list[Task]:
    """The tasks on the loop of ``feeding`` that await a reply of ``call``."""
    every = compat.tasks_of(feeding.get_loop()) or ()
    return [one for one in every if call_read_in(stack_of_task(one).frames) is call]
