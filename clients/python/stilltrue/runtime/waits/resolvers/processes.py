"""Waits of threads for the end of a child process: each is a wait for the child's main thread, which the child reports.

Rules:

1. A thread waits for a child's end if the system shows that it is in ``wait4()`` for this process id without options, or if it
   is in ``Popen.communicate()`` without a timeout: that reads until the child has closed its output, and then waits. So does
   a task in ``wait()`` or ``communicate()`` of a process of ``asyncio.subprocess``.
2. Process ids are reused, and differ between namespaces: a process is named by its id, its start time, its namespace and its
   machine. Only its parent can wait for it, so a process reports its name only if its parent is a member, too.
3. A process ends when its main thread does, or by an exit or a signal. A party of the parent whose code mentions sending
   signals to processes, or that can reach the object of this child and mentions ending it, is a way out.
"""

from __future__ import annotations

import os
from types import CodeType
from typing import Any
from weakref import ref

from stilltrue.protocol.report import ResourceTarget
from stilltrue.runtime import compat
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import frames_of_thread, variables_of
from stilltrue.runtime.introspection.linux.child_processes import ChildProcess, process_at
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.look.code.system_operations import (
    OPENS_FILES,
    SIGNALS_PROCESSES,
    STARTS_PROCESSES,
    USES_DESCRIPTORS,
)
from stilltrue.runtime.waits.databases.source_search import Mentions
from stilltrue.runtime.waits.files.kernel import machine, system_call_of
from stilltrue.runtime.waits.pipes.child_connections import connection_at_child, joins_child
from stilltrue.runtime.waits.pipes.child_output import file_at_child, waits_for_child
from stilltrue.runtime.waits.pipes.process_trees import WAIT4
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait

ENDING = frozenset({"terminate", "kill", "send_signal", "kill_workers", "terminate_workers"})
ENDING_ANYWHERE = frozenset({SIGNALS_PROCESSES})
_AT_PIPE = ENDING_ANYWHERE | {USES_DESCRIPTORS}
_AT_NUMBER = _AT_PIPE | {OPENS_FILES, STARTS_PROCESSES}
_NUMBERS = Mentions(
    r"\bfileno\b|/fd\b|\.fd\b|\bselect\.(e?poll|kqueue)\b|\bimport\b[^\n]*\b(e?poll|kqueue)\b",
    own_only=True,
)
"""Mentions of a descriptor's number, as ``fileno()`` and ``poll()`` return it, for ``open(3)``, ``Popen(stdin=3)``; or of
``/proc/PID/fd``."""


def ending_at_pipe() -> frozenset[str]:
    """What ends the wait of a child at a pipe of this process, whichever party does it."""
    return _AT_PIPE if _NUMBERS.search() and not _NUMBERS.found else _AT_NUMBER


def _read_waitpid(stack: CallStack, _: int, __: ProcessView) -> SeenWait | None:
    if stack.task is not None or not calls_waitpid(stack.frames[0].f_code):
        return None
    thread = compat.threads().get(stack.ident)
    native = None if thread is None else thread.native_id
    call = None if native is None else system_call_of(native)
    if call is None or call[0] != WAIT4.get(os.uname().machine) or call[3]:
        return None
    pid = call[1]
    if not 0 < pid < 1 << 31:
        return None
    frames = stack.frames
    at_pipe = file_at_child(frames) is not None or connection_at_child(frames) is not None
    return wait_for_child(
        pid,
        variables_of(frames[0]).get("self"),
        on=os.waitpid,
        ending_names_anywhere=ending_at_pipe() if at_pipe else ENDING_ANYWHERE,
        at_child=waits_for_child(frames[0].f_code) or joins_child(frames[0].f_code),
    )


@cached_by_code
def calls_waitpid(code: CodeType) -> bool:
    """Whether a function may wait for a child process by itself."""
    return "waitpid" in code.co_names or "wait4" in code.co_names


def _read_communicate(stack: CallStack, at: int, _: ProcessView) -> SeenWait | None:
    frame = stack.frames[at]
    names = variables_of(frame)
    process = names.get("self")
    pid = attribute_of(process, "pid")
    limited = any(names.get(name) is not None for name in ("timeout", "endtime"))
    if stack.task is not None or limited or type(pid) is not int or attribute_of(process, "returncode") is not None:
        return None
    weak, ident, code = ref(process), stack.ident, frame.f_code

    def same() -> bool:
        found = next((one for one in frames_of_thread(ident) if one.f_code is code), None)
        return found is not None and variables_of(found).get("self") is weak()

    return wait_for_child(pid, process, on=process, same=same)


def _read_asyncio(stack: CallStack, at: int, _: ProcessView) -> SeenWait | None:
    process = variables_of(stack.frames[at]).get("self")
    transport = attribute_of(process, "_transport")
    pid = attribute_of(process, "pid")
    if stack.task is None or stack.future is None or type(pid) is not int:
        return None
    return wait_for_child(pid, process, transport, on=stack.future, once=True)


def wait_for_child(pid: int, *ended_through: Any, **of_wait: Any) -> SeenWait:
    """The wait for the end of a child; ``ended_through``: its objects, through which a party may end it."""
    child = process_at(pid)
    name = None if child is None else name_of(child)
    enders = None if name is None else (ResourceTarget(resource=name),)
    what = f"the end of process {pid}, its child"
    through = tuple(one for one in ended_through if one is not None)
    known = {"ending_names_anywhere": ENDING_ANYWHERE, **of_wait}
    return SeenWait(enders=enders, what=what, ended_through=through, ending_names=ENDING, parks=True, **known)


def name_of(process: ChildProcess) -> str | None:
    """The name of a process's end (rule 2); None if the machine is unknown."""
    return named("end", process)


def work_of(process: ChildProcess) -> str | None:
    """The name of what a process does, in the same way."""
    return named("work", process)


def named(what: str, process: ChildProcess) -> str | None:
    """A name for something of a process (rule 2); None if the machine is unknown."""
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116 - of the namespace, not of a file
    except OSError:
        return None
    where = machine()
    return None if where is None else f"{what} of process {process.pid}:{process.started} in {namespace} of machine {where}"


RESOLVERS = (
    Resolver((("subprocess.py", "Popen.communicate"), ("subprocess.py", "Popen._communicate")), _read_communicate),
    Resolver((("asyncio/subprocess.py", "Process.wait"), ("asyncio/subprocess.py", "Process._read_stream")), _read_asyncio),
    Resolver((), _read_waitpid),
)
