"""Shares of the agent's locks that only their owner can release, and the owners that have ended.

Rules:

1. Only the owner can release a share of an ``RLock``, or a share taken without a ``with`` block from a resource declared
   with ``owner_releases``. A share taken by a ``with`` block is released wherever that block exits: it may be in a generator.
2. The owner is the thread, even if it serves a call; for a lock of tasks it is the task.
3. An owner that has ended is named ``ended:...``, also in the waits for its share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from stilltrue.model import ENDED, PartyName, party
from stilltrue.runtime.parties import Parties, end_of_current

Share = tuple[PartyName, str]
"""The party that took it, and the resource."""


class OwnedShares:
    """The owned shares of one process. Without a lock, as the cut reads them too."""

    def __init__(self, parties: Parties) -> None:
        """``parties`` names the process."""
        self._parties = parties
        self._now: dict[object, tuple[Share, Callable[[], bool]]] = {}

    def begin(self, share: Share, *, by_task: bool) -> object:
        """Record that the current thread (or task) owns a share; return the key for :meth:`end`."""
        key = object()
        self._now[key] = (share, end_of_current(by_task))
        return key

    def end(self, key: object) -> None:
        """The share was released, or parties other than its owner may release it now. Idempotent."""
        self._now.pop(key, None)

    def restart(self) -> None:
        """Start afresh after a fork: the owners belonged to the parent."""
        self._now.clear()

    def left(self) -> Mapping[Share, int]:
        """The number of shares of each kind whose owners have ended."""
        return Counter(share for share, has_ended in list(self._now.values()) if has_ended())

    def name_of(self, share: Share) -> PartyName:
        """The party that stands for an ended owner."""
        return party(self._parties.process, f"{ENDED}{share[0].partition('/')[2]}")
