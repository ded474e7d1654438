"""Proves that locks have no other holders than the known ones (mostly none): which locks, when, and for how long that is valid.

Rules:

1. A proof is tried only for a lock without a known holder, or a semaphore whose known holders are all blocked, once a party
   has waited for it without running since the previous cut. It runs on the agent's own thread after the cut. If it fails, it
   is tried again after twice the time.
2. A proof is valid while none of its waiters has run and the lock is locked (the semaphore has no free share).
3. At the second look it is tried again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

from stilltrue.runtime.concurrent_reads import items_of
from stilltrue.runtime.introspection.frames import frames_of_threads, innermost_frames_of_others
from stilltrue.runtime.introspection.tasks import blocking_future
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.parties import Parties
from stilltrue.runtime.waits.call_stack import where_is
from stilltrue.runtime.waits.orphaned_locks.census import take_census
from stilltrue.runtime.waits.orphaned_locks.proof import Proof
from stilltrue.runtime.waits.process_view import LiveProcessView
from stilltrue.runtime.waits.reachability.thread_waits import SOON_SECONDS, ShareOfTime
from stilltrue.runtime.waits.resolvers.locks import is_exhausted
from stilltrue.runtime.waits.wait import CallStack, Ender

CANDIDATES_MAX, SEARCHED_MAX = 100, 8
AGAIN_SECONDS, AGAIN_SECONDS_MAX = 0.1, 60.0
_SETTLE_SECONDS = 0.005
"""Time for a thread that has just got a lock to run."""
_Frames = Mapping[int, FrameType]


@dataclass(frozen=True, slots=True)
class _Waiter:
    """A waiting thread and its position, or a waiting task and the future it is suspended on."""

    ident: int = 0
    where: tuple[object, ...] = ()
    task: OwnRef | None = None
    future: OwnRef | None = None

    def still_waits(self, frames: _Frames) -> bool:
        """Whether it has not run since; ``frames``: the innermost frame of each thread."""
        if self.task is None or self.future is None:
            return where_is(self.ident, frames.get(self.ident)) == self.where
        task, future = self.task(), self.future()
        return task is not None and future is not None and blocking_future(task) is future


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """A lock without enough known holders, and its waiters."""

    thing: OwnRef
    waiters: tuple[_Waiter, ...]
    due: float
    again: float = AGAIN_SECONDS
    holders: int | None = None
    """The proved number of holders (None: not proved)."""

    def is_valid(self, frames: _Frames) -> bool:
        """Rule 2."""
        thing = self.thing()
        return thing is not None and is_exhausted(thing) and all(one.still_waits(frames) for one in self.waiters)


class LocksLeftBehind:
    """The proofs of one process."""

    def __init__(self, parties: Parties) -> None:
        """``parties`` names the waiters."""
        self._parties = parties
        self._candidates: dict[int, _Candidate] = {}
        self._share = ShareOfTime()

    def at_cut(self) -> dict[int, int]:
        """By lock identity, the proved number of holders; no other party will release the lock."""
        proved = {key: (one, one.holders) for key, one in items_of(self._candidates) if one.holders is not None}
        frames = innermost_frames_of_others() if proved else {}
        return {key: holders for key, (one, holders) in proved.items() if one.is_valid(frames)}

    def has_failed(self, thing: Any) -> bool:
        """Whether the proof for a lock has failed more than once: its holder may release it, or others may."""
        one = self._candidates.get(id(thing))
        return one is not None and one.thing() is thing and one.holders is None and one.again >= 4 * AGAIN_SECONDS

    def remember(self, partly_held: Mapping[int, tuple[Any, Sequence[CallStack]]]) -> None:
        """Store the locks whose holders were not all found at this cut, with the stacks that wait for each (rule 1)."""
        if not partly_held and not self._candidates:
            return
        now, frames, before = time.monotonic(), innermost_frames_of_others(), self._candidates
        found: dict[int, _Candidate] = {}
        for key, (thing, waiting) in list(partly_held.items())[:CANDIDATES_MAX]:
            known = before.get(key)
            if known is not None and known.is_valid(frames):
                found[key] = known
            else:
                again = AGAIN_SECONDS if known is None or known.thing() is not thing else known.again
                found[key] = _Candidate(OwnRef(thing), tuple(map(_waiter, waiting)), now + again, again)
        self._candidates = found

    def search(self, now: float) -> None:
        """Try the proofs that are due, within the share of time for them, on the agent's own thread. ``now`` is epoch time."""
        at = time.monotonic()
        if not self._share.has_some(at):
            return
        frames = innermost_frames_of_others()
        due = {key for key, one in items_of(self._candidates) if one.holders is None and one.due <= at and one.is_valid(frames)}
        if not due:
            return
        begun = time.thread_time()
        proved = self._proved(due, now)
        self._share.spend(time.thread_time() - begun)
        for key in due:
            one = self._candidates.get(key)
            if one is not None:
                again = min(2 * one.again, AGAIN_SECONDS_MAX)
                self._candidates[key] = proved.get(key) or replace(one, due=at + again, again=again)

    def is_due_soon(self) -> bool:
        """Whether a proof that is missing will be tried again before long."""
        return any(one.holders is None and one.again < SOON_SECONDS for _, one in items_of(self._candidates))

    def at_look(self, now: float) -> dict[int, int]:
        """By lock identity, the number of holders of the locks that are proved again (rule 3)."""
        wanted = {key for key, one in items_of(self._candidates) if one.holders is not None}
        proved = self._proved(wanted, now) if wanted else {}
        return {key: one.holders for key, one in proved.items() if one.holders is not None}

    def _proved(self, wanted: Iterable[int], now: float) -> dict[int, _Candidate]:
        """The locks with these identities for which the proof succeeds."""
        view = LiveProcessView(self._parties, now)
        view.read_all()
        asked = [(thing, tuple(stacks)) for key in wanted if (one := view.partly_held.get(key)) for thing, stacks in (one,)]
        inside = [_stacks_of(view.inside(thing), view) for thing, _ in asked[:SEARCHED_MAX]]
        candidates = [
            _Candidate(OwnRef(thing), tuple(map(_waiter, stacks)), 0.0, holders=len(view.inside(thing)))
            for thing, stacks in asked[:SEARCHED_MAX]
        ]
        waiting = [stacks for _, stacks in asked[:SEARCHED_MAX]]
        del view, asked
        time.sleep(_SETTLE_SECONDS)
        census = take_census() if candidates else None
        if census is None:
            return {}
        running = tuple(frames_of_threads().values())
        found = {}
        for candidate, stacks, holders in zip(candidates, waiting, inside, strict=True):
            thing = candidate.thing()
            proved = thing is not None and Proof(thing, stacks, census, holders).holds(running)
            if proved and candidate.is_valid(innermost_frames_of_others()):
                found[id(thing)] = candidate
            del thing
        return found


def _stacks_of(holders: Iterable[Ender], view: LiveProcessView) -> list[CallStack]:
    """The stacks of the known holders."""
    tasks, threads = view.stacks_of_tasks(), view.stacks()
    found = (
        tasks.get(one) if isinstance(one, asyncio.Task) else threads.get(one) if isinstance(one, int) else None
        for one in holders
    )
    return [one for one in found if one is not None]


def _waiter(stack: CallStack) -> _Waiter:
    if stack.task is not None:
        return _Waiter(task=OwnRef(stack.task), future=OwnRef(stack.future))
    return _Waiter(stack.ident, where_is(stack.ident, stack.frames[0]))
