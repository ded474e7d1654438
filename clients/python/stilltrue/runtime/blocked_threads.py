"""Finds, at the cut, threads blocked until a known party has ended, or completes a future.

Rules:

1. ``Future.result()`` and ``exception()`` without a timeout wait for the party that completes the future: the executor's thread
   that runs its item, or the task that ``run_coroutine_threadsafe`` made. ``concurrent.futures.wait`` and ``as_completed``
   wait for all or one of several; ``Thread.join()``, and what ends an executor, for a thread.
2. A task that awaits an executor's future (``run_in_executor``, ``to_thread``) waits for the thread that runs its item.
3. An event loop goes on when the task that blocks its thread does: whatever has yet to run on it waits for that task.
4. With a queued item, a wait with a timeout, or any other future, the waiting thread counts as active.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from types import FrameType
from typing import Any

from stilltrue.model import PartyName
from stilltrue.runtime import compat
from stilltrue.runtime.frames import frames_of_threads, innermost_frames
from stilltrue.runtime.parties import Parties
from stilltrue.runtime.places import blocked_loops, served_by


@dataclass(frozen=True, slots=True)
class Blocked:
    """A thread (``ident``) that waits as ``party`` until all or one of ``things`` (futures or threads) have ended.

    ``on`` is what it stands in: the same as long as the wait is.
    """

    party: PartyName
    ident: int
    on: Any
    things: tuple[Any, ...]
    needs_all: bool = True


class Workers:
    """Which party completes which future, at one moment; the threads' frames are read once, on demand."""

    def __init__(self, parties: Parties) -> None:
        """``parties`` names the threads."""
        self._parties = parties
        self._frames: dict[int, list[FrameType]] | None = None
        self._items: dict[int, tuple[Any, int]] | None = None
        self._loops: dict[int, tuple[asyncio.AbstractEventLoop, PartyName, Any]] | None = None

    def thread_on(self, future: Any) -> PartyName | None:
        """The party of the thread that runs this future's item (``concurrent.futures``); None if unknown."""
        if self._items is None:
            self._items = {
                id(item): (item, ident)
                for ident, frames in self._all_frames().items()
                if (item := compat.item_run_by(frames)) is not None
            }
        known = self._items.get(id(future))
        return None if known is None else self.party_of(known[1])

    def loop_awaited(self, future: Any) -> PartyName | None:
        """The party that blocks the loop on which a coroutine has yet to begin that completes this future; None if unknown."""
        for loop, holder, _ in self.loops().values():
            if any(compat.is_begun_for(future, handle) for handle in compat.handles_of(loop) or ()):
                return holder
        return None

    def blocked(self) -> list[Blocked]:
        """The threads that wait for a future or a thread."""
        found = []
        for ident, frame in innermost_frames().items():
            awaited = compat.awaited_at(frame)
            if awaited is not None:
                on, things, needs_all = awaited
                party = self.loops()[ident][1] if ident in self.loops() else self.party_of(ident)
                if party is not None:
                    found.append(Blocked(party, ident, on, things, needs_all))
        return found

    def loops(self) -> dict[int, tuple[asyncio.AbstractEventLoop, PartyName, Any]]:
        """By thread: the loops that are blocked, by which party, and by which task."""
        if self._loops is None:
            self._loops = blocked_loops(self._parties, self._all_frames())
        return self._loops

    def party_of(self, ident: int) -> PartyName | None:
        """The party that a thread is: the call that it serves, or itself; None when it serves for another agent."""
        call, _ = served_by(self._all_frames().get(ident, []))
        if call is not None:
            return call.served.party if call.session.parties is self._parties else None
        thread = compat.threads().get(ident)
        if thread is None or thread is threading.current_thread() or self._parties.is_anothers(thread):
            return None
        return self._parties.of_thread(thread)

    def _all_frames(self) -> dict[int, list[FrameType]]:
        if self._frames is None:
            self._frames = frames_of_threads()
        return self._frames
