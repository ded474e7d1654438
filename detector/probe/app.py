"""Runs a probe: joins the detector as a process, reads its server at each marker and look, and reports the waits.

While the server does not answer, the probe is a missing member: it stays connected, sends no reports, and tells the reason.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any

from detector.ops.logs import Log
from detector.ops.process.stop_signal import StopSignal
from detector.probe.reading import Reading, ServerDownError, Source
from stilltrue.model import CallNumber, PartyName, ProcessId, ProcessName, SnapshotId
from stilltrue.protocol.observation import Observation
from stilltrue.protocol.recorder import Recorder
from stilltrue.protocol.report import Report
from stilltrue.protocol.requests.look import Look, LookRequest, PartyLook, Suspect
from stilltrue.protocol.stamp import INCARNATION_MAX
from stilltrue.runtime.locked_recorder import LockedRecorder
from stilltrue.runtime.membership.connection import Connection
from stilltrue.settings import Settings


class Probe(LockedRecorder):
    """A server as a member: the recorder that cuts for it."""

    __slots__ = ("_connection", "_database", "_down", "_log", "_process", "_reading")

    def __init__(self, settings: Settings, database: Source, log: Log) -> None:
        """``settings``: an agent's. Connects to nothing yet."""
        self._database = database
        self._log = log
        self._down = ""
        self._reading = Reading(doubts={})
        self._process = ProcessId(
            service=settings.service,
            instance=ProcessName(settings.instance),
            incarnation=secrets.randbelow(INCARNATION_MAX) + 1,
        )
        super().__init__(
            lambda: Recorder(
                process=self._process, reactive=True, labels=settings.labels, observe=lambda _: self._observation()
            ),
            reports_max=settings.reports_max,
        )
        self.fact({})  # one event, so that an idle probe is the same idle process at each look
        self._connection = Connection(self, settings, self.look_at, sight=self._sight, kind="probe")

    def run(self, stop: StopSignal) -> None:
        """Run until ``stop`` is set."""
        self._read()
        self._connection.start()
        stop.wait()
        self._connection.close()
        self._database.close()

    def marked(self, snapshot: SnapshotId, settled: Iterable[CallNumber] = ()) -> Report | None:
        """Read the server and report; None while it does not answer."""
        return super().marked(snapshot, settled) if self._read() else None

    def look_at(self, request: LookRequest) -> Look:
        """Read the server again and answer for the suspects."""
        answers = self._read()
        lasting = {wait.number: wait for wait in self._reading.waits}
        looks = []
        for suspect in request.suspects:
            if not answers:
                looks.append(
                    PartyLook(party=suspect.party, unchanged=True, doubt=f"the database does not answer: {self._down}")
                )
            elif any(number not in lasting for number in suspect.waits):
                looks.append(PartyLook(party=suspect.party, unchanged=False))
            else:
                ends = [lasting[number].deadline for number in suspect.waits]
                looks.append(self._unchanged(suspect, [end for end in ends if end is not None]))
        return Look(snapshot=request.snapshot, parties=tuple(looks), happenings=self.recorder.happenings)

    def _unchanged(self, suspect: Suspect, ends: list[float]) -> PartyLook:
        doubt = self._reading.doubts.get(PartyName(suspect.party), "")
        return PartyLook(party=suspect.party, unchanged=True, deadline=min(ends, default=None), doubt=doubt)

    def _read(self) -> bool:
        """Read the server; returns whether it answers."""
        try:
            reading = self._database.reading(self.clock())
        except ServerDownError as error:
            if not self._down:
                self._log.warning("database down", text=str(error))
            self._down = str(error)
            return False
        if self._down:
            self._log.info("database back")
        self._down = ""
        self._reading = reading
        return True

    def _observation(self) -> Observation:
        return Observation(waits=self._reading.waits, holds=self._reading.holds)

    def _sight(self) -> dict[str, Any]:
        blind = (f"the database does not answer: {self._down}",) if self._down else self._database.blind
        return {"servers": 1, "blind": blind}
