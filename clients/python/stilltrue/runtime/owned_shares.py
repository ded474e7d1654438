"""Shares of the agent's locks that only their owner gives back, and which owners have ended.

Rules:

1. A share is its owner's alone if it is an ``RLock``'s, or was taken without a block from what is declared with
   ``owner_releases``. What a ``with`` block has taken is given back wherever that block is left: a generator may have it.
2. The owner is the thread, also where it serves a call; for a lock of tasks it is the task.
3. An owner that has ended is known as ``ended:...``: to those who wait for its share as well.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from weakref import ref

from stilltrue.model import ENDED, PartyName, party
from stilltrue.runtime.parties import Parties

Share = tuple[PartyName, str]
"""Who took it, and of which resource it is."""


class OwnedShares:
    """Those of one process. No lock: it is also read at the cut."""

    def __init__(self, parties: Parties) -> None:
        """``parties`` names the process."""
        self._parties = parties
        self._now: dict[object, tuple[Share, Callable[[], bool]]] = {}

    def begin(self, share: Share, *, by_task: bool) -> object:
        """The current thread (or task) owns a share from now on; returns what :meth:`end` is given."""
        key = object()
        self._now[key] = (share, _end_of_current(by_task))
        return key

    def end(self, key: object) -> None:
        """It is given back, or not its owner's alone any more. Idempotent."""
        self._now.pop(key, None)

    def restart(self) -> None:
        """Start again, as after a fork: the owners were the parent's."""
        self._now.clear()

    def left(self) -> Mapping[Share, int]:
        """The shares whose owners have ended, and how many of each."""
        return Counter(share for share, has_ended in list(self._now.values()) if has_ended())

    def name_of(self, share: Share) -> PartyName:
        """The party that represents an owner that has ended."""
        return party(self._parties.process, f"{ENDED}{share[0].partition('/')[2]}")


def _end_of_current(by_task: bool) -> Callable[[], bool]:
    task = asyncio.current_task() if by_task and asyncio._get_running_loop() is not None else None  # noqa: SLF001
    if task is not None:
        weak = ref(task)
        return lambda: (still := weak()) is None or still.done()
    thread = threading.current_thread()
    return lambda: not thread.is_alive()
