"""phase-ended: phase k of an iterative computation is over in every process."""

from __future__ import annotations

from detector.core.counting import all_of
from detector.core.snapshot import Snapshot
from detector.predicates.evidence.blocked_verdict import as_of
from detector.predicates.evidence.explanation import counted, joined_by_and, listed
from detector.predicates.evidence.process_verdict import depends_on_missing, process_verdict, undeclared
from stilltrue.model import Activity, Fact, Facts, Holds, ProcessState, Verdict


class PhaseEnded:
    """Holds when no process is still in phase k and no message of phase k is in transit.

    Parameters
    ----------
    fact : the fact in which processes and messages declare their phase, an integer that never decreases.
    phase : the phase; None means the lowest one declared.

    Notes
    -----
    A process has finished phase k when it is idle in it, or in a later phase. A process that declares no phase has finished
    none; a message that declares none may belong to any. The property is stable for each k: a later phase does not undo it.

    References
    ----------
    K. M. Chandy and L. Lamport, Distributed snapshots (1985), section 1: the end of the k-th computational phase.
    """

    name = "phase-ended"
    treats_missing = True

    def __init__(self, *, fact: str = "phase", phase: int | None = None) -> None:
        self._fact = fact
        self._phase = phase

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        """TRUE; FALSE with the members still in the phase; or UNDETERMINED with the members that did not report."""
        processes = snapshot.present()
        declared = [state.facts for state in processes.values()] + [message.facts for message in snapshot.in_transit]
        phases = [phase for facts in declared if (phase := self._phase_of(facts)) is not None]
        if not phases:
            odd = [name for name, state in processes.items() if self._fact in state.facts]
            if odd:
                text = f"the fact {self._fact!r} of {listed(odd)} is not an integer"
                return process_verdict(self.name, snapshot, Holds.UNDETERMINED, "undeclared", text, odd)
            return undeclared(self.name, snapshot, self._fact)
        asked = min(phases) if self._phase is None else self._phase
        inside = [name for name, state in processes.items() if not self._finished(state, asked)]
        carried = [
            f"{message.source} to {message.target or 'unknown'}"
            for message in snapshot.in_transit
            if not self._belongs_later(message.facts, asked)
        ]
        if inside or carried:
            why = joined_by_and(counted(inside, "still in it"), counted(carried, "of its messages in transit"))
            text = f"phase {asked} had not ended {as_of(snapshot.ref)}: {why}"
            return process_verdict(self.name, snapshot, Holds.FALSE, "busy", text, inside)
        over = f"phase {asked} is over in {all_of(len(processes), 'process', 'processes')}"
        if snapshot.missing:
            return depends_on_missing(self.name, snapshot, f"{over} that reported")
        return process_verdict(
            self.name, snapshot, Holds.TRUE, "phase", f"{over}, and none of its messages is in transit", processes
        )

    def _phase_of(self, facts: Facts) -> int | None:
        phase: Fact | None = facts.get(self._fact)
        return phase if isinstance(phase, int) and not isinstance(phase, bool) else None

    def _finished(self, state: ProcessState, asked: int) -> bool:
        phase = self._phase_of(state.facts)
        return phase is not None and (phase > asked or (phase == asked and state.activity is Activity.IDLE))

    def _belongs_later(self, facts: Facts, asked: int) -> bool:
        phase = self._phase_of(facts)
        return phase is not None and phase > asked
