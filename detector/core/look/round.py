"""One verification round in progress: whom it asked, what they answered, and what that means for each suspect.

The rules are those of :mod:`~detector.core.look.verification`, which begins and ends the rounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from detector.core.look.memory import Key
from detector.core.look.suspicion import Suspicion
from detector.core.protocol.assembler import Assembled
from detector.core.protocol.clocks import ahead_seconds
from detector.core.waits.resolution import owner_of
from stilltrue.model import PartyName, ProcessId, ProcessName, process_of
from stilltrue.protocol.requests.look import Look, LookRequest, PartyLook

INTERIM_SECONDS = 0.5
"""Rule 8: longer than most looks take."""


@dataclass(slots=True, kw_only=True)
class Round:
    """One snapshot's round in progress. ``leaned`` and ``doubts``: what was known when it was decided whom to ask.

    ``interim_due``: rule 8 is still to be applied. ``patience``: how long it has waited in the end. ``remembered``: suspects
    that later rounds know of.
    """

    assembled: Assembled
    suspicion: Suspicion
    keys: dict[PartyName, Key]
    leaned: dict[PartyName, PartyLook]
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
        """When rule 8 is to be applied (infinity: it has been, or there is nothing to apply it to)."""
        return self.begun + INTERIM_SECONDS if self.interim_due else math.inf

    def accept(self, process: ProcessId, look: Look) -> bool:
        """Accept the look of a process that was asked for one; False when this round does not wait for it."""
        name = process.instance
        if name not in self.awaited or self.assembled.reports[name].process != process:
            return False
        self.awaited.discard(name)
        self.looks[name] = look
        self.seen[name] = {seen.party: seen for seen in reversed(look.parties)}
        return True

    def leave_out(self, process: ProcessName, reason: str) -> None:
        """Do not wait for this process, and remember why."""
        if process in self.awaited:
            self.awaited.discard(process)
            self.reasons[process] = reason

    def answer(self, party: PartyName) -> PartyLook:
        """What its process answered about a suspect, or why there is no answer (rules 2, 3)."""
        name = self.keys[party].process
        look = self.looks.get(name)
        found = self.seen.get(name, {}).get(party)
        if found is not None and not found.unchanged and len(self.keys[party].waits) > 1:
            return replace(found, unchanged=True, doubt="one of its several waits has ended")
        if found is not None:
            return found
        reason = self.reasons.get(name) or (
            f"{name} did not answer within {self.patience:g} s" if look is None else f"{name} did not report on it"
        )
        return PartyLook(party=party, unchanged=True, doubt=reason)

    def deadline_passed(self, now: float) -> bool:
        """A suspect's deadline may have passed: a clock is off by at most the snapshot's duration, unless proved wrong."""
        ref, waits = self.assembled.snapshot.ref, self.assembled.snapshot.waits
        off = 0.0 if ref.begun is None or ref.ended is None else ref.ended - ref.begun
        passed = waits.named(waits.waiter[waits.deadline <= now + off])
        return any((owner_of(party) or party) in self.keys for party in passed)

    def since_deadline(self, look: PartyLook, now: float) -> PartyLook:
        """The look, in doubt if it shows that its party has gone on: it may owe that to a deadline alone (rule 2)."""
        if look.unchanged or look.doubt:
            return look
        return replace(look, deadline=now + self._ahead(process_of(look.party)), doubt="by then a deadline had passed")

    def until(self, look: PartyLook, name: ProcessName) -> float | None:
        """The deadline that a look showed, by the detector's clock."""
        return None if look.deadline is None else look.deadline - self._ahead(name)

    def _ahead(self, name: ProcessName) -> float:
        """By how many seconds the clock of a process is ahead of the detector's."""
        ref = self.assembled.snapshot.ref
        return ahead_seconds(self.assembled.reports[name], ref.begun or 0.0, ref.ended or math.inf)
