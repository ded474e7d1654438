"""quiescence: no process is active, and no message in transit can be received."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from detector.core.counting import all_of
from detector.core.counting import counted as number_of
from detector.core.snapshot import Snapshot
from detector.core.undetermined import depends_on_forgotten
from detector.predicates.deadlock import stuck_bounds
from detector.predicates.evidence.blocked_verdict import as_of, not_certain
from detector.predicates.evidence.explanation import NAMES_MAX, counted, joined_by_and, listed
from detector.predicates.evidence.process_verdict import MAY_ACT, depends_on_missing, process_verdict, routes
from stilltrue.model import Activity, Holds, PartyName, ProcessName, Verdict, process_of


class Quiescence:
    """Holds when nothing will ever happen again: every process is done or deadlocked.

    Every process is idle, or blocked with all of its waiting parties in the remainder of ``deadlock``; and no message is in
    transit to an idle or unknown process. A blocked process without a wait counts as active, since what it waits for is
    unknown.
    """

    name = "quiescence"
    treats_missing = True
    treats_forgotten = True

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        """TRUE; FALSE with the processes that can move; or UNDETERMINED with its reason."""
        found = stuck_bounds(snapshot)
        processes = snapshot.present()
        blocked = [name for name, state in processes.items() if state.activity is Activity.BLOCKED]
        waiters = _waiters(snapshot)
        waiting = set(waiters.values())
        may_move = {process for party, process in waiters.items() if found.pessimistic.free[party]}
        uncertain = {process for party, process in waiters.items() if found.certain.free[party]}
        moving = [name for name, state in processes.items() if state.activity is Activity.ACTIVE]
        moving += [name for name in blocked if name not in waiting or name in may_move]
        receivable = [
            message
            for message in snapshot.in_transit
            if message.target is None or (message.target in processes and processes[message.target].activity is Activity.IDLE)
        ]
        if moving or receivable:
            text = joined_by_and(
                counted(sorted(moving), "can move"), counted(routes(receivable), "in transit", len(receivable))
            )
            free = [party for party in waiters if found.pessimistic.free[party]]
            reasons = _reasons(snapshot, sorted(moving), waiters, free, uncertain)
            return process_verdict(self.name, snapshot, Holds.FALSE, "busy", f"{text}, {as_of(snapshot.ref)}", moving, reasons)
        if snapshot.forgetful:
            return depends_on_forgotten(self.name, snapshot)
        doubtful = sorted(name for name in blocked if name in uncertain)
        if snapshot.missing:
            return depends_on_missing(self.name, snapshot, _none_can_move(len(processes)))
        if doubtful:
            named = listed(doubtful)
            text = f"{named} may be able to move: {not_certain(snapshot, doubtful)}"
            return process_verdict(self.name, snapshot, Holds.UNDETERMINED, "unconfirmed", text, doubtful)
        text = _quiet(idle=len(processes) - len(blocked), deadlocked=len(blocked))
        return process_verdict(self.name, snapshot, Holds.TRUE, "quiet", text, processes)


def _none_can_move(reporting: int) -> str:
    return (
        "the only reporting process cannot move" if reporting == 1 else f"none of the {reporting} reporting processes can move"
    )


def _quiet(*, idle: int, deadlocked: int) -> str:
    """How many processes are idle and how many deadlocked, in words."""
    if idle and deadlocked:
        return f"{number_of(idle, 'process is', 'processes are')} idle and {number_of(deadlocked, 'is', 'are')} deadlocked"
    return f"{all_of(idle or deadlocked, 'process is', 'processes are')} {'idle' if idle else 'deadlocked'}"


def _waiters(snapshot: Snapshot) -> dict[int, ProcessName]:
    """The process of each waiting party, by the party's index in the columns."""
    waits = snapshot.waits
    return {party: process_of(waits.names[party]) for party in set(waits.waiter.tolist())}


def _reasons(
    snapshot: Snapshot,
    moving: Sequence[ProcessName],
    waiters: dict[int, ProcessName],
    free: Sequence[int],
    uncertain: Collection[ProcessName],
) -> list[str]:
    """Why each of the first processes can move, and what its waiting parties do; the others are only counted."""
    waiting = Counter(waiters.values())
    able: dict[ProcessName, list[PartyName]] = {}
    for party in free:
        able.setdefault(waiters[party], []).append(snapshot.waits.names[party])
    states = snapshot.present()
    reasons = []
    for name in moving[:NAMES_MAX]:
        parts = [MAY_ACT] if states[name].activity is Activity.ACTIVE else []
        if name in able:
            parts.append(f"of its {waiting[name]} waiting, {counted(sorted(able[name]), 'can proceed')}")
        elif waiting[name]:
            every = all_of(waiting[name], "waiting party", "waiting parties")
            parts.append(f"{every} {'may be' if name in uncertain else 'is' if waiting[name] == 1 else 'are'} deadlocked")
        else:
            parts.append("none of its parties is known to wait")
        reasons.append(f"{name}: {'; '.join(parts)}")
    return [*reasons, *([f"and {len(moving) - NAMES_MAX} more"] if len(moving) > NAMES_MAX else [])]
