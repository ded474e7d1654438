"""What this process does, for which others wait at a pipe: rule 2 of :mod:`~stilltrue.runtime.waits.pipes.resolver`.

All its threads have a part in that, so it is reported only once none of them is at work; until then, who waits for it counts
as able to go on. Left out are the agent's own threads (that of its log only if no handler may write to a queue), and the thread
that sends a queue's items while it has none: only another thread gives it one. At the second look there may be no other thread:
one that had just been started was not seen at the cut.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from pathlib import Path

from stilltrue.model import PartyName
from stilltrue.protocol.report import Hold
from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import frames_of_threads, variables_of
from stilltrue.runtime.introspection.linux.child_processes import process_at
from stilltrue.runtime.introspection.origins import is_application, is_ours
from stilltrue.runtime.waits.pipes.queue_feeders import is_idle_feeder
from stilltrue.runtime.waits.pipes.resolver import MODULE
from stilltrue.runtime.waits.process_view import LiveProcessView
from stilltrue.runtime.waits.resolvers.processes import work_of
from stilltrue.runtime.waits.semaphores.conditions import kinds_of_work
from stilltrue.runtime.waits.semaphores.own import MODULE as SEMAPHORES
from stilltrue.runtime.waits.wait import CallStack

_MODULES = frozenset({MODULE, SEMAPHORES})
_AGENT = "stilltrue-agent"
_RUNTIME = Path(__file__).parents[2]
_CONNECTS, _ANSWERS = (str(_RUNTIME / "membership" / f"{name}.py") for name in ("connection", "detector_requests"))
_LOGS = str(_RUNTIME / "log_queue.py")
_WRITES_FILES = frozenset({"logging", "logging.handlers"})
"""Modules of handlers that write records to files and the like."""
_KEPT_SECONDS, _KEPT_MAX = 10.0, 64
"""How long a cut counts, and how many: a look comes soon after its cut, and a thread that has begun since is doubt."""


class OwnWork:
    """The work of this process."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._quiet: tuple[tuple[float, frozenset[PartyName], frozenset[int]], ...] = ()
        """The newest cuts at which no thread was at work: when, the parties, and their threads."""

    def holds(self, view: LiveProcessView) -> tuple[Hold, ...]:
        """The parties that do this process's work at a cut, if none of them is at work."""
        if not _may_be_awaited() or not threading.current_thread().name.startswith(_AGENT):
            return ()  # a thread of the application that takes the cut is at work
        stacks = [one for one in view.stacks().values() if not _stands_aside(one)]
        if not all(_may_wait(one, view) for one in stacks):
            return ()
        parties = [view.party_of(one.ident) for one in stacks]
        process = process_at(os.getpid())
        name = None if process is None else work_of(process)
        known = frozenset(one for one in parties if one is not None)
        if name is None or None in parties:
            return ()
        now = time.monotonic()
        names = [name, *kinds_of_work(process, stacks)] if process is not None else []
        recent = (one for one in self._quiet if now - one[0] < _KEPT_SECONDS)
        self._quiet = (*recent, (now, known, frozenset(one.ident for one in stacks)))[-_KEPT_MAX:]
        return tuple(Hold(party=party, resource=name) for party in sorted(known) for name in names)

    def doubt_of(self, party: PartyName | None) -> str:
        """Why another thread may do this process's work, as text; empty: none may."""
        now, own = time.monotonic(), threading.get_ident()
        quiet = [threads for at, parties, threads in self._quiet if party in parties and now - at < _KEPT_SECONDS]
        if not quiet:
            return ""
        idents = frozenset.intersection(*quiet)
        stacks = (CallStack(tuple(frames), ident) for ident, frames in frames_of_threads().items() if ident != own)
        others = [one for one in stacks if one.ident not in idents and not _stands_aside(one)]
        return "another thread of its process has begun to run" if others else ""


def _may_be_awaited() -> bool:
    """Whether multiprocessing has started this process, or has started others here."""
    module = None if _MODULES.isdisjoint(sys.modules) else sys.modules.get("multiprocessing.process")
    return module is not None and bool(module.__dict__.get("_parent_process") or module.__dict__.get("_children"))


def _may_wait(stack: CallStack, view: LiveProcessView) -> bool:
    """Whether a thread is in a known wait, or in one of our shells, which record theirs. Asking for its party names it."""
    wait = view.wait_of(stack)
    return (wait is not None and wait.enders is not None) or any(is_ours(frame.f_code) for frame in stack.frames)


def _stands_aside(stack: CallStack) -> bool:
    """Whether a thread does nothing of the process's work by itself."""
    return _is_the_agents(stack) or is_idle_feeder(stack.frames)


def _is_the_agents(stack: CallStack) -> bool:
    """Whether a thread is the agent's, or gRPC's for the agent's own channel."""
    if any(is_application(one.f_code) for one in stack.frames):
        return False
    files = {one.f_code.co_filename for one in stack.frames}
    if _LOGS in files and _may_log_to_others():
        return False
    if not files.isdisjoint((_CONNECTS, _ANSWERS, _LOGS)) or compat.serves_own_channel(stack.frames[0]):
        return True
    feeding = (variables_of(one).get("request_iterator") for one in stack.frames if compat.is_feeding(one))
    codes = map(compat.code_of, feeding)  # what our stream has given it is being sent
    return any(code is not None and code.co_filename == _CONNECTS for code in codes)


def _may_log_to_others() -> bool:
    """Whether a handler of the agent's log may write it to a queue: one for queues, or one of another library."""
    own = logging.Logger.manager.loggerDict.get("stilltrue")
    handlers = [*logging.root.handlers, *(own.handlers if isinstance(own, logging.Logger) else ())]
    for_queues = getattr(sys.modules.get("logging.handlers"), "QueueHandler", ())
    return any(type(one).__module__ not in _WRITES_FILES or isinstance(one, for_queues) for one in handlers)
