"""The verdicts as they stand, and those who watch them: each gets the newest of what changed, however slow it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stilltrue.model import Holds, Verdict

Key = tuple[str, str]
"""A predicate's name and a scope's."""


def key_of(verdict: Verdict) -> Key:
    """The predicate and the scope of a verdict."""
    return verdict.predicate, verdict.snapshot.scope


def differs(verdict: Verdict, before: Verdict | None) -> bool:
    """Whether a verdict is news: another answer, or other parties in the core."""
    return before is None or verdict.holds is not before.holds or verdict.core != before.core


class Watch:
    """One watcher's news: at most one verdict for each key, the newest."""

    def __init__(self, wanted: Callable[[Key], bool]) -> None:
        """``wanted``: which verdicts it asked for."""
        self._wanted = wanted
        self._news: dict[Key, Verdict] = {}
        self._published: dict[Key, Verdict] = {}
        self._awake = asyncio.Event()

    def offer(self, verdict: Verdict) -> None:
        """A verdict was given."""
        key = key_of(verdict)
        if self._wanted(key):
            self._news[key] = verdict
            self._awake.set()

    async def news(self, seconds: float) -> list[Verdict]:
        """The verdicts that differ from those published before, by key; empty when ``seconds`` pass without any."""
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
    """The bound on watchers is reached."""


class CurrentVerdicts:
    """The newest verdict for each predicate and scope."""

    def __init__(self, *, watchers_max: int) -> None:
        """``watchers_max``: more are refused."""
        self._verdicts: dict[Key, Verdict] = {}
        self._watches: list[Watch] = []
        self._watchers_max = watchers_max

    def all(self) -> list[Verdict]:
        """The verdicts as they stand, by predicate and scope."""
        return [self._verdicts[key] for key in sorted(self._verdicts)]

    def includes(self, verdict: Verdict) -> bool:
        """Whether the verdict as it stands is TRUE of all that this one is."""
        before = self._verdicts.get(key_of(verdict))
        return before is not None and before.holds is Holds.TRUE and set(verdict.remainder) <= set(before.remainder)

    def given(self, verdict: Verdict) -> bool:
        """A verdict was given: whether it differs from the one before."""
        key = key_of(verdict)
        before = self._verdicts.get(key)
        self._verdicts[key] = verdict
        for watch in self._watches:
            watch.offer(verdict)
        return differs(verdict, before)

    @contextmanager
    def watching(self, wanted: Callable[[Key], bool], *, times: int = 1) -> Iterator[Watch]:
        """A watch that begins with the verdicts as they stand. ``times`` the bound is what this watcher may exceed it to."""
        if len(self._watches) >= times * self._watchers_max:
            raise TooManyWatchersError(f"{self._watchers_max} clients are watching already (--watchers-max)")
        watch = Watch(wanted)
        for verdict in self.all():
            watch.offer(verdict)
        self._watches.append(watch)
        try:
            yield watch
        finally:
            self._watches.remove(watch)
