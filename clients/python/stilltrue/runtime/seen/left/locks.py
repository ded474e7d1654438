"""Locks that nobody has besides the holders that are known, mostly none: which are asked about, when, and whether that stands.

Rules:

1. Only a lock of which no holder is found is asked about, or a semaphore all of whose holders that are found are blocked, once
   somebody has waited for it, without running, since the cut before; in the agent's own thread, after the cut. What cannot be
   proved is tried again after twice the time.
2. What was proved stands while none of those who waited then has run, and the lock is locked (a semaphore has no share).
3. At the second look it is proved once more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

from stilltrue.runtime.changing import items_of
from stilltrue.runtime.introspection.frames import frames_of_threads, innermost_frames
from stilltrue.runtime.introspection.tasks import blocking_future
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.parties import Parties
from stilltrue.runtime.seen.call_stack import where_is
from stilltrue.runtime.seen.left.census import take_census
from stilltrue.runtime.seen.left.proof import Proof
from stilltrue.runtime.seen.scene import LiveScene
from stilltrue.runtime.seen.wait import CallStack, Ender
from stilltrue.runtime.seen.waits.locks import is_taken

CANDIDATES_MAX, SEARCHED_MAX = 100, 8
AGAIN_SECONDS, AGAIN_SECONDS_MAX = 0.1, 60.0
_SETTLE_SECONDS = 0.005
"""Time for a thread that has got a lock, and not run since, to run."""
_SHARE_OF_TIME = 0.02
"""How much of the time may be spent on this."""
_Frames = Mapping[int, FrameType]


@dataclass(frozen=True, slots=True)
class _Waiter:
    """Somebody who waits: a thread and where it stood, or a task and what it hung on."""

    ident: int = 0
    where: tuple[object, ...] = ()
    task: OwnRef | None = None
    future: OwnRef | None = None

    def stands(self, frames: _Frames) -> bool:
        """Whether it has not run since; ``frames``: the innermost of each thread."""
        if self.task is None or self.future is None:
            return where_is(self.ident, frames.get(self.ident)) == self.where
        task, future = self.task(), self.future()
        return task is not None and future is not None and blocking_future(task) is future


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """A lock of which no holder is found, and those who wait for it."""

    thing: OwnRef
    waiters: tuple[_Waiter, ...]
    due: float
    again: float = AGAIN_SECONDS
    holders: int | None = None
    """How many have it: nobody else, as is proved (None: it is not)."""

    def stands(self, frames: _Frames) -> bool:
        """Rule 2."""
        thing = self.thing()
        return thing is not None and is_taken(thing) and all(one.stands(frames) for one in self.waiters)


class LeftLocks:
    """Those of one process."""

    def __init__(self, parties: Parties) -> None:
        """``parties`` names those who wait."""
        self._parties = parties
        self._candidates: dict[int, _Candidate] = {}
        self._not_before = 0.0

    def at_cut(self) -> dict[int, int]:
        """By the identity of a lock, how many have it, of those of which it is proved that nobody else will give them back."""
        proved = {key: (one, one.holders) for key, one in items_of(self._candidates) if one.holders is not None}
        frames = innermost_frames() if proved else {}
        return {key: holders for key, (one, holders) in proved.items() if one.stands(frames)}

    def remember(self, unheld: Mapping[int, tuple[Any, Sequence[CallStack]]]) -> None:
        """The locks that were found without a holder at this cut, and who waits for each (rule 1)."""
        if not unheld and not self._candidates:
            return
        now, frames, before = time.monotonic(), innermost_frames(), self._candidates
        found: dict[int, _Candidate] = {}
        for key, (thing, stands) in list(unheld.items())[:CANDIDATES_MAX]:
            known = before.get(key)
            if known is not None and known.stands(frames):
                found[key] = known
            else:
                again = AGAIN_SECONDS if known is None or known.thing() is not thing else known.again
                found[key] = _Candidate(OwnRef(thing), tuple(map(_waiter, stands)), now + again, again)
        self._candidates = found

    def search(self, now: float) -> None:
        """Prove what is due, as long as little time goes into that: in the agent's own thread. ``now`` is the time (epoch)."""
        at = time.monotonic()
        if at < self._not_before:
            return
        frames = innermost_frames()
        due = {key for key, one in items_of(self._candidates) if one.holders is None and one.due <= at and one.stands(frames)}
        if not due:
            return
        begun = time.thread_time()
        proved = self._proved(due, now)
        self._not_before = at + (time.thread_time() - begun) / _SHARE_OF_TIME
        for key in due:
            one = self._candidates.get(key)
            if one is not None:
                again = min(2 * one.again, AGAIN_SECONDS_MAX)
                self._candidates[key] = proved.get(key) or replace(one, due=at + again, again=again)

    def at_look(self, now: float) -> dict[int, int]:
        """Those that are proved once more (rule 3)."""
        wanted = {key for key, one in items_of(self._candidates) if one.holders is not None}
        proved = self._proved(wanted, now) if wanted else {}
        return {key: one.holders for key, one in proved.items() if one.holders is not None}

    def _proved(self, wanted: Iterable[int], now: float) -> dict[int, _Candidate]:
        """Those of the locks of these identities of which it is proved."""
        scene = LiveScene(self._parties, now)
        scene.read_all()
        asked = [(thing, tuple(stands)) for key in wanted if (one := scene.unheld.get(key)) for thing, stands in (one,)]
        inside = [_stacks_of(scene.inside(thing), scene) for thing, _ in asked[:SEARCHED_MAX]]
        candidates = [
            _Candidate(OwnRef(thing), tuple(map(_waiter, stands)), 0.0, holders=len(scene.inside(thing)))
            for thing, stands in asked[:SEARCHED_MAX]
        ]
        waiting = [stands for _, stands in asked[:SEARCHED_MAX]]
        del scene, asked
        time.sleep(_SETTLE_SECONDS)
        census = take_census() if candidates else None
        if census is None:
            return {}
        running = tuple(frames_of_threads().values())
        found = {}
        for candidate, stands, holders in zip(candidates, waiting, inside, strict=True):
            thing = candidate.thing()
            proved = thing is not None and Proof(thing, stands, census, holders).holds(running)
            if proved and candidate.stands(innermost_frames()):
                found[id(thing)] = candidate
            del thing
        return found


def _stacks_of(holders: Iterable[Ender], scene: LiveScene) -> list[CallStack]:
    """Where the holders stand that are known."""
    tasks, threads = scene.stacks_of_tasks(), scene.stacks()
    found = (
        tasks.get(one) if isinstance(one, asyncio.Task) else threads.get(one) if isinstance(one, int) else None
        for one in holders
    )
    return [one for one in found if one is not None]


def _waiter(stack: CallStack) -> _Waiter:
    if stack.task is not None:
        return _Waiter(task=OwnRef(stack.task), future=OwnRef(stack.future))
    return _Waiter(stack.ident, where_is(stack.ident, stack.frames[0]))
