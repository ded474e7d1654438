"""termination: every process is idle and no message is in transit."""

from __future__ import annotations

from detector.core.snapshot import Snapshot
from detector.predicates.blocked import as_of
from detector.predicates.explain import shortened
from stilltrue.model import Activity, Holds, PartyName, ProcessName, Verdict, Witness


class Termination:
    """Holds when every process is idle and nothing is in transit: nobody can ever become active again.

    A process that is named anywhere and said nothing is active. With members missing the answer is FALSE when somebody who
    reported is not idle or a message is in transit, and UNDETERMINED otherwise: any missing member may be active.
    """

    name = "termination"
    treats_missing = True

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        """TRUE, or who is still busy, or who has not been heard from."""
        processes = snapshot.present()
        busy = [name for name, state in processes.items() if state.activity is not Activity.IDLE]
        if busy or snapshot.in_transit:
            return self._verdict(snapshot, Holds.FALSE, _busy(snapshot, busy))
        if snapshot.missing:
            missing = tuple(map(PartyName, snapshot.missing))
            text = f"all {len(processes)} that reported are idle, but {', '.join(shortened(missing))} may not be"
            return self._verdict(snapshot, Holds.UNDETERMINED, Witness(kind="missing", parties=missing, text=text))
        text = f"all {len(processes)} processes are idle and no message is in transit"
        return self._verdict(snapshot, Holds.TRUE, Witness(kind="idle", parties=tuple(map(PartyName, processes)), text=text))

    def _verdict(self, snapshot: Snapshot, holds: Holds, witness: Witness) -> Verdict:
        decisive = snapshot.missing if holds is Holds.UNDETERMINED else ()
        return Verdict(
            predicate=self.name,
            holds=holds,
            witness=witness,
            snapshot=snapshot.ref,
            missing=snapshot.missing,
            decisive=decisive,
        )


def _busy(snapshot: Snapshot, busy: list[ProcessName]) -> Witness:
    """Who was not idle, and what was on its way."""
    parts = []
    if busy:
        parts.append(f"{len(busy)} not idle ({', '.join(shortened(busy))})")
    if snapshot.in_transit:
        ways = [f"{message.source} to {message.target or 'somebody'}" for message in snapshot.in_transit]
        parts.append(f"{len(ways)} in transit ({', '.join(shortened(ways))})")
    return Witness(kind="busy", parties=tuple(map(PartyName, busy)), text=f"{' and '.join(parts)}, {as_of(snapshot)}")
