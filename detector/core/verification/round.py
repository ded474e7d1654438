"""One verification round in progress: the processes asked, their answers, and what these mean for each suspect.

The rules are those of :mod:`~detector.core.verification.verifier`, which begins and ends the rounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from detector.core.protocol.assembler import Assembled
from detector.core.protocol.clock_offsets import ahead_seconds
from detector.core.sentences import NO_LOOK_YET
from detector.core.verification.past_rounds import Key
from detector.core.verification.suspicion import Suspicion
from detector.core.waits.resolution import owner_of
from stilltrue.model import PartyName, ProcessId, ProcessName, process_of
from stilltrue.protocol.requests.look import Look, LookRequest, PartyLook

INTERIM_SECONDS = 0.5
"""Rule 8: how long a round lasts before its interim result; most looks take less."""


@dataclass(slots=True, kw_only=True)
class Round:
    """One snapshot's round in progress.

    ``earlier_looks`` and ``doubts``: what was known when the round began. ``interim_due``: rule 8 has yet to be applied.
    ``patience``: how long it has waited in the end. ``remembered``: suspects whose result is kept for later rounds.
    """

    assembled: Assembled
    suspicion: Suspicion
    keys: dict[PartyName, Key]
    earlier_looks: dict[PartyName, PartyLook]
    doubts: dict[ProcessName, str]
    asked: dict[ProcessName, LookRequest]
    asked_about: frozenset[PartyName]
    begun: float
    awaited: set[ProcessName]
    interim_due: bool
    patience: float = 0.0
    looks: dict[ProcessName, Look] = field(default_factory=dict)
    seen: dict[ProcessName, dict[PartyName, PartyLook]] = field(default_factory=dict)
    reasons: dict[ProcessName, str] = field(default_factory=dict)
    remembered: set[PartyName] = field(default_factory=set)

    def interim_at(self) -> float:
        """When to apply rule 8; infinity if it has been applied, or there are no suspects."""
        return self.begun + INTERIM_SECONDS if self.interim_due else math.inf

    def accept(self, process: ProcessId, look: Look) -> bool:
        """Accept the look of a process; False if this round does not wait for it."""
        name = process.instance
        if name not in self.awaited or self.assembled.reports[name].process != process:
            return False
        self.awaited.discard(name)
        self.looks[name] = look
        self.seen[name] = {seen.party: seen for seen in reversed(look.parties)}
        return True

    def leave_out(self, process: ProcessName, reason: str) -> None:
        """Stop waiting for this process, and remember why."""
        if process in self.awaited:
            self.awaited.discard(process)
            self.reasons[process] = reason

    def silence(self) -> str:
        """Why there is no look of a process that was waited for."""
        return f"{NO_LOOK_YET} {self.patience:g} s (serve --look-give-up-seconds)"

    def answer(self, party: PartyName) -> PartyLook:
        """The answer of a suspect's process, or a doubt that says why there is none (rules 2, 3)."""
        name = self.keys[party].process
        look = self.looks.get(name)
        found = self.seen.get(name, {}).get(party)
        if found is not None and not found.unchanged and len(self.keys[party].waits) > 1:
            return replace(found, unchanged=True, doubt="one of its several waits has ended")
        if found is not None:
            return found
        silent = f"{name} {self.silence()}" if look is None else f"{name} did not report on it"
        reason = self.reasons.get(name) or silent
        return PartyLook(party=party, unchanged=True, doubt=reason)

    def deadline_passed(self, now: float) -> bool:
        """Whether a suspect's deadline may have passed. Clocks not proved wrong are off by at most the snapshot's duration."""
        ref, waits = self.assembled.snapshot.ref, self.assembled.snapshot.waits
        error = 0.0 if ref.begun is None or ref.ended is None else ref.ended - ref.begun
        passed = waits.named(waits.waiter[waits.deadline <= now + error])
        return any((owner_of(party) or party) in self.keys for party in passed)

    def since_deadline(self, look: PartyLook, now: float) -> PartyLook:
        """The look, in doubt if its party has moved on, since only a deadline may have freed it (rule 2)."""
        if look.unchanged or look.doubt:
            return look
        return replace(look, deadline=now + self._ahead(process_of(look.party)), doubt="a deadline had passed by then")

    def until(self, look: PartyLook, name: ProcessName) -> float | None:
        """The deadline in a look, by the detector's clock."""
        return None if look.deadline is None else look.deadline - self._ahead(name)

    def _ahead(self, name: ProcessName) -> float:
        """How far a process's clock is ahead of the detector's, in seconds."""
        ref = self.assembled.snapshot.ref
        return ahead_seconds(self.assembled.reports[name], ref.begun or 0.0, ref.ended or math.inf)
