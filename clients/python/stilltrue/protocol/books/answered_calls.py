"""A server's memory of the calls of each caller (protocol rule 3), bounded by what is outstanding there and by a count."""

from __future__ import annotations

from stilltrue.model import NO_FACTS, CallNumber, Facts
from stilltrue.protocol.report import Answered, Caller, Seen
from stilltrue.protocol.stamp import sender_text

UNPRUNED_MAX = 32
"""The number of answered calls kept before calls below the floor are looked for."""


class CallerMemory:
    """The calls of one caller that were answered here, for as long as they may be outstanding at the caller."""

    __slots__ = ("_answered", "_floor", "_forgotten", "answered_max", "caller", "highest")

    def __init__(self, caller: Caller, *, answered_max: int) -> None:
        """``answered_max``: the maximum number of answered calls to remember; beyond it the oldest are forgotten."""
        self.caller = caller
        self.answered_max = answered_max
        self.highest = CallNumber(0)
        self._floor = CallNumber(0)
        self._forgotten = CallNumber(0)
        self._answered: dict[CallNumber, Answered | None] = {}  # None: only its number matters

    def saw(self, number: CallNumber, floor: CallNumber) -> None:
        """Record the arrival of a request with this number and the caller's floor; calls below the floor are forgotten."""
        if number > self.highest:  # noqa: PLR1730 - max() takes eight times as long
            self.highest = number
        if floor > self._floor:
            self._floor = floor
            if len(self._answered) > UNPRUNED_MAX:
                self._prune()

    def _prune(self) -> None:
        """Forget calls below the floor; done occasionally, and before each read."""
        floor, answered = self._floor, self._answered
        for over in [number for number in answered if number < floor]:
            del answered[over]

    def answered(
        self, number: CallNumber, sent: int = 0, received: int = 0, facts: Facts = NO_FACTS, taken: bool = True
    ) -> None:
        """Record that this call was answered; its reply may be in transit until the floor passes the number."""
        if number < self._floor:
            return
        if sent or received or facts or not taken:
            entry = Answered(number=number, sent=sent, received=received, facts=facts, taken=taken)
        else:
            entry = None
        self._answered[number] = entry
        if len(self._answered) > self.answered_max:
            self._forget_oldest()

    def reopened(self, number: CallNumber) -> bool:
        """Record that no answer was sent to this call after all; False if it is over for its caller."""
        if number < self._floor:
            return False
        self._answered.pop(number, None)
        return True

    def _forget_oldest(self) -> None:
        self._prune()
        if len(self._answered) > self.answered_max:
            oldest = next(iter(self._answered))
            del self._answered[oldest]
            self._forgotten = max(self._forgotten, oldest)

    def seen(self) -> Seen:
        """The memory as reported."""
        self._prune()
        return Seen(
            caller=self.caller,
            highest=self.highest,
            floor=self._floor,
            forgotten=self._forgotten,
            answered=tuple(entry for entry in self._answered.values() if entry is not None),
            plain=tuple(sorted(number for number, entry in self._answered.items() if entry is None)),
        )


class Callers:
    """The memories of all callers. Beyond a bound the oldest caller is forgotten and counted as ``lost``."""

    __slots__ = ("_answered_max", "_callers_max", "_memories", "by_text", "get", "lost")

    def __init__(self, *, callers_max: int, answered_max: int) -> None:
        """``answered_max`` bounds each memory."""
        self._callers_max = callers_max
        self._answered_max = answered_max
        self._memories: dict[Caller, CallerMemory] = {}
        self.get = self._memories.get
        """The memory of a caller, or None. A plain (name, incarnation) pair works as the key, too."""
        self.by_text: dict[str, CallerMemory] = {}
        """The same memories by how stamps begin: name and incarnation, a number in its shortest form."""
        self.lost = 0

    def begin(self, caller: Caller) -> CallerMemory:
        """Create the memory of a caller. Only the two newest incarnations of a name are remembered.

        Two, because a request of the previous incarnation may still arrive after the first one of the new incarnation.
        """
        memories = self._memories
        for other in [known for known in memories if known.process == caller.process][:-1]:
            self._forget(other)
        if len(memories) >= self._callers_max:
            self._forget(next(iter(memories)))
            self.lost += 1
        memory = memories[caller] = CallerMemory(caller, answered_max=self._answered_max)
        self.by_text[sender_text(*caller)] = memory
        return memory

    def _forget(self, caller: Caller) -> None:
        del self._memories[caller]
        del self.by_text[sender_text(*caller)]

    def seen(self) -> tuple[Seen, ...]:
        """All memories as reported."""
        return tuple(memory.seen() for memory in self._memories.values())
