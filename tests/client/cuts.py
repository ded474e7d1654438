"""Cuts of a live agent, and threads, for the tests of waits and of atomic steps."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from stilltrue import Agent
from stilltrue.model import SnapshotId
from stilltrue.protocol.report import Report

Alone = Callable[..., Agent]


class Snapshots:
    """The reports of one agent."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    def __call__(self) -> Report:
        report = self.agent.live.marked(SnapshotId(self.agent.live.recorder.colour + 1))
        assert report is not None
        assert self.agent.live.faults == 0
        return report


def started(target: Callable[[], Any], name: str) -> threading.Thread:
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread
