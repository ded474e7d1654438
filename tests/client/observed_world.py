"""The report of a process while a test's body runs in its handler, and helpers to read it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from stilltrue.protocol.report import CallTarget, LocalWait, Report
from tests.client import since_311
from tests.client.look.worlds import PATIENCE_SECONDS, LoopWorld, report_of

Call = Callable[..., Any]
Body = Callable[["World"], Awaitable[Any]]


class World(LoopWorld):
    """A front service whose handler runs a test's body; some of its calls are stuck in the back service."""

    async def report(
        self, body: Body, *, stuck: int, timeout: float | None = None, at_the_cut: Callable[[], object] = lambda: None
    ) -> Report:
        """The front's report while ``body`` runs in its handler and ``stuck`` calls of it are stuck; then all are released.

        ``at_the_cut`` runs right before the cut, while the loop does nothing else.
        """
        self.body = lambda _: body(self)
        call: Any = self.outside.unary_unary("/t.T/Do")(b"", timeout=timeout)
        while sum(served.serving for served in self.back.live.recorder.calls_served.values()) < stuck or self.busy() > stuck:
            await asyncio.sleep(0.002)
        await asyncio.sleep(0.01)
        at_the_cut()
        report = report_of(self.front)
        self.go.set()
        assert await call == b"done"
        assert self.front.live.faults == self.back.live.faults == 0
        async with since_311.timeout(PATIENCE_SECONDS):
            while not _is_settled(report_of(self.front)):
                await asyncio.sleep(0.002)
        return report

    def busy(self) -> int:
        return len(self.front.live.recorder.calls_made)


def _is_settled(report: Report) -> bool:
    return not report.served and not report.waits and all(made.doubtful for made in report.made)


def of(report: Report, waiter: str) -> list[LocalWait]:
    return [wait for wait in report.waits if wait.waiter == waiter]


def handler(report: Report) -> str:
    (served,) = report.served
    assert served.party.startswith("front/Do#")
    assert served.serving
    return served.party


def subtasks(report: Report) -> dict[Any, LocalWait]:
    """The waits for calls by party, except the handler's own."""
    return {
        wait.waiter: wait for wait in report.waits if isinstance(wait.among[0], CallTarget) and wait.waiter != handler(report)
    }
