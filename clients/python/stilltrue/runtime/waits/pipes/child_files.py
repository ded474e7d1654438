"""Waits of threads at a pipe of a child process that itself waits at another of its pipes, which only this process could end.

Rules:

1. A thread waits so if the system shows it in ``read()`` or ``write()`` of a pipe that is one of the three files of a
   ``Popen``, and the pipe is empty, or full, while the child is blocked at another of the three
   (:mod:`~stilltrue.runtime.waits.pipes.child_output`, rules 1 to 3): nobody reads its errors, or its input is in a buffer.
   So the child does not get to the thread's pipe until a party of this process reads, writes or closes that other file.
2. The ``Popen`` is found where the innermost functions of the application refer to it: in a variable, an attribute or an item
   of one, or a global that they name.
3. No process but the child may have the other end of the thread's pipe open. This is asked at the second look.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from stilltrue.protocol.report import ResourceTarget
from stilltrue.runtime import compat
from stilltrue.runtime.bytecode.instructions import opname_at
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.linux.child_processes import process_at
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.waits.files.kernel import system_call_of
from stilltrue.runtime.waits.pipes.child_output import (
    CALLS_OF_CHILD,
    are_of_child,
    descriptor_of,
    is_ours_alone,
    stands_at,
    stood_at,
)
from stilltrue.runtime.waits.pipes.kernel import is_blocked, other_end_at, processes_at
from stilltrue.runtime.waits.pipes.named_objects import objects_named
from stilltrue.runtime.waits.pipes.process_trees import OTHER_CALL, is_call
from stilltrue.runtime.waits.resolvers.processes import ENDING, ending_at_pipe, name_of
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait

WHAT = "its child, which waits at another pipe that only {} can use"
_USING = frozenset(
    {"read", "read1", "readinto", "readline", "readlines", "write", "writelines", "flush", "close", "list", "next"}
)
KNOWN_SECONDS, SEARCHES_MAX = 0.05, 64
"""How long what a cut has asked counts, and in how many threads at other pipes a ``Popen`` is searched for meanwhile."""


@dataclass(frozen=True, slots=True)
class _Pipe:
    """The pipe at which a thread waits to ``call``, its ``descriptor``, and the child's ``process``."""

    process: Any
    pid: int
    descriptor: int
    call: str


def may_wait(frames: Sequence[FrameType]) -> bool:
    """Whether a thread with these frames, innermost first, may be in an operation of a file: each cut asks this for many."""
    if not frames or not is_application(frames[0].f_code):
        return False
    uses = _names_use(frames[0].f_code) or opname_at(frames[0].f_code, frames[0].f_lasti) == "FOR_ITER"
    return uses and _has_children()


def _read(stack: CallStack, _: int, __: ProcessView) -> SeenWait | None:
    pipe = None if stack.task is not None else _pipe_of(stack.ident, stack.frames)
    file = None if pipe is None else _file_awaited(pipe)
    child = None if pipe is None or file is None else process_at(pipe.pid)
    name = None if child is None else name_of(child)
    if pipe is None or name is None:
        return None
    what, enders = f"process {pipe.pid}, its child, to {OTHER_CALL[pipe.call]}", (ResourceTarget(resource=name),)
    through = (pipe.process,)
    return SeenWait(
        on=file,
        enders=enders,
        what=what,
        ended_through=through,
        ending_names=ENDING,
        ending_names_anywhere=ending_at_pipe(),
        at_child=True,
    )


def other_file(ident: int, frames: Sequence[FrameType]) -> Any:
    """The file at whose other end the child waits, of a thread that waits at another of its files; None if it does not."""
    pipe = _pipe_of(ident, frames)
    return None if pipe is None else _file_awaited(pipe)


def still_waits(ident: int, frames: Sequence[FrameType]) -> Callable[[], bool]:
    """A function that returns whether a thread with these frames still waits so (rules 1 and 3)."""
    found = _pipe_of(ident, frames)
    if found is None:
        return lambda: False
    pid, descriptor, own_call = found.pid, found.descriptor, found.call  # not the Popen: it would count as one more reference
    others = [(end, call) for _, end, call in _others(found)]

    def still() -> bool:
        own = other_end_at(descriptor)
        if own is None or not _waits_at(ident, descriptor, own_call):
            return False
        alone = are_of_child(processes_at(own, OTHER_CALL[own_call]), pid)
        return alone and any(stands_at(pid, end, call) and is_ours_alone(pid, end, call) for end, call in others)

    return still


def _pipe_of(ident: int, frames: Sequence[FrameType]) -> _Pipe | None:
    """Rules 1 and 2, without what the child does."""
    if not may_wait(frames) or ident in _Known.elsewhere or len(_Known.elsewhere) >= SEARCHES_MAX:
        return None
    at = _pipe_at(ident)
    if at is None:
        return None
    for process in _processes_in(frames):
        pid = attribute_of(process, "pid")
        if type(pid) is not int or attribute_of(process, "returncode") is not None:
            continue
        for name, call in CALLS_OF_CHILD.items():
            descriptor = descriptor_of(attribute_of(process, name))
            if descriptor == at[0] and at[1] == OTHER_CALL[call] and _waits_at(ident, *at):
                return _Pipe(process, pid, *at)
    _Known.elsewhere.add(ident)
    return None


def _pipe_at(ident: int) -> tuple[int, str] | None:
    """The descriptor of the pipe at which a thread is in a system call, and the call; None if it is in another."""
    native = compat.native_id(ident)
    found = None if native is None else system_call_of(native)
    call = None if found is None else next((one for one in OTHER_CALL if is_call(found[0], one)), None)
    return None if found is None or call is None or other_end_at(found[1]) is None else (found[1], call)


def _waits_at(ident: int, descriptor: int, wanted: str) -> bool:
    return _pipe_at(ident) == (descriptor, wanted) and is_blocked(descriptor, wanted)


def _file_awaited(pipe: _Pipe) -> Any:
    """The file at whose other end the child is blocked; None if at none."""
    return next((file for file, end, call in _others(pipe) if stood_at(pipe.pid, end, call)), None)


def _others(pipe: _Pipe) -> Iterator[tuple[Any, str, str]]:
    """The other files of the child, each with its other end, and what the child does there."""
    for name, call in CALLS_OF_CHILD.items():
        file = attribute_of(pipe.process, name)
        descriptor = descriptor_of(file)
        end = None if descriptor is None or descriptor == pipe.descriptor else other_end_at(descriptor)
        if end is not None:
            yield file, end, call


class _Known:
    """Whether this process has children, as last asked, and when: each cut wants to know it for many threads.

    ``elsewhere``: the threads that have been found since at pipes of other kinds.
    """

    has_children = False
    elsewhere: set[int] = set()  # noqa: RUF012 - replaced as a whole
    at = float("-inf")


def _has_children() -> bool:
    now = time.monotonic()
    if now - _Known.at >= KNOWN_SECONDS:
        _Known.at, _Known.elsewhere = now, set()
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # reaps none
            _Known.has_children = True
        except ChildProcessError:
            _Known.has_children = False
        except (OSError, AttributeError):  # the system does not tell
            _Known.has_children = True
    return _Known.has_children


@cached_by_code
def _names_use(code: CodeType) -> bool:
    return not _USING.isdisjoint(code.co_names)


def _processes_in(frames: Sequence[FrameType]) -> Iterator[Any]:
    """Rule 2."""
    kind = getattr(sys.modules.get("subprocess"), "Popen", None)
    return objects_named(frames, kind) if isinstance(kind, type) else iter(())


RESOLVERS = (Resolver((), _read),)
