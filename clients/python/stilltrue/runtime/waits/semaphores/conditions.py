"""Waits of threads for an event, a condition or a barrier of ``multiprocessing``, or until a ``JoinableQueue`` is done.

Rules:

1. All of these wait in ``Condition.wait()`` for a share of its semaphore. A thread does so without a timeout if no share is
   left and the system shows that it is blocked at that semaphore (:mod:`~stilltrue.runtime.waits.semaphores.kernel`).
2. Any thread of a process that has the semaphore may notify the condition, so this is a wait for the work of all these
   processes (:mod:`~stilltrue.runtime.waits.pipes.work`). A process gets a semaphore only from the one that starts it, so it is
   also a wait for the work of all their descendants: one that has just been started may not have got it yet.
3. A signal's handler may notify it. So the work of a process counts only while the program has set no handler there.
4. An idle program may wait so until a signal ends it. So a wait for an event or condition counts only if each of the other
   processes is about to wake somebody, as far as the rest of its threads' code mentions it. At a barrier, or until a queue is
   done, a thread always depends on others. A process that alone has the semaphore is unknown.
5. The processes are found in the agent's own thread, and again at the second look: there may be no other by then.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from stilltrue.protocol.report import ResourceTarget
from stilltrue.runtime import compat
from stilltrue.runtime.bytecode.qualified_names import qualname_of
from stilltrue.runtime.introspection.frames import frames_of_thread, innermost_frames_of_others, variables_of
from stilltrue.runtime.introspection.linux.child_processes import ChildProcess, children_of, process_at
from stilltrue.runtime.introspection.origins import is_application_callback
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.waits.ending_operations import ACKNOWLEDGING, AT_BARRIERS, NOTIFYING, RELEASE, SETTING
from stilltrue.runtime.waits.reachability.loops.waking import forget_objects, mentioned_ahead
from stilltrue.runtime.waits.resolvers.processes import named
from stilltrue.runtime.waits.resolvers.shared_locks import semaphore_of
from stilltrue.runtime.waits.semaphores.kernel import Semaphore, address_awaited, users_of
from stilltrue.runtime.waits.semaphores.own import MODULE
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait

WAITS_MAX, FAMILY_MAX = 16, 256
AGAIN_SECONDS_MIN, AGAIN_SECONDS_MAX = 0.5, 60.0
_SHARE_OF_TIME = 0.02
_SIZE = 32
"""The bytes of a semaphore, at one of which its waiters are blocked."""
_FILE, _WAIT = "multiprocessing/synchronize.py", "Condition.wait"
_NEVER_IDLE = (("threading.py", "Barrier.wait"), ("multiprocessing/queues.py", "JoinableQueue.join"))
_WAKING = SETTING | NOTIFYING | AT_BARRIERS | ACKNOWLEDGING | RELEASE
_TRACKER = b"multiprocessing.resource_tracker"
_QUIET, _ABOUT_TO_WAKE = "work without signals", "waking work"


class _Known:
    """The semaphores at which threads of this process wait, who has them, and when to look again."""

    awaited: frozenset[Semaphore] = frozenset()
    family: dict[Semaphore, frozenset[int]] = {}  # noqa: RUF012 - replaced as a whole
    interval = AGAIN_SECONDS_MIN
    not_before = again = float("-inf")
    wakes: tuple[object, bool] = (None, False)


def find_processes_at_conditions() -> None:
    """Rule 5. Reads the memory maps of all processes: ever more rarely for the same waits."""
    if MODULE not in sys.modules:
        return
    every = [_awaited_in(ident, frame) for ident, frame in innermost_frames_of_others().items()]
    awaited, now = frozenset(key for key in every if key is not None), time.monotonic()
    if len(awaited) > WAITS_MAX:
        awaited = frozenset()
    same = awaited <= _Known.awaited
    if not awaited or now < _Known.not_before or (same and now < _Known.again):
        return
    begun = time.thread_time()
    _Known.awaited, _Known.family = awaited, _families(awaited)
    _Known.interval = min(2 * _Known.interval, AGAIN_SECONDS_MAX) if same else AGAIN_SECONDS_MIN
    _Known.not_before = now + max(AGAIN_SECONDS_MIN, (time.thread_time() - begun) / _SHARE_OF_TIME)
    _Known.again = now + _Known.interval


def _families(wanted: frozenset[Semaphore]) -> dict[Semaphore, frozenset[int]]:
    """Rule 2: the processes that have each semaphore, and their descendants; one about which nothing is known is left out."""
    found = {key: _with_descendants(pid for pid, _ in users) for key, users in users_of(wanted).items()}
    return {key: pids for key, pids in found.items() if pids is not None}


def _with_descendants(pids: Iterable[int]) -> frozenset[int] | None:
    found: set[int] = set()
    todo = deque(pids)
    while todo:
        pid = todo.popleft()
        if pid in found or process_at(pid) is None or _is_helper(pid):
            continue
        found.add(pid)
        todo.extend(children_of(pid))
        if len(found) > FAMILY_MAX:
            return None
    return frozenset(found)


def _is_helper(pid: int) -> bool:
    """Whether it is the process that multiprocessing starts to clean up after others."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return _TRACKER in command


