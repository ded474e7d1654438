"""Keeps completed points durably without stopping the work: store calls on a thread, one after another, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from detector.checkpoints.protocol.points import CompletedPoint
from stilltrue.model import SnapshotId


class PointStore(Protocol):
    """Storage of completed points."""

    def save(self, point: CompletedPoint) -> None:
        """Keep ``point``; when this returns it survives a crash. OSError if it cannot be kept."""
        ...

    def drop(self, point: SnapshotId) -> None:
        """Delete it, if it is there."""
        ...


class Keeper:
    """Calls ``kept`` for each point once it is durable (at once where there is no store), ``failed`` if the store fails."""

    def __init__(
        self,
        store: PointStore | None,
        *,
        kept: Callable[[CompletedPoint], None],
        failed: Callable[[OSError], None],
    ) -> None:
        self._store, self._kept, self._failed = store, kept, failed
        self._last: asyncio.Task[None] | None = None

    def keep(self, point: CompletedPoint) -> None:
        """Make ``point`` durable."""
        store = self._store
        if store is None:
            self._kept(point)
        else:
            self._chain(lambda: store.save(point), lambda: self._kept(point))

    def drop(self, point: SnapshotId) -> None:
        """Delete an old point."""
        store = self._store
        if store is not None:
            self._chain(lambda: store.drop(point), lambda: None)

    async def settled(self) -> None:
        """Wait until all that was asked for is done."""
        while self._last is not None and not self._last.done():
            await self._last

    def _chain(self, do: Callable[[], None], then: Callable[[], None]) -> None:
        self._last = asyncio.create_task(self._after(self._last, do, then))

    async def _after(self, before: asyncio.Task[None] | None, do: Callable[[], None], then: Callable[[], None]) -> None:
        if before is not None:
            await before
        try:
            await asyncio.to_thread(do)
        except OSError as error:
            self._failed(error)
        else:
            then()
