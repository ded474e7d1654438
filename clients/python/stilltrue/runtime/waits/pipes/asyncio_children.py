"""Waits of tasks at a child process of asyncio that itself waits at one of its pipes, which only this process could end.

Rules:

1. A task waits so in ``Process.wait()``, or for data or room at one of the child's pipes, if the child is blocked at another
   (:mod:`~stilltrue.runtime.waits.pipes.child_output`, rules 1 to 3): in ``write()``, and the loop has paused reading, as a
   :class:`asyncio.StreamReader` is full; or in ``read()`` of its input, and the loop has nothing more to write.
   A pipe at which the task itself waits must be empty, or full, and only the child may have its other end.
2. So the child does not go on until a party uses the other pipe's stream. The task can do so only once it goes on: it waits for
   itself. Any other party that can reach the stream, or sends signals, is a way out. asyncio's own objects lead to it, too, but
   never use it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.waits.pipes.child_output import CALLS_OF_CHILD, are_of_child, is_ours_alone, stands_at, stood_at
from stilltrue.runtime.waits.pipes.kernel import is_blocked, other_end_at, processes_at
from stilltrue.runtime.waits.pipes.process_trees import OTHER_CALL
from stilltrue.runtime.waits.resolvers.processes import ENDING, ending_at_pipe
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait

WHAT = "its child, process {}, which waits at a pipe that only {{}} can use"
_NAMES = {0: "stdin", 1: "stdout", 2: "stderr"}
_WATCHER = "waitpid-"
_READING = frozenset({"read", "readline", "readexactly", "readuntil", "communicate", "connect_read_pipe"})
_WRITING = frozenset({"write", "writelines", "write_eof", "close", "abort"})
_USING = ENDING | _READING | _WRITING
"""What ends the wait, done to an object that leads to the child, also through classes (:attr:`SeenWait.ended_through`)."""
_STREAMS = "asyncio/streams.py"


@dataclass(frozen=True, slots=True)
class _Pipe:
    """A pipe of the child: our ``descriptor``, its other ``end``, what the child may ``call`` there, and asyncio's objects."""

    descriptor: int
    end: str
    call: str
    transport: Any
    stream: Any


def _read_wait(stack: CallStack, at: int, _: ProcessView) -> SeenWait | None:
    return _wait_at(attribute_of(variables_of(stack.frames[at]).get("self"), "_transport"), None, stack)


def _read_data(stack: CallStack, at: int, _: ProcessView) -> SeenWait | None:
    own = attribute_of(variables_of(stack.frames[at]).get("self"), "_transport")
    return _wait_at(attribute_of(attribute_of(own, "_protocol"), "proc"), own, stack)


def _read_room(stack: CallStack, at: int, _: ProcessView) -> SeenWait | None:
    child = attribute_of(variables_of(stack.frames[at]).get("self"), "_transport")
    pipes = attribute_of(child, "_pipes")
    own = attribute_of(pipes.get(0), "pipe") if type(pipes) is dict else None
    return None if own is None else _wait_at(child, own, stack)


def _wait_at(child: Any, own: Any, stack: CallStack) -> SeenWait | None:
    """Rule 1. ``child``: asyncio's transport of the process; ``own``: the one of the pipe at which the task waits, if any."""
    pid, pipes = attribute_of(child, "_pid"), tuple(_pipes_of(child))
    if stack.task is None or stack.future is None or type(pid) is not int or attribute_of(child, "_returncode") is not None:
        return None
    mine = next((one for one in pipes if one.transport is own), None)
    if own is not None and (mine is None or not is_blocked(mine.descriptor, OTHER_CALL[mine.call])):
        return None
    at = next((one for one in pipes if one.transport is not own and _rests(one) and stood_at(pid, one.end, one.call)), None)
    if at is None:
        return None
    return SeenWait(
        on=stack.future,
        once=True,
        enders=(stack.task,),
        what=WHAT.format(pid),
        shares=(child, at.stream),
        helpers=_watchers(pid),
        ended_through=(child, at.stream, attribute_of(child, "_proc")),
        ending_names=_USING,
        ending_names_anywhere=ending_at_pipe(),
        still=_still(pid, at, mine),
    )


def _watchers(pid: int) -> tuple[int, ...]:
    """asyncio's own thread that waits for the child's end."""
    arguments = ((ident, attribute_of(one, "_args")) for ident, one in compat.threads().items() if _WATCHER in one.name)
    return tuple(ident for ident, given in arguments if type(given) is tuple and given[1:2] == (pid,))


def _still(pid: int, at: _Pipe, mine: _Pipe | None) -> Callable[[], bool]:
    end, call = at.end, at.call  # not the streams, which this would keep
    own = None if mine is None else (mine.descriptor, mine.end, mine.call)

    def still() -> bool:
        if own is not None and not (is_blocked(own[0], OTHER_CALL[own[2]]) and _is_child_alone(pid, *own)):
            return False
        return stands_at(pid, end, call) and is_ours_alone(pid, end, call)

    return still


def _is_child_alone(pid: int, descriptor: int, end: str, call: str) -> bool:
    """Whether no process but the child may use the other end of the pipe at which the task waits."""
    return other_end_at(descriptor) == end and are_of_child(processes_at(end, call), pid)


def _pipes_of(child: Any) -> Iterator[_Pipe]:
    pipes, streams = attribute_of(child, "_pipes"), attribute_of(child, "_protocol")
    for number, pipe in list(pipes.items()) if type(pipes) is dict else ():
        transport = attribute_of(pipe, "pipe")
        stream = attribute_of(streams, _NAMES.get(number, ""))
        descriptor = attribute_of(transport, "_fileno")
        end = other_end_at(descriptor) if type(descriptor) is int else None
        if end is not None and stream is not None and number in _NAMES:
            yield _Pipe(descriptor, end, CALLS_OF_CHILD[_NAMES[number]], transport, stream)


def _rests(pipe: _Pipe) -> bool:
    """Whether the loop does nothing at this pipe until a party uses the stream."""
    if attribute_of(pipe.transport, "_closing"):
        return False
    if pipe.call == "write":
        return attribute_of(pipe.transport, "_paused") is True
    return attribute_of(pipe.transport, "_buffer") in (b"", [])


RESOLVERS = (
    (
        Resolver((("asyncio/subprocess.py", "Process.wait"),), _read_wait),
        Resolver(((_STREAMS, "StreamReader._wait_for_data"),), _read_data),
        Resolver(((_STREAMS, "FlowControlMixin._drain_helper"),), _read_room),
    )
    if os.name == "posix"
    else ()
)
