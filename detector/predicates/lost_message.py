"""lost-message: all processes are idle, but more messages were sent than were received or are in transit."""

from __future__ import annotations

from detector.core.snapshot import Snapshot
from detector.predicates.evidence.blocked_verdict import as_of
from detector.predicates.evidence.explanation import counted
from detector.predicates.evidence.fact_totals import amount_of, total_of
from detector.predicates.evidence.process_verdict import depends_on_missing, process_verdict, undeclared
from stilltrue.model import Activity, Holds, ProcessName, Verdict


class LostMessage:
    """Holds when every process is idle and the counts of messages sent and received can no longer become equal.

    Parameters
    ----------
    sent, received : the facts in which a process counts the messages it has sent and received, in total. It may also
        count them per channel, as ``sent:stock`` and ``received:orders``; the verdict then names the channel.
    count : the fact in which a message in transit declares the number of messages it represents; 1 if it has none.

    Notes
    -----
    A message that was sent has been received, is in transit, or is lost; the snapshot counts the first two. Termination
    detectors that compare counts never answer in this state. The property is stable, since a lost message does not reappear and
    idle processes send none. If more were received than sent, the answer is UNDETERMINED.

    References
    ----------
    F. Mattern, Algorithms for distributed termination detection, Distributed Computing 2 (1987), section 4 (counting).
    """

    name = "lost-message"
    treats_missing = True

    def __init__(self, *, sent: str = "sent", received: str = "received", count: str = "count") -> None:
        self._sent = sent
        self._received = received
        self._count = count

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        """TRUE with the number of lost messages, and their channels if messages are counted per channel."""
        sent, received = amount_of(snapshot, self._sent), amount_of(snapshot, self._received)
        if not sent.declared and not received.declared:
            return undeclared(self.name, snapshot, self._sent)
        processes = snapshot.present()
        busy = [name for name, state in processes.items() if state.activity is not Activity.IDLE]
        if busy:
            text = f"{counted(busy, 'not idle')}, {as_of(snapshot.ref)}: no message is known to be lost"
            return process_verdict(self.name, snapshot, Holds.FALSE, "busy", text, busy)
        carried = total_of(message.facts.get(self._count, 1) for message in snapshot.in_transit)
        lost = sent.total - sent.carried - (received.total - received.carried) - carried
        counts = f"{sent.total - sent.carried:g} sent, {received.total - received.carried:g} received, {carried:g} in transit"
        if snapshot.missing:
            return depends_on_missing(self.name, snapshot, counts)
        odd = sorted({*sent.odd, *sent.unknown, *received.odd, *received.unknown})
        if lost < 0 or odd:
            return process_verdict(
                self.name, snapshot, Holds.UNDETERMINED, "contradiction", f"{counts}: the counts are inconsistent", odd
            )
        channels = self._channels(snapshot)
        parties = {name for source, target, _ in channels for name in (source, target)}
        sentences = [f"{source} sent {target} {missing:g} more than {target} received" for source, target, missing in channels]
        holds = Holds.TRUE if lost > 0 else Holds.FALSE
        return process_verdict(
            self.name, snapshot, holds, "count", f"{counts}: {lost:g} lost", parties if lost > 0 else (), sentences
        )

    def _channels(self, snapshot: Snapshot) -> list[tuple[ProcessName, ProcessName, float]]:
        """The channels on which messages were lost, with their number, sorted."""
        processes = snapshot.present()
        found = []
        for source, state in processes.items():
            for fact in sorted(state.facts):
                target = ProcessName(fact.removeprefix(f"{self._sent}:"))
                if target == fact or target not in processes:
                    continue
                received = total_of([processes[target].facts.get(f"{self._received}:{source}", 0)])
                missing = total_of([state.facts[fact]]) - received - self._carried(snapshot, source, target)
                if missing > 0:
                    found.append((source, target, missing))
        return found

    def _carried(self, snapshot: Snapshot, source: ProcessName, target: ProcessName) -> float:
        carrying = (one for one in snapshot.in_transit if one.source == source and one.target in (target, None))
        return total_of(message.facts.get(self._count, 1) for message in carrying)
