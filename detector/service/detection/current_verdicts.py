"""Current verdicts and their watchers. A slow watcher skips intermediate verdicts and gets the newest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stilltrue.model import Holds, Verdict

Key = tuple[str, str]
"""The names of a predicate and a scope."""


def key_of(verdict: Verdict) -> Key:
    """The predicate and the scope of a verdict."""
    return verdict.predicate, verdict.snapshot.scope


def differs(verdict: Verdict, before: Verdict | None) -> bool:
    """Whether the answer or the core differs."""
    return before is None or verdict.holds is not before.holds or verdict.core != before.core


class Watch:
    """One watcher's pending news: at most one verdict per key, the newest."""

    def __init__(self, wanted: Callable[[Key], bool]) -> None:
        """``wanted``: selects the verdicts to watch."""
        self._wanted = wanted
        self._news: dict[Key, Verdict] = {}
        self._published: dict[Key, Verdict] = {}
        self._awake = asyncio.Event()

    def offer(self, verdict: Verdict) -> None:
        """Take a new verdict."""
        key = key_of(verdict)
        if self._wanted(key):
            self._news[key] = verdict
            self._awake.set()

    async def news(self, seconds: float) -> list[Verdict]:
        """Wait for verdicts that differ from those returned before, sorted by key; empty after ``seconds`` without any."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    await self._awake.wait()
                    self._awake.clear()
                    fresh = [
                        self._news[key] for key in sorted(self._news) if differs(self._news[key], self._published.get(key))
                    ]
                    self._news.clear()
                    if fresh:
                        self._published.update((key_of(verdict), verdict) for verdict in fresh)
                        return fresh
        except TimeoutError:
            return []


class TooManyWatchersError(Exception):
    """Too many clients are watching."""


class CurrentVerdicts:
    """The newest verdict for each predicate and scope."""

    def __init__(self, *, watchers_max: int) -> None:
        """``watchers_max``: the bound on watchers."""
        self._verdicts: dict[Key, Verdict] = {}
        self._watches: list[Watch] = []
        self._watchers_max = watchers_max

    def all(self) -> list[Verdict]:
        """The current verdicts, sorted by predicate and scope."""
        return [self._verdicts[key] for key in sorted(self._verdicts)]

    def includes(self, verdict: Verdict) -> bool:
        """Whether the current verdict is TRUE for all parties in ``verdict``."""
        before = self._verdicts.get(key_of(verdict))
        return before is not None and before.holds is Holds.TRUE and set(verdict.remainder) <= set(before.remainder)

    def update(self, verdict: Verdict) -> bool:
        """Store a verdict; return whether it differs from the previous one."""
        key = key_of(verdict)
        before = self._verdicts.get(key)
        self._verdicts[key] = verdict
        for watch in self._watches:
            watch.offer(verdict)
        return differs(verdict, before)

    @contextmanager
    def watching(self, wanted: Callable[[Key], bool], *, factor: int = 1) -> Iterator[Watch]:
        """Watch from the current verdicts on. ``factor``: multiple of the bound that applies to this watcher."""
        if len(self._watches) >= factor * self._watchers_max:
            raise TooManyWatchersError(f"{self._watchers_max} clients are already watching (--watchers-max)")
        watch = Watch(wanted)
        for verdict in self.all():
            watch.offer(verdict)
        self._watches.append(watch)
        try:
            yield watch
        finally:
            self._watches.remove(watch)
