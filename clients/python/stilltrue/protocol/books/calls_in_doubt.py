"""One process's calls in doubt (protocol rule 8): they failed, and it is unknown whether they were received.

A doubt ends when a server's record settles it, or after a fixed time. When there are too many, the oldest is dropped; reports
count it (``dropped``) until its time would have passed, so that no verdict rests on a forgotten call.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from stilltrue.model import CallNumber
from stilltrue.protocol.books.call_state import DOUBT, FORGET
from stilltrue.protocol.books.ledger import ClientCall


class Doubts:
    """The calls in doubt, bounded in number and time."""

    def __init__(self, *, doubts_max: int, seconds_max: float) -> None:
        """Keeps at most ``doubts_max`` calls, each for ``seconds_max``."""
        self._doubts_max = doubts_max
        self._seconds_max = seconds_max
        self.calls: dict[CallNumber, ClientCall] = {}
        """By number, oldest doubt first."""
        self._lowest: list[CallNumber] = []  # a heap; settled entries are popped lazily
        self._dropped: list[float] = []  # when the dropped doubts would have expired, ascending

    def add(self, call: ClientCall, now: float) -> None:
        """Put ``call`` in doubt from ``now`` on."""
        call.state = DOUBT[call.state]
        call.since = now
        self.calls[call.number] = call
        heappush(self._lowest, call.number)
        self.expire(now)

    def settle(self, numbers: Iterable[CallNumber]) -> None:
        """Forget these calls, which servers have answered. Numbers that are not in doubt are ignored."""
        for number in numbers:
            call = self.calls.pop(number, None)
            if call is not None:
                call.state = FORGET[call.state]

    def expire(self, now: float) -> None:
        """Forget doubts whose time has passed, and the oldest ones beyond the bound."""
        while self.calls:
            oldest = next(iter(self.calls.values()))
            ends = oldest.since + self._seconds_max
            if now < ends:
                if len(self.calls) <= self._doubts_max:
                    break
                self._dropped.append(ends)
            self.settle((oldest.number,))
        if self._dropped and self._dropped[-1] <= now:
            self._dropped.clear()

    @property
    def dropped(self) -> int:
        """The number of doubts dropped for space; 0 again once the last of them would have expired."""
        return len(self._dropped)

    def floor(self, floor: CallNumber) -> CallNumber:
        """The lowest number in doubt, or ``floor`` if that is lower."""
        lowest = self._lowest
        while lowest and lowest[0] not in self.calls:
            heappop(lowest)
        return lowest[0] if lowest and lowest[0] < floor else floor
