"""Notifies open pages of changes by server-sent events; the state is polled once for all watchers.

Rules:

1. While there are watchers, one task polls the version every ``STEP_SECONDS``; each new version is an event.
2. Without news, a watcher periodically gets a comment, so that both ends notice when the other is gone.
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
    """Streams the version of the state to any number of watchers."""

    def __init__(self, version: Callable[[], str]) -> None:
        """``version``: computes the version, which changes whenever a page would."""
        self._version = version
        self._news = asyncio.Event()
        self._watchers = 0
        self._poller: asyncio.Task[None] | None = None

    def answer(self, seen: str) -> Answer:
        """A stream of server-sent events with new versions; ``seen``: the client's version."""
        unbuffered = {"X-Accel-Buffering": "no"}  # for nginx and its Ingress
        return Answer(body="", content_type="text/event-stream", headers=unbuffered, stream=self.events(seen))

    async def events(self, seen: str) -> AsyncIterator[bytes]:
        """Yield an event for each new version after ``seen``; never ends."""
        self._watchers += 1
        if self._poller is None:
            self._poller = asyncio.get_running_loop().create_task(self._poll())
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
            if not self._watchers and self._poller is not None:
                self._poller.cancel()
                self._poller = None

    async def _poll(self) -> None:
        """Poll the version (rule 1)."""
        known = self._version()
        while True:
            await asyncio.sleep(STEP_SECONDS)
            if (version := self._version()) != known:
                known = version
                self._news.set()
                self._news = asyncio.Event()
