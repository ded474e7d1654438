"""Tells open pages that something has changed, by server-sent events: one look at the state for all who watch.

Rules:

1. While anybody watches, the version is looked at every ``STEP_SECONDS``, by one task; each change is an event with it.
2. A watcher without news gets a comment now and then: both ends notice when the other is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from detector.ops.http import Answer

STEP_SECONDS = 0.2
HEARTBEAT_SECONDS = 10.0
RETRY_MILLISECONDS = 2000


class LiveVersions:
    """The version of what the pages show, for any number of watchers."""

    def __init__(self, version: Callable[[], str]) -> None:
        """``version`` looks at the state; it differs whenever a page would."""
        self._version = version
        self._news = asyncio.Event()
        self._watchers = 0
        self._looking: asyncio.Task[None] | None = None

    def answer(self, seen: str) -> Answer:
        """Server-sent events: each version that there is from now on; ``seen``: the one that the client has."""
        unbuffered = {"X-Accel-Buffering": "no"}  # as nginx and its Ingress read it
        return Answer(body="", content_type="text/event-stream", headers=unbuffered, stream=self.events(seen))

    async def events(self, seen: str) -> AsyncIterator[bytes]:
        """An event for each version that is not the one before, beginning with ``seen``; never ends by itself."""
        self._watchers += 1
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look())
        try:
            yield f"retry: {RETRY_MILLISECONDS}\n\n".encode()
            while True:
                news, version = self._news, self._version()
                if version != seen:
                    seen = version
                    yield f"data: {version}\n\n".encode()
                    continue
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), HEARTBEAT_SECONDS)
                    continue
                yield b": nothing new\n\n"
        finally:
            self._watchers -= 1
            if not self._watchers and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    async def _look(self) -> None:
        """Rule 1."""
        known = self._version()
        while True:
            await asyncio.sleep(STEP_SECONDS)
            if (version := self._version()) != known:
                known = version
                self._news.set()
                self._news = asyncio.Event()
