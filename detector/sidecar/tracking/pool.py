"""The program's pool, if its size is declared (``--workers N``): which calls are served, and which are queued.

The rules, with at most N calls served at once:

1. While at most N calls are in progress, all of them count as served. They need not be: calls on several connections overtake
   each other on their way to the program.
2. A call that has acted (made a call, or replied) is served.
3. No other call is known to be served. The pool is full only if N calls are known to be; then the others are queued. Those of
   them that counted as served by rule 1 wait for one of the N that have acted.
4. If a queued call acts while N others that have acted, or arrived a second before it, are all still in progress, also a moment
   later, N is wrong, and the pool never counts as full again. If the call itself has ended by then, this holds only if it
   arrived after the others were served: otherwise it may have acted before them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from detector.core.counting import counted
from detector.sidecar.tracking.calls import InboundCall
from stilltrue.model import PartyName, WaitNumber
from stilltrue.protocol.report import LocalWait, PartyTarget
from stilltrue.runtime.locked_recorder import LockedRecorder

POOL = "program"
OVERTAKING_SECONDS = 1.0
"""How much later a call must arrive to be sure not to overtake another on its way to a worker."""
QUEUED_MIN = 2**50
"""The first number of a wait of :meth:`ProgramPool.queue_waits`."""
TURN = 2**20
GRACE_SECONDS = 0.25
"""How long a message between program and sidecar may take; after that its absence is evidence."""

Later = Callable[[float, Callable[[], None]], object]


class ProgramPool:
    """The calls in progress; the program serves at most ``size`` of them at once (None: unknown)."""

    def __init__(self, live: LockedRecorder, size: int | None, later: Later, disproved: Callable[[str], None]) -> None:
        """``later(seconds, do)`` schedules a call; ``disproved`` is called with the reason if the size is found to be wrong."""
        self._live = live
        self._later = later
        self._disproved = disproved
        self.size = size
        self._queued: dict[InboundCall, None] = {}
        self._serving: dict[InboundCall, None] = {}
        self._turns = 0
        """Counts the changes of the calls that have acted."""
        self._moved_at = 0.0
        """When the program last acted on behalf of a call, or a call ended."""
        if size is not None:
            live.pool_opened(POOL, size)

    @property
    def name(self) -> str:
        """The pool that calls arrive at; empty if its size is unknown."""
        return POOL if self.size is not None else ""

    @property
    def counts(self) -> tuple[int, int]:
        """The number of calls known to be served, and the number of those that may be queued."""
        return len(self._serving), len(self._queued)

    @property
    def served(self) -> tuple[InboundCall, ...]:
        """The calls that are known to be served."""
        return tuple(self._serving)

    @property
    def known_queued(self) -> dict[PartyName, tuple[PartyName, ...]]:
        """The calls that counted as served and are queued, each with the calls of which one must end first (rule 3)."""
        serving = tuple(self._serving)
        acted = [call.party for call in serving if call.acted]
        if self.size is None or len(acted) < self.size:
            return {}
        return {call.party: tuple(acted) for call in serving if not call.acted}

    def queue_waits(self) -> Iterator[LocalWait]:
        """The waits of :attr:`known_queued`. Their numbers change whenever another call acts, or one that has acted ends."""
        waiting = self.known_queued
        serials = {call.party: call.served for call in tuple(self._serving)}
        for party, ahead in waiting.items():
            served = serials.get(party)
            if served is not None:
                yield LocalWait(
                    waiter=party,
                    number=WaitNumber(QUEUED_MIN + self._turns * TURN + served.serial % TURN),
                    among=tuple(PartyTarget(party=one) for one in ahead),
                    since=served.since,
                    uncoloured=True,
                    what=f"a worker ({self.size} of {self.size} busy)",
                )

    @property
    def unclear_since(self) -> float | None:
        """Since when nothing has happened while it is unknown which of the calls in progress are served; None: it is known."""
        queued = tuple(self._queued)
        if self.size is None or not queued or len(self._serving) >= self.size:
            return None
        return max(self._moved_at, queued[0].served.since)

    @property
    def claimed_full(self) -> bool:
        """Whether the pool counts as full and calls as queued behind it (rule 3)."""
        if self.size is None:
            return False
        return bool(self.known_queued) or (bool(self._queued) and len(self._serving) >= self.size)

    def matters(self) -> None:
        """The program makes calls: reports say so if the size of the pool is unknown, since its calls may wait for a worker."""
        if self.size is None:
            self._live.pool_opened(POOL, None)

    def answered_beside(self, served: Collection[InboundCall]) -> None:
        """Another call, which needs a worker, was answered a moment ago while ``served`` were being served."""
        still = sum(not call.over for call in served)
        if self.size is not None and still >= self.size:
            self._disprove("a health check", still)

    def arrived(self, call: InboundCall) -> None:
        """A call has arrived."""
        self._queued[call] = None
        self._start_all_that_fit()

    def acted(self, call: InboundCall) -> None:
        """The program acted on behalf of this call (rule 2)."""
        if not call.acted:
            self._turns += 1
        call.acted = True
        self._moved_at = self._live.clock()
        if call in self._queued:
            self._doubt_size(call)
            self._start(call)

    def over(self, call: InboundCall) -> None:
        """A call has ended."""
        self._turns += call.acted
        self._moved_at = self._live.clock()
        self._queued.pop(call, None)
        self._serving.pop(call, None)
        self._start_all_that_fit()

    def _start_all_that_fit(self) -> None:
        """Apply rule 1."""
        if self._queued and (self.size is None or len(self._queued) + len(self._serving) <= self.size):
            for call in list(self._queued):
                self._start(call)

    def _start(self, call: InboundCall) -> None:
        del self._queued[call]
        self._serving[call] = None
        call.started_at = self._live.clock()
        self._live.started(call.served, call.served.deadline)

    def _doubt_size(self, call: InboundCall) -> None:
        """Apply rule 4; look again later, since replies of the others may be on their way from the program."""
        if self.size is None:
            return
        came = call.served.since
        others = [other for other in self._serving if other.acted or came >= other.started_at + OVERTAKING_SECONDS]
        if len(others) < self.size:
            return
        came_later = call.served.since > max(other.started_at for other in others)

        def look_again() -> None:
            still = sum(not other.over for other in others)
            if self.size is not None and still >= self.size and (came_later or not call.over):
                self._disprove(call.party, still)

        self._later(GRACE_SECONDS, look_again)

    def _disprove(self, what: str, others: int) -> None:
        size, self.size = self.size, None
        self._live.pool_opened(POOL, None)
        self._start_all_that_fit()
        self._disproved(f"--workers {size} is wrong: {what} was served at the same time as {counted(others, 'other')}")
