"""A sidecar's program, driven by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from detector.sidecar.tracking.calls import InboundCall, OutboundCall
from detector.sidecar.tracking.pool import QUEUED_MIN
from detector.sidecar.tracking.possible_waits import POSSIBLE_MIN
from detector.sidecar.tracking.program import Program
from stilltrue.model import PartyName, ProcessId, ProcessName, SnapshotId
from stilltrue.protocol.books.ledger import ChannelRecord
from stilltrue.protocol.recorder import Recorder
from stilltrue.protocol.report import CallTarget, PartyTarget, Report
from stilltrue.protocol.requests.look import LookRequest, Suspect
from stilltrue.runtime.locked_recorder import LockedRecorder

STOCK = ChannelRecord("stock:50051")


class Beside:
    """A sidecar's program, driven by hand; ``later`` runs what was put off. A ``trace`` may be several ids, with spaces."""

    def __init__(self, name: str = "orders", **more: Any) -> None:
        process = ProcessId(service=name, instance=ProcessName(name), incarnation=1)
        self.channel = ChannelRecord("elsewhere:50051")
        self.now = 1000.0
        self.live = LockedRecorder(lambda: Recorder(process=process), clock=lambda: self.now)
        self.put_off: list[Callable[[], None]] = []
        self.warnings: list[str] = []
        self.program = Program(self.live, later=lambda _, do: self.put_off.append(do), warn=self.warnings.append, **more)
        self._cuts = 0

    def comes(self, trace: str = "", timeout: float | None = None) -> InboundCall:
        return self.program.arrives("/s/Place", None, timeout, _ids(trace))

    def calls(self, trace: str = "", party: str = "", *, asked: bool = True, timeout: float | None = None) -> OutboundCall:
        call, _ = self.program.calls("/s/Reserve", STOCK, timeout, traces=_ids(trace), party=party)
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
        """The known waits: by party, how many of which calls it needs."""
        found = {}
        for wait in self.cut().waits:
            assert wait.uncoloured
            if wait.number >= QUEUED_MIN:
                continue
            targets = {int(target.number) for target in wait.among if isinstance(target, CallTarget)}
            found[str(wait.waiter)] = (wait.needs, targets)
        return found

    @property
    def possible(self) -> dict[str, set[str]]:
        """The possible waits: by party, the parties and calls that it may wait for."""
        found: dict[str, set[str]] = {}
        for wait in self.cut().waits:
            if wait.number >= POSSIBLE_MIN:
                targets = {str(target.party if isinstance(target, PartyTarget) else target.number) for target in wait.among}  # type: ignore[union-attr]
                found[str(wait.waiter)] = targets
        return found

    @property
    def queued(self) -> dict[str, set[str]]:
        """The calls that counted as served and are queued: each with those that it waits for."""
        found = {}
        for wait in self.cut().waits:
            if QUEUED_MIN <= wait.number < POSSIBLE_MIN:
                found[str(wait.waiter)] = {str(target.party) for target in wait.among if isinstance(target, PartyTarget)}
        return found

    def doubt(self, party: str, pool: str = "") -> str:
        """Why the second look leaves ``party`` in doubt (empty: it does not); ``pool``: why the pool may not be full."""
        waits = tuple(wait.number for wait in self.cut().waits if wait.waiter == party)
        assert waits
        request = LookRequest(snapshot=SnapshotId(self._cuts), suspects=(Suspect(party=PartyName(party), waits=waits),))
        (look,) = self.program.look(request, pool).parties
        assert look.unchanged
        return look.doubt

    @property
    def full(self) -> bool:
        report = self.cut()
        (pool,) = report.pools
        return pool.size is not None and sum(call.serving for call in report.served) >= pool.size


def _ids(text: str) -> tuple[bytes, ...]:
    """The ids in ``text``, separated by spaces."""
    return tuple(map(str.encode, text.split()))
