"""termination: every process is idle and no message is in transit."""

from __future__ import annotations

from detector.core.counting import all_of
from detector.core.snapshot import Snapshot
from detector.core.undetermined import depends_on_forgotten
from detector.predicates.deadlock import stuck_bounds
from detector.predicates.evidence.blocked_verdict import as_of, not_certain
from detector.predicates.evidence.explanation import counted, joined_by_and, listed
from detector.predicates.evidence.process_verdict import depends_on_missing, process_verdict, routes, why_not_idle
from stilltrue.model import Activity, Holds, ProcessName, Verdict, process_of


class Termination:
    """Holds when every process is idle and nothing is in transit: no process can ever become active again.

    An idle process may wait for another's message, or for its end: a worker at a queue of ``multiprocessing``, and its parent.
    A process of which a party is deadlocked in such a wait has not terminated.

    A process that is named but has not reported its state is active. With members missing, the answer is FALSE if a reporting
    process is not idle or a message is in transit, else UNDETERMINED, since any missing member may be active.
    """

    name = "termination"
    treats_missing = True
    treats_forgotten = True

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        """TRUE; FALSE with the processes that are busy; or UNDETERMINED with the members that did not report."""
        processes = snapshot.present()
        busy = [name for name, state in processes.items() if state.activity is not Activity.IDLE]
        if busy or snapshot.in_transit:
            moving = counted(routes(snapshot.in_transit), "in transit", len(snapshot.in_transit))
            text = joined_by_and(counted(busy, "not idle"), moving)
            reasons = why_not_idle(snapshot, sorted(busy))
            return process_verdict(self.name, snapshot, Holds.FALSE, "busy", f"{text}, {as_of(snapshot.ref)}", busy, reasons)
        stuck = _stuck(snapshot, certain=True)
        if stuck:
            text = f"{counted(stuck, 'deadlocked')}, {as_of(snapshot.ref)}"
            return process_verdict(self.name, snapshot, Holds.FALSE, "busy", text, stuck)
        idle = "is idle" if len(processes) == 1 else "are idle"
        if snapshot.forgetful:
            return depends_on_forgotten(self.name, snapshot)
        if snapshot.missing:
            reporting = all_of(len(processes), "reporting process", "reporting processes")
            return depends_on_missing(self.name, snapshot, f"{reporting} {idle} and nothing is in transit")
        stuck = _stuck(snapshot, certain=False)
        if stuck:
            text = f"{listed(stuck)} may be deadlocked: {not_certain(snapshot, stuck)}"
            return process_verdict(self.name, snapshot, Holds.UNDETERMINED, "unconfirmed", text, stuck)
        text = f"{all_of(len(processes), 'process', 'processes')} {idle} and no message is in transit"
        return process_verdict(self.name, snapshot, Holds.TRUE, "idle", text, processes)


def _stuck(snapshot: Snapshot, *, certain: bool) -> list[ProcessName]:
    """The processes of which a party is deadlocked; without ``certain``, also those of which one may be."""
    waits = snapshot.waits
    if not len(waits.waiter):
        return []
    found = stuck_bounds(snapshot)
    free = (found.certain if certain else found.pessimistic).free
    return sorted({process_of(waits.names[party]) for party in set(waits.waiter.tolist()) if not free[party]})
