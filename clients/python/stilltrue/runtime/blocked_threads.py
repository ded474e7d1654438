"""Finds, at the cut, threads blocked on the result of a future that a known party will complete.

Rules:

1. ``Future.result()`` and ``exception()`` without a timeout wait for the party that completes the future: the executor's thread
   that runs its item, or the task that ``run_coroutine_threadsafe`` made.
2. A task that awaits an executor's future (``run_in_executor``, ``to_thread``) waits for the thread that runs its item.
3. With a queued item, a wait with a timeout, or any other future, the waiting thread counts as active.
"""

from __future__ import annotations

import threading
from types import FrameType
from typing import Any

from stilltrue.model import PartyName
from stilltrue.runtime import compat
from stilltrue.runtime.frames import frames_of_threads, innermost_frames
from stilltrue.runtime.parties import Parties
from stilltrue.runtime.places import served_by


class Workers:
    """Which party completes which future, at one moment; the threads' frames are read once, on demand."""

    def __init__(self, parties: Parties) -> None:
        """``parties`` names the threads."""
        self._parties = parties
        self._frames: dict[int, list[FrameType]] | None = None
        self._items: dict[int, tuple[Any, int]] | None = None

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

    def blocked(self) -> list[tuple[PartyName, int, Any]]:
        """The threads that wait for a future: as parties, their identities, and for which."""
        found = []
        for ident, frame in innermost_frames().items():
            future = compat.future_awaited(frame)
            if future is not None:
                party = self.party_of(ident)
                if party is not None:
                    found.append((party, ident, future))
        return found

    def party_of(self, ident: int) -> PartyName | None:
        """The party that a thread is: the call that it serves, or itself; None when it serves for another agent."""
        call, _ = served_by(self._all_frames().get(ident, []))
        if call is not None:
            return call.served.party if call.session.parties is self._parties else None
        thread = compat.threads().get(ident)
        return None if thread is None or thread is threading.current_thread() else self._parties.of_thread(thread)

    def _all_frames(self) -> dict[int, list[FrameType]]:
        if self._frames is None:
            self._frames = frames_of_threads()
        return self._frames
