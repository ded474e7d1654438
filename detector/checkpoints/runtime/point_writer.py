"""Stores completed points without blocking the pipeline: calls of the store run on a thread, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from detector.checkpoints.protocol.points import CompletedPoint
from stilltrue.model import SnapshotId


class PointStore(Protocol):
    """Storage of completed points."""

    def save(self, point: CompletedPoint) -> None:
        """Store ``point``, which then survives a crash. Raises OSError if that fails."""
        ...

    def drop(self, point: SnapshotId) -> None:
        """Delete the point if it exists."""
        ...


class Keeper:
    """Calls ``kept`` for each point once it is durable (at once if there is no store), and ``failed`` if the store fails."""

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
        """Store ``point``."""
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
        """Wait until all calls are done."""
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
