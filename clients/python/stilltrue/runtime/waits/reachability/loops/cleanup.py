"""What a task goes on to do in any case, even if its wait is interrupted: ``try: await task`` with ``finally: stop.set()``.

The main task of a loop, which Ctrl-C interrupts, waits so for a task that serves until then. That is no deadlock, although the
stop comes only after the end of the task that waits for it.
"""

from __future__ import annotations

from types import CodeType

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import frame_of
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.code.control_flow import ControlFlow
from stilltrue.runtime.look.code.instructions_ahead import ahead_of
from stilltrue.runtime.waits.holders.with_blocks import instructions_of
from stilltrue.runtime.waits.wait import Task

_OF_AWAIT = "CLEANUP_THROW"
"""Begins the handler of each ``await`` itself since CPython 3.12, by which it may also go on."""


def only_cleans_up(task: Task, ending: frozenset[str]) -> bool:
    """Whether each frame of ``task`` names an operation of ``ending`` ahead, if at all, where an interruption leads as well."""
    frames = [frame for one in compat.await_chain(task.get_coro()) if (frame := frame_of(one)) is not None]
    own = [frame for frame in frames if is_application(frame.f_code)]
    return all(_leads_there_anyway(frame.f_code, frame.f_lasti, ending) for frame in own)


def _leads_there_anyway(code: CodeType, at: int, ending: frozenset[str]) -> bool:
    ahead = ahead_of(code, at)
    # where it names none of them itself, what it calls may
    named = ahead.names & ending or ahead.names.difference(code.co_varnames)
    return ahead.known and named <= _names_if_interrupted(code, at)


@cached_by_code
def _names_if_interrupted(code: CodeType, at: int) -> frozenset[str]:
    """The names in a code's handlers of exceptions that the instruction at an offset raises, and in all that they lead to."""
    every = instructions_of(code)
    flow = ControlFlow(code, every)
    return flow.names(flow.reached(one for one in flow.handlers(flow.at(at)) if every[one].opname != _OF_AWAIT))
