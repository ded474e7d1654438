"""Waits of threads at a pipe or queue of ``multiprocessing``, for a message or for room: processes at its other end end them.

Rules:

1. A thread waits in ``recv()`` or ``send()`` of a connection, or of a queue that has one, if the system shows it
   (:mod:`~stilltrue.runtime.waits.pipes.kernel`). With a timeout, or ``poll()``, it is elsewhere. In ``put()`` into a queue
   that has reached its size it waits for a process that can read the queue's pipe: only ``get()`` makes room.
2. Any thread of a process that has the other end open may use it, so this is a wait for the work of all these processes: each
   reports its own (:mod:`~stilltrue.runtime.waits.pipes.work`). One that is no member, or where a thread goes on, may end it.
3. The end of such a process closes its end. So the process must be this one, its parent, a worker that ``multiprocessing``
   has started here, or one that the parent has started; then the wait is for the parent's work, too. A party of this
   process whose code mentions sending signals, or that can reach the object of a worker and mentions ending it, is a way out.
4. The processes are found in the agent's own thread, and again at the second look: there may be no other by then. The pipe
   must then still be as empty, or as full.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from stilltrue.protocol.report import ResourceTarget
from stilltrue.runtime import compat
from stilltrue.runtime.bytecode.qualified_names import qualname_of
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import innermost_frames_of_others, variables_of
from stilltrue.runtime.introspection.linux.child_processes import parent_of, process_at
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.waits.pipes import kernel
from stilltrue.runtime.waits.resolvers.processes import ENDING, ENDING_ANYWHERE, work_of
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait

MODULE = "multiprocessing.connection"
WAITS_MAX = 16
"""With more such waits in this process none is known: the second look reads all descriptors for each."""
AGAIN_SECONDS_MIN, AGAIN_SECONDS_MAX = 0.5, 60.0
"""An idle worker of a pool waits at a pipe all day."""
_SHARE_OF_TIME = 0.01
_FILE = "multiprocessing/connection.py"
_CALLS = {"Connection._recv": "read", "Connection._send": "write"}
_OTHERS = {"read": "write", "write": "read"}
_QUEUES = "multiprocessing/queues.py"
_PUTS = frozenset({"Queue.put", "JoinableQueue.put"})
_TURN = (
    ("multiprocessing/synchronize.py", frozenset({"SemLock.__enter__"})),
    (_QUEUES, frozenset({"Queue.get", "SimpleQueue.get"})),
)
"""The two innermost frames of a thread that waits to read a queue, which one thread of all processes reads at a time."""


@dataclass(frozen=True, slots=True)
class _Awaited:
    """A pipe at which a thread waits to ``call``, by ``thing``, a connection or queue; ``is_blocked``: whether still.

    ``end``: the pipe's other end. ``what`` it waits for, as text.
    """

    end: str
    call: str
    thing: Any
    is_blocked: Callable[[], bool]
    what: str

    @property
    def key(self) -> tuple[str, str]:
        """The other end, and the call."""
        return self.end, self.call


class _Known:
    """The processes at the other ends of the pipes at which threads wait, as last found, and when to look again."""

    awaited: frozenset[tuple[str, str]] = frozenset()
    processes: dict[tuple[str, str], frozenset[int]] = {}  # noqa: RUF012 - replaced as a whole
    interval = AGAIN_SECONDS_MIN
    not_before = again = float("-inf")
    """Not even for other waits before the one, for the same waits at the other."""


def find_processes_at_pipes() -> None:
    """Rule 4. Reads the descriptors of all processes, which takes some milliseconds: ever more rarely for the same waits."""
    if MODULE not in sys.modules:
        return
    frames, begun = innermost_frames_of_others(), time.monotonic()
    every = [one.key for ident, frame in frames.items() if (one := _awaited_in(ident, frame)) is not None]
    if len(every) > WAITS_MAX:
        _Known.awaited, _Known.processes = frozenset(), {}
        return
    awaited = frozenset(every)
    same = awaited <= _Known.awaited
    if not awaited or begun < _Known.not_before or (same and begun < _Known.again):
        return
    found = {(end, call): kernel.processes_at(end, _OTHERS[call]) for end, call in awaited}
    _Known.awaited = awaited
    _Known.processes = {key: pids for key, pids in found.items() if pids is not None}
    end = time.monotonic()
    _Known.interval = min(2 * _Known.interval, AGAIN_SECONDS_MAX) if same else AGAIN_SECONDS_MIN
    _Known.not_before = end + max(AGAIN_SECONDS_MIN, (end - begun) / _SHARE_OF_TIME)
    _Known.again = end + _Known.interval


def waits_for_message(stack: CallStack) -> bool:
    """Whether a thread waits without a timeout for a message of another process, or for its turn to read a queue."""
    awaited = _awaited_in(stack.ident, stack.frames[0])
    if awaited is not None:
        return awaited.call == "read"
    return len(stack.frames) > 1 and all(map(_is_turn, stack.frames, _TURN))


def _is_turn(frame: FrameType, place: tuple[str, frozenset[str]]) -> bool:
    file, names = place
    return frame.f_code.co_filename.replace("\\", "/").endswith(file) and qualname_of(frame.f_code) in names


def _awaited_in(ident: int, frame: FrameType) -> _Awaited | None:
    """The pipe at which a thread with this innermost frame waits."""
    code = frame.f_code
    if not _may_wait_at_pipe(code):
        return None
    thread, names = compat.threads().get(ident), variables_of(frame)
    if thread is None or thread.native_id is None:
        return None
    if code.co_name == "put":
        return _full_queue(thread.native_id, names)
    call, connection = _CALLS[qualname_of(code)], names.get("self")
    descriptor = attribute_of(connection, "_handle")
    if type(descriptor) is not int or not kernel.is_in_call(thread.native_id, call, descriptor):
        return None
    end = kernel.other_end_at(descriptor)

    def is_blocked() -> bool:
        return kernel.other_end_at(descriptor) == end and kernel.is_blocked(descriptor, call)

    what = "a message on a pipe" if call == "read" else "room in a pipe"
    return _Awaited(end, call, connection, is_blocked, what) if end is not None and is_blocked() else None


@cached_by_code
def _may_wait_at_pipe(code: CodeType) -> bool:
    file, name = code.co_filename.replace("\\", "/"), qualname_of(code)
    return (file.endswith(_FILE) and name in _CALLS) or (file.endswith(_QUEUES) and name in _PUTS)


def _full_queue(thread: int, names: Mapping[str, Any]) -> _Awaited | None:
    """The queue into which a thread (native id) puts an item without a timeout, and that has no room."""
    queue = names.get("self")
    room = attribute_of(attribute_of(queue, "_sem"), "_semlock")
    descriptor = attribute_of(attribute_of(queue, "_reader"), "_handle")
    if names.get("timeout", 0) is not None or type(descriptor) is not int or not kernel.waits_for_lock(thread):
        return None
    end = kernel.other_end_at(descriptor)

    def is_blocked() -> bool:
        return kernel.other_end_at(descriptor) == end and bool(room._is_zero())  # noqa: SLF001 - as multiprocessing does

    if end is None or compat.module_of(type(room)) != "_multiprocessing" or not is_blocked():
        return None
    return _Awaited(end, "write", queue, is_blocked, "room in a queue")


def _read(stack: CallStack, at: int, _: ProcessView) -> SeenWait | None:
    awaited = None if stack.task is not None or at else _awaited_in(stack.ident, stack.frames[0])
    if awaited is None:
        return None
    enders = _enders(_Known.processes.get(awaited.key))
    pids = frozenset() if enders is None else frozenset(enders.values())
    return SeenWait(
        on=awaited.thing,
        enders=None if enders is None else tuple(enders),
        what=f"{awaited.what} whose other end {_named(pids)} may use" if pids else awaited.what,
        ended_through=tuple(one for one in _workers() if attribute_of(one, "_popen") is not None),
        ending_names=ENDING,
        ending_names_anywhere=ENDING_ANYWHERE,
        still=_still(awaited.key, awaited.is_blocked, frozenset(enders or ())),
        parks=awaited.call == "read",
    )


def _still(key: tuple[str, str], is_blocked: Callable[[], bool], enders: frozenset[ResourceTarget]) -> Callable[[], bool]:
    """Rule 4: whether a thread that has not run is still in its wait."""
    end, call = key

    def still() -> bool:
        now = _enders(kernel.processes_at(end, _OTHERS[call])) if is_blocked() else None
        return now is not None and enders.issuperset(now)

    return still


def _enders(pids: Iterable[int] | None) -> dict[ResourceTarget, int] | None:
    """Rules 2 and 3: the work of these processes, each with its id; None if unknown."""
    found: dict[ResourceTarget, int] = {}
    own, parent = os.getpid(), os.getppid()
    workers = {attribute_of(attribute_of(one, "_popen"), "pid") for one in _workers()}
    for pid in pids or ():
        is_sibling = parent > 1 and parent_of(pid) == parent
        if pid not in (own, parent) and pid not in workers and not is_sibling:
            return None
        for each in (pid, parent) if is_sibling and pid != own else (pid,):
            process = process_at(each)
            name = None if process is None else work_of(process)
            if process is None and each == pid:  # it has ended, and with it its end
                continue
            if name is None:
                return None
            found[ResourceTarget(resource=name)] = each
    return found or None


def _workers() -> list[Any]:
    """The processes that multiprocessing has started here and not yet joined."""
    module = sys.modules.get("multiprocessing.process")
    started = None if module is None else module.__dict__.get("_children")
    return list(started.copy()) if type(started) is set else []


def _named(pids: Iterable[int]) -> str:
    return " or ".join(f"process {pid}" for pid in sorted(pids))


_PLACES = (*((_FILE, name) for name in _CALLS), *((_QUEUES, name) for name in sorted(_PUTS)))
RESOLVERS = (Resolver(_PLACES, _read),)
