"""Pending questions, each answered by a snapshot that began after it."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from detector.core.sentences import NO_MEMBERS
from detector.core.undetermined import undetermined
from detector.ops.clock import Clock
from detector.service.settings import Settings
from stilltrue.model import SnapshotRef, Verdict

_ROUNDS_SECONDS_MAX = 4.0
"""Time limit for the verification rounds of a snapshot and its predecessor."""

ASK_AGAIN_MAX = 3
"""Maximum number of further snapshots for a question whose first snapshot takes long."""

Begin = Callable[[int], None]
"""Passes the number of a question to the initiator."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Ask:
    predicate: str
    scope: str
    answer: asyncio.Future[Verdict]


class PendingAsks:
    """Pending questions by number."""

    def __init__(self, *, settings: Settings, clock: Clock, begin: Begin) -> None:
        """``begin`` is called for each question."""
        self._begin = begin
        self._clock = clock
        elsewhere = settings.assembly_seconds_max if settings.kafka else 0.0
        self._seconds_max = 2 * settings.give_up_seconds + 2 * settings.evaluation_seconds_max + _ROUNDS_SECONDS_MAX + elsewhere
        self._asks: dict[int, _Ask] = {}
        self._begun_again: Counter[int] = Counter()
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        return len(self._asks)

    async def ask(self, predicate: str, scope: str) -> Verdict:
        """Take a snapshot now and return the verdict on it."""
        number = next(self._numbers)
        ask = _Ask(predicate=predicate, scope=scope, answer=asyncio.get_running_loop().create_future())
        self._asks[number] = ask
        try:
            self._begin(number)
            return await asyncio.wait_for(ask.answer, self._seconds_max)
        except TimeoutError:
            text = f"no snapshot finished within {self._seconds_max:g} s"
            return self._no_answer(predicate, scope, "overrun", text)
        finally:
            del self._asks[number]
            del self._begun_again[number]

    def waiting(self, numbers: tuple[int, ...]) -> bool:
        """Whether any of the questions is unanswered."""
        return bool(self._waiting(numbers))

    def predicates(self, numbers: tuple[int, ...]) -> set[str]:
        """The predicates of the unanswered questions."""
        return {ask.predicate for ask in self._waiting(numbers)}

    def answer(self, numbers: tuple[int, ...], verdict: Verdict) -> None:
        """Answer the questions that ``verdict`` is about."""
        for ask in self._waiting(numbers):
            if (ask.predicate, ask.scope) == (verdict.predicate, verdict.snapshot.scope):
                ask.answer.set_result(verdict)

    def ask_again(self, numbers: tuple[int, ...]) -> None:
        """Begin another snapshot for the unanswered questions, a few times at most; whichever is faster answers."""
        for number in numbers:
            if self._waiting((number,)) and self._begun_again[number] < ASK_AGAIN_MAX:
                self._begun_again[number] += 1
                self._begin(number)

    def no_members(self, numbers: tuple[int, ...]) -> None:
        """Answer the questions: no process is connected."""
        for ask in self._waiting(numbers):
            ask.answer.set_result(self._no_answer(ask.predicate, ask.scope, "missing", NO_MEMBERS))

    def _waiting(self, numbers: tuple[int, ...]) -> list[_Ask]:
        return [ask for number in numbers if (ask := self._asks.get(number)) is not None and not ask.answer.done()]

    def _no_answer(self, predicate: str, scope: str, kind: str, text: str) -> Verdict:
        now = self._clock.now()
        return undetermined(predicate, SnapshotRef(scope=scope, begun=now, ended=now), kind, text)
