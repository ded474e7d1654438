"""Semaphores of ``multiprocessing`` that have no holder: each process that has one reports that none of its threads holds it.

Rules:

1. A process reports an ended holder for a semaphore if no share is left, it has not acquired one through any of its objects,
   none of its threads is in the semaphore's block, and all threads that it has seen blocked there, in any process, are still
   blocked at the second look (:mod:`~stilltrue.runtime.waits.semaphores.kernel`, rule 3). So nobody has released or acquired it
   in between: its holder had it all the time, and is not in this process.
2. All threads that were blocked must have been seen. So the processes that have the semaphore are found before the threads are
   read, and once more afterwards. A thread that begins to wait later is not woken first.
3. A thread that waits for the semaphore without a limit waits for all processes that have it: for the ended holders of each.
4. What has no holder can only be released by a process that has not acquired it. Only its owner releases an ``RLock``. For
   any other, nothing is reported by a process with a mention of ``release`` in the program's own files, other than of
   what the same function has acquired.
5. The agent's own thread finds this out. It looks for the processes less and less often while nothing changes.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stilltrue.model import ENDED, ProcessName, party
from stilltrue.protocol.report import Hold, ResourceTarget
from stilltrue.runtime.introspection.linux.child_processes import ChildProcess, process_at
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.holders.own_releases import mentions_of_releases
from stilltrue.runtime.waits.resolvers.processes import named
from stilltrue.runtime.waits.semaphores.kernel import Semaphore, Sleeper, Users, sleepers_at, users_of
from stilltrue.runtime.waits.semaphores.own import MODULE, OwnSemaphores, is_taken_elsewhere
from stilltrue.runtime.waits.wait import Referable, SeenWait

LEFT_MAX = 16
"""With more semaphores that others have taken, nothing is reported."""
AGAIN_SECONDS_MIN, AGAIN_SECONDS_MAX = 0.5, 60.0
"""The workers of an idle pool wait for a lock all day."""
_SHARE_OF_TIME = 0.02


@dataclass(frozen=True, slots=True, eq=False)
class LeftSemaphore(Referable):
    """A semaphore that this process has not acquired, its objects here, who has it, and the threads that were blocked there."""

    key: Semaphore
    locks: tuple[OwnRef, ...]
    users: Users
    sleepers: frozenset[Sleeper]
    seen: float

    @property
    def objects(self) -> list[Any]:
        """Those of its objects here that still exist."""
        return [lock for one in self.locks if (lock := one()) is not None]

    @property
    def is_taken(self) -> bool:
        """Whether no share is left, and this process has none."""
        return is_taken_elsewhere(self.objects)

    def is_left(self) -> bool:
        """Rule 1, as far as this process can tell. What it has is looked at first: others may release it meanwhile."""
        return self.is_taken and all(one.sleeps() for one in self.sleepers)

    @property
    def targets(self) -> tuple[ResourceTarget, ...]:
        """Rule 3: what each process that has it reports."""
        names = [_resource(self.key, process) for process in sorted(self.users)]
        return () if None in names else tuple(ResourceTarget(resource=name) for name in names if name is not None)


class _Known:
    """What was last found in this process (``pid``), and when to look again."""

    pid = 0
    own = OwnSemaphores()
    releases = mentions_of_releases(exits=True)
    users: dict[Semaphore, Users] = {}  # noqa: RUF012 - replaced as a whole
    seen: dict[Semaphore, LeftSemaphore] = {}  # noqa: RUF012 - replaced as a whole
    asked: frozenset[Semaphore] = frozenset()
    asked_at = again = not_before = next_tick = float("-inf")
    interval = AGAIN_SECONDS_MIN

    @classmethod
    def left(cls) -> dict[Semaphore, LeftSemaphore]:
        """The semaphores for which rule 2 holds."""
        return {key: one for key, one in cls.seen.items() if one.seen < cls.asked_at} if cls.pid == os.getpid() else {}


def find_left_semaphores() -> None:
    """Rule 5."""
    now = time.monotonic()
    if MODULE not in sys.modules or (_Known.pid == os.getpid() and now < _Known.next_tick):
        return
    if _Known.pid != os.getpid():
        _Known.pid, _Known.own, _Known.users, _Known.seen, _Known.asked = os.getpid(), OwnSemaphores(), {}, {}, frozenset()
    asked = frozenset(_taken_elsewhere())
    if asked:
        _find_users(asked, now)
    begun = time.thread_time()
    users = {key: users for key, users in _Known.users.items() if key in asked}
    kept = {key: one for key, one in _Known.seen.items() if key in users and _is_seen_still(one, users[key])}
    others = {key: those for key, those in users.items() if key not in kept}
    sleepers = sleepers_at(others) if others else {}
    found = {
        key: LeftSemaphore(key, _Known.own.objects[key], users[key], those, time.monotonic())
        for key, those in sleepers.items()
        if those
    }
    same = {key: one if one.users == users[key] else replace(one, users=users[key]) for key, one in kept.items()}
    _Known.seen = same | found
    _Known.next_tick = now + max(AGAIN_SECONDS_MIN, (time.thread_time() - begun) / _SHARE_OF_TIME)


def _find_users(asked: frozenset[Semaphore], now: float) -> None:
    """Reads the memory maps of all processes, which takes some ten milliseconds of processor time."""
    living = {key: _living(users) for key, users in _Known.users.items()}
    same = asked <= _Known.asked and living == _Known.users
    _Known.users = living
    confirmed = all(one.seen < _Known.asked_at for key, one in _Known.seen.items() if key in asked)
    if now < _Known.not_before or (same and confirmed and now < _Known.again):
        return
    begun = time.thread_time()
    found = users_of(asked)
    same = same and confirmed and found == living
    _Known.users, _Known.asked, _Known.asked_at = found, asked, now
    _Known.interval = min(2 * _Known.interval, AGAIN_SECONDS_MAX) if same else AGAIN_SECONDS_MIN
    _Known.not_before = now + max(AGAIN_SECONDS_MIN, (time.thread_time() - begun) / _SHARE_OF_TIME)
    _Known.again = now + _Known.interval


def _living(users: Users) -> Users:
    """Those that have not ended."""
    now = {key: process_at(key[0]) for key in users}
    return {key: users[key] for key, process in now.items() if process is not None and process.key == key}


def _is_seen_still(one: LeftSemaphore, users: Users) -> bool:
    """Whether no process has got it since, and all threads are still blocked; further ones do not matter."""
    return users.keys() <= one.users.keys() and all(sleeper.sleeps() for sleeper in one.sleepers)


def _taken_elsewhere() -> Iterable[Semaphore]:
    """The semaphores that this process has not acquired, and that no code of the program releases without that (rule 4)."""
    _Known.own.find()
    found = []
    for key, weak in _Known.own.objects.items():
        locks = [lock for one in weak if (lock := one()) is not None]
        if is_taken_elsewhere(locks) and (_is_owned(locks) or (_Known.releases.search() and not _Known.releases.found)):
            found.append(key)
    return found if len(found) <= LEFT_MAX else ()


def _is_owned(locks: Iterable[object]) -> bool:
    return all(type(one).__name__ == "RLock" for one in locks)


def left_semaphores(process: ProcessName, inside: Callable[[Any], Sequence[Any]]) -> dict[Hold, LeftSemaphore]:
    """Rule 1, for a cut: the ended holders that ``process``, this one, reports.

    ``inside``: who is in a lock's block. A child that was forked in a block has not acquired the lock, but releases it there.
    """
    left = _Known.left()
    own = process_at(os.getpid()) if left else None
    found = {}
    for key, one in left.items() if own is not None else ():
        resource = _resource(key, own.key) if own is not None else None
        if resource is not None and one.is_taken and not any(map(inside, one.objects)):
            name = party(process, f"{ENDED}the holder of a lock of multiprocessing ({key[2]})")
            found[Hold(party=name, resource=resource)] = one
    return found


def _resource(key: Semaphore, process: tuple[int, int]) -> str | None:
    return named(f"holder of semaphore {':'.join(map(str, key))}", ChildProcess(*process, ""))


def wait_for_ended_holder(key: Semaphore | None) -> SeenWait | None:
    """Rule 3: the wait of a thread that waits for this semaphore without a limit; None if it may have a holder."""
    left = None if key is None else _Known.left().get(key)
    if left is None or not left.targets:
        return None
    return SeenWait(on=left, enders=left.targets, what="a lock of multiprocessing that {} never released")
