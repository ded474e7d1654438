"""Shared by the tests of the look for termination: what it reports of a process, and places where work stands."""

from __future__ import annotations

import threading
from typing import Any

from stilltrue import Agent
from stilltrue.model import SnapshotId
from stilltrue.protocol.requests.look import LookRequest
from tests.client.look.worlds import PATIENCE_SECONDS


def acting(agent: Agent) -> tuple[str, ...]:
    """The unaccounted activity, without the test runner's own threads."""
    texts = agent.looker().look(LookRequest(snapshot=SnapshotId(1), activity=True)).unaccounted
    return tuple(text for text in texts if "/tests/client/look/" in text or "front/" in text)


class Gate:
    """A place where test work stands until released; the agent must not take it for a wait."""

    def __init__(self) -> None:
        self.reached = threading.Semaphore(0)
        self.go = threading.Event()

    def work(self, *_: object) -> None:
        """Stand here, in a wait with its own timeout."""
        self.reached.release()
        assert self.go.wait(PATIENCE_SECONDS)

    def wait(self, *_: object) -> None:
        """Stand here, in a wait without a timeout."""
        self.reached.release()
        self.go.wait()

    def is_reached(self) -> None:
        assert self.reached.acquire(timeout=PATIENCE_SECONDS)


def echo(request: bytes, context: Any) -> bytes:
    return request
