"""termination: every process is idle and no message is in transit."""

from __future__ import annotations

from detector.core.counting import all_of
from detector.core.snapshot import Snapshot
from detector.core.undetermined import depends_on_forgotten
from detector.predicates.evidence.blocked_verdict import as_of
from detector.predicates.evidence.explanation import counted, joined_by_and
from detector.predicates.evidence.process_verdict import depends_on_missing, process_verdict, routes
from stilltrue.model import Activity, Holds, Verdict


class Termination:
    """Holds when every process is idle and nothing is in transit: no process can ever become active again.

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
            moving = counted(routes(snapshot), "in transit", len(snapshot.in_transit))
            text = joined_by_and(counted(busy, "not idle"), moving)
            return process_verdict(self.name, snapshot, Holds.FALSE, "busy", f"{text}, {as_of(snapshot.ref)}", busy)
        idle = "is idle" if len(processes) == 1 else "are idle"
        if snapshot.forgetful:
            return depends_on_forgotten(self.name, snapshot)
        if snapshot.missing:
            reporting = all_of(len(processes), "reporting process", "reporting processes")
            return depends_on_missing(self.name, snapshot, f"{reporting} {idle} and nothing is in transit")
        text = f"{all_of(len(processes), 'process', 'processes')} {idle} and no message is in transit"
        return process_verdict(self.name, snapshot, Holds.TRUE, "idle", text, processes)