# -- waits (rules 1 and 4) -------------------------------------------------------------------------------------------------


def _awaited_in(ident: int, frame: FrameType) -> Semaphore | None:
    """The semaphore at which a thread with this innermost frame is blocked without a timeout."""
    if qualname_of(frame.f_code) != _WAIT or not frame.f_code.co_filename.replace("\\", "/").endswith(_FILE):
        return None
    names, thread = variables_of(frame), compat.threads().get(ident)
    place = attribute_of(names.get("self"), "_wait_semaphore")
    if names.get("timeout", 0) is not None or thread is None or thread.native_id is None:
        return None
    key = semaphore_of(place) if compat.module_of(type(place)) == MODULE else None
    return key if key is not None and _is_blocked(attribute_of(place, "_semlock"), thread.native_id) else None


def _is_blocked(semaphore: Any, thread: int) -> bool:
    address = address_awaited(os.getpid(), thread)
    return address is not None and 0 <= address - semaphore.handle < _SIZE and bool(semaphore._is_zero())  # noqa: SLF001


def _read(stack: CallStack, at: int, _: ProcessView) -> SeenWait | None:
    key = None if stack.task is not None or at else _awaited_in(stack.ident, stack.frames[0])
    if key is None:
        return None
    enders = _enders(_Known.family.get(key), _is_never_idle(stack.frames))
    pids = " or ".join(f"process {pid}" for pid in sorted((enders or {}).values()))
    return SeenWait(
        on=variables_of(stack.frames[0]).get("self"),
        enders=None if enders is None else tuple(enders),
        what=f"a notification, which may come from {pids}" if pids else "a notification by another process",
        still=_still(key, stack.ident, frozenset(enders or ()), _is_never_idle(stack.frames)),
        parks=True,
    )


def _still(key: Semaphore, ident: int, enders: frozenset[ResourceTarget], never_idle: bool) -> Callable[[], bool]:
    """Rule 5: whether a thread that has not run is still in its wait."""

    def still() -> bool:
        frames = frames_of_thread(ident)
        if not frames or _awaited_in(ident, frames[0]) != key:
            return False
        now = _enders(_families(frozenset({key})).get(key), never_idle)
        return now is not None and enders.issuperset(now)

    return still


def _is_never_idle(frames: Sequence[FrameType]) -> bool:
    return any(
        qualname_of(frame.f_code) == name and frame.f_code.co_filename.replace("\\", "/").endswith(file)
        for frame in frames[1:6]
        for file, name in _NEVER_IDLE
    )


def _enders(pids: Iterable[int] | None, never_idle: bool) -> dict[ResourceTarget, int] | None:
    """Rules 2 and 4: the work of these processes, each with its id; None if unknown."""
    found: dict[ResourceTarget, int] = {}
    own = os.getpid()
    for pid in pids or ():
        process = process_at(pid)
        if process is None:  # it has ended
            continue
        name = named(_QUIET if never_idle or pid == own else _ABOUT_TO_WAKE, process)
        if name is None:
            return None
        found[ResourceTarget(resource=name)] = pid
    return found if set(found.values()) - {own} else None


# -- the work of this process (rules 3 and 4) ------------------------------------------------------------------------------


def kinds_of_work(process: ChildProcess, stacks: Sequence[CallStack]) -> list[str]:
    """The names of what this process's threads do for conditions, if none of them is at work; ``stacks``: those threads'."""
    if MODULE not in sys.modules or any(map(is_application_callback, map(signal.getsignal, signal.valid_signals()))):
        return []
    names = [named(_QUIET, process), named(_ABOUT_TO_WAKE, process) if _is_about_to_wake(stacks) else None]
    return [name for name in names if name is not None]


def _is_about_to_wake(stacks: Sequence[CallStack]) -> bool:
    """Whether the rest of a thread's code mentions waking others; read again only if a thread is elsewhere."""
    place = tuple((id(frame), frame.f_lasti) for stack in stacks for frame in stack.frames)
    if _Known.wakes[0] != place:
        try:
            frames = (frame for stack in stacks for frame in stack.frames)
            _Known.wakes = place, any(not _WAKING.isdisjoint(mentioned_ahead(frame)) for frame in frames)
        finally:
            forget_objects()
    return _Known.wakes[1]


RESOLVERS = (Resolver(((_FILE, _WAIT),), _read),)
