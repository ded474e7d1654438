"""A sidecar's program, driven by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from detector.sidecar.tracking.calls import InboundCall, OutboundCall
from detector.sidecar.tracking.program import Program
from stilltrue.model import ProcessId, ProcessName, SnapshotId
from stilltrue.protocol.books.ledger import ChannelRecord
from stilltrue.protocol.recorder import Recorder
from stilltrue.protocol.report import CallTarget, Report
from stilltrue.runtime.recorder import LockedRecorder

STOCK = ChannelRecord("stock:50051")


class Beside:
    """A sidecar's program, driven by hand; ``later`` runs what was put off."""

    def __init__(self, **more: Any) -> None:
        process = ProcessId(service="orders", instance=ProcessName("orders"), incarnation=1)
        self.now = 1000.0
        self.live = LockedRecorder(lambda: Recorder(process=process), clock=lambda: self.now)
        self.put_off: list[Callable[[], None]] = []
        self.warnings: list[str] = []
        self.program = Program(self.live, later=lambda _, do: self.put_off.append(do), warn=self.warnings.append, **more)
        self._cuts = 0

    def comes(self, trace: str = "", timeout: float | None = None) -> InboundCall:
        return self.program.arrives("/s/Place", None, timeout, trace.encode())

    def calls(self, trace: str = "", party: str = "", *, asked: bool = True, timeout: float | None = None) -> OutboundCall:
        call, _ = self.program.calls("/s/Reserve", STOCK, timeout, trace=trace.encode(), party=party)
        if asked:
            self.program.asked(call)
        return call

    def later(self, seconds: float = 1.0) -> None:
        self.now += seconds
        put_off, self.put_off = self.put_off, []
        for do in put_off:
            do()

    def cut(self) -> Report:
        self._cuts += 1
        report = self.live.marked(SnapshotId(self._cuts))
        assert report is not None
        return report

    @property
    def waits(self) -> dict[str, tuple[int, set[int]]]:
        found = {}
        for wait in self.cut().waits:
            assert wait.uncoloured
            targets = {int(target.number) for target in wait.among if isinstance(target, CallTarget)}
            found[str(wait.waiter)] = (wait.needs, targets)
        return found

    @property
    def full(self) -> bool:
        report = self.cut()
        (pool,) = report.pools
        return pool.size is not None and sum(call.serving for call in report.served) >= pool.size
