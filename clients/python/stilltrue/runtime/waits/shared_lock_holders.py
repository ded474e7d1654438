"""Finds the holders of multiprocessing's locks: rules 3 and 4 of :mod:`~stilltrue.runtime.waits.resolvers.shared_locks`.

For the locks of managers, see :mod:`~stilltrue.runtime.waits.resolvers.manager_locks`.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from stilltrue.model import PartyName
from stilltrue.protocol.report import Hold
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.holders.own_releases import mentions_of_releases
from stilltrue.runtime.waits.process_view import LiveProcessView
from stilltrue.runtime.waits.resolvers import manager_locks
from stilltrue.runtime.waits.resolvers.locks import RELEASING, is_manager_lock, is_shared_lock
from stilltrue.runtime.waits.resolvers.shared_locks import is_owned, name_of
from stilltrue.runtime.waits.semaphores.own import registered_semaphores
from stilltrue.runtime.waits.wait import Ender, SeenWait


class SharedLocks:
    """The locks of one process."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._of: dict[PartyName, tuple[OwnRef, ...]] = {}
        self._managers: dict[PartyName, tuple[OwnRef, ...]] = {}
        self._releases = mentions_of_releases(exits=False)

    def holds(self, view: LiveProcessView) -> tuple[Hold, ...]:
        """The parties that hold locks at a cut."""
        of: dict[PartyName, tuple[OwnRef, ...]] = {}
        found: list[Hold] = []
        for lock, holders in view.shared_locks() if _may_hold() or manager_locks.has_locks() else ():
            party, name = view.party_of(holders[0]) if len(holders) == 1 else None, _resource_of(lock)
            if party is not None and name is not None and _has_acquired(lock, holders[0], view):
                found.append(Hold(party=party, resource=name))
                of[party] = (*of.get(party, ()), OwnRef(lock))
        managers: dict[PartyName, tuple[OwnRef, ...]] = {}
        for manager, name in manager_locks.own_managers():
            party = view.party_of(threading.main_thread().ident or 0)
            if party is not None:
                found.append(Hold(party=party, resource=name))
                managers[party] = (*managers.get(party, ()), OwnRef(manager))
        self._of, self._managers = of, managers  # each in one step: a look in another thread may read it
        return tuple(found)

    def managers_of(self, party: PartyName | None) -> tuple[Any, ...]:
        """The managers that end at the latest when this party does."""
        every = self._managers.get(party, ()) if party is not None else ()
        return tuple(one for weak in every if (one := weak()) is not None)

    def released_through(self, party: PartyName | None) -> SeenWait | None:
        """What other parties of this process may do to release a party's locks at the newest cut (rule 4)."""
        weak = () if party is None else self._of.get(party, ())
        locks = tuple(lock for one in weak if (lock := one()) is not None and not _is_owned(lock))
        return SeenWait(on=locks[0], enders=None, ended_through=locks, ending_names=RELEASING) if locks else None

    def doubt_of(self, party: PartyName | None) -> str:
        """Why a party's locks may be released by another process, as text; empty: they may not."""
        if self.released_through(party) is None:
            return ""
        is_complete = self._releases.search()
        if self._releases.found:
            return f"{self._releases.found}: another process may release the lock of multiprocessing that it holds"
        return "" if is_complete else "not all files of the program have been searched for releases yet"


def _resource_of(lock: Any) -> str | None:
    return manager_locks.name_of(lock) if is_manager_lock(lock) else name_of(lock)


def _is_owned(lock: Any) -> bool:
    return manager_locks.is_owned(lock) if is_manager_lock(lock) else is_owned(lock)


def _has_acquired(lock: Any, holder: Ender, view: LiveProcessView) -> bool:
    """Whether the holder, which is in the lock's block, has acquired it in this process."""
    if not is_manager_lock(lock):
        return _count(lock) > 0
    return not isinstance(holder, int) or manager_locks.holds_itself(lock, holder, view)


def _count(lock: Any) -> int:
    """How many times this process has acquired a lock and not released it."""
    count = getattr(attribute_of(lock, "_semlock"), "_count", None)
    return int(count()) if count is not None else 0


def _may_hold() -> bool:
    """Whether this process may hold such a lock: one it has made or inherited, or, in a started child, any."""
    module = sys.modules.get("multiprocessing.synchronize")
    if module is None:
        return False
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.__dict__.get("_parent_process") is not None:
        return True
    return any(is_shared_lock(one) and _count(one) > 0 for one in registered_semaphores())
