"""The local state that a cut records: the calls, waits and shares on the books, as amended by what was observed then."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from stilltrue.model import Activity, PartyName, WaitNumber
from stilltrue.protocol.books.call_state import ServerState
from stilltrue.protocol.books.ledger import ClientCall, OpenWait, ServerCall, held_up, is_blocked
from stilltrue.protocol.observation import Observation
from stilltrue.protocol.report import Hold, LocalWait, Pool, ServedCall
from stilltrue.protocol.requests.look import PartyLook, Suspect

PoolSize = int | Callable[[], int | None] | None
_QUEUED = (ServerState.QUEUED, ServerState.ABANDONED)


@dataclass(frozen=True, slots=True)
class LocalState:
    """What is outstanding at one instant (``made``, ``served``), every open wait and share, and what was ``seen``."""

    made: Collection[ClientCall]
    served: Collection[ServerCall]
    waits: tuple[LocalWait, ...]
    """Every open wait, with the time by which its waiter is freed anyway."""
    holds: tuple[Hold, ...]
    seen: Observation

    def activity(self) -> Activity:
        """What a process does in which nothing acts spontaneously."""
        if not (self.made or self.served or held_up(self.waits, self.seen.parked)):
            return Activity.IDLE
        waiters = {wait.waiter for wait in self.waits} | self.seen.unanswered.keys()
        return Activity.BLOCKED if is_blocked(self.made, self.served, waiters) else Activity.ACTIVE

    def served_calls(self) -> tuple[ServedCall, ...]:
        """The calls that have arrived and are not over, as reported."""
        return tuple(self._reported(call) for call in self.served)

    def pools(self, opened: Mapping[str, PoolSize]) -> Iterator[Pool]:
        """The pools with their queues, without those that are gone and have no queue."""
        queued: dict[str, int] = {}
        for call in self.served:
            if call.state in _QUEUED:
                queued[call.pool] = queued.get(call.pool, 0) + 1
        for name, size in opened.items():
            now = size() if callable(size) else size
            if now != 0 or name in queued:
                yield Pool(name=name, size=now or None, queued=queued.get(name, 0))

    def look_at(self, suspects: Collection[Suspect]) -> tuple[PartyLook, ...]:
        """Compare each suspect's waits at the cut with these."""
        waits: dict[PartyName, dict[WaitNumber, LocalWait]] = {}
        for wait in self.waits:
            waits.setdefault(wait.waiter, {})[wait.number] = wait
        return tuple(_look_at(suspect, waits.get(suspect.party, {})) for suspect in suspects)

    def _reported(self, call: ServerCall) -> ServedCall:
        """Not interruptible while its event loop is blocked, and served if interceptors work on it.

        If nobody can answer it, it is served by the party that stands for its ended handler.
        """
        frozen = call.freeze()
        if call.party in self.seen.unanswered:
            return replace(frozen, party=self.seen.unanswered[call.party])
        if call.party in self.seen.intercepted and call.state is ServerState.QUEUED and not call.pool:
            ends = [end for end in (call.deadline, self.seen.intercepted[call.party]) if end is not None]
            frozen = replace(frozen, serving=True, deadline=min(ends, default=None))
        return replace(frozen, interruptible=False) if call.interruptible and call.party in self.seen.held else frozen


def local_state(
    made: Collection[ClientCall],
    served: Collection[ServerCall],
    waits: Collection[OpenWait],
    holds: Mapping[str, list[Hold]],
    observe: Callable[[float], Observation],
    now: float,
) -> LocalState:
    """What is on the books (``waits``: those that are not for calls; ``holds`` by resource), as amended by ``observe``."""
    recorded = [call.local_wait() for call in made if call.wait and call.party is not None]
    recorded += [wait.freeze() for wait in waits]
    seen = observe(now)
    interruptible = [call for call in served if call.interruptible and call.party not in seen.held]
    ends = {call.party: call.deadline for call in interruptible if call.deadline is not None}
    return LocalState(
        made=made,
        served=served,
        waits=seen.merge_waits(recorded, ends, now),
        holds=seen.merge_holds(hold for held in holds.values() for hold in held),
        seen=seen,
    )


def _look_at(suspect: Suspect, waits: Mapping[WaitNumber, LocalWait]) -> PartyLook:
    """A wait may have gained targets (ways out), never lost any."""
    if any(number not in waits for number in suspect.waits):
        return PartyLook(party=suspect.party, unchanged=False)
    ends = (waits[number].deadline for number in suspect.waits)
    return PartyLook(party=suspect.party, unchanged=True, deadline=min((end for end in ends if end is not None), default=None))
