"""The parties that answer a named mailbox or key, as the application declares with ``agent.answers()``.

Rules:

1. A wait for a name is a wait for the party that answers it, or for one of them if there are several. If no party has declared
   that it answers a name, anyone may answer it: a wait for it ends by itself.
2. A declaration ends with its block, with :meth:`Answering.stop`, or with its party: when the served call is over, the task is
   done, or the thread has ended.
"""

from __future__ import annotations

from collections.abc import Callable

from stilltrue.model import PartyName
from stilltrue.protocol.books.call_state import ServerState
from stilltrue.protocol.report import Hold
from stilltrue.runtime.concurrent_reads import items_of
from stilltrue.runtime.parties import Parties, end_of_current


class Answering:
    """A declaration that a party answers some names, until the block ends or :meth:`stop` is called. A block is optional."""

    __slots__ = ("_answers",)

    def __init__(self, answers: Answers | None) -> None:
        """``answers`` records it; None if recording failed."""
        self._answers = answers

    def stop(self) -> None:
        """End this declaration. Idempotent."""
        answers, self._answers = self._answers, None
        if answers is not None:
            answers.end(self)

    def __enter__(self) -> Answering:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()


class Answers:
    """The declarations of one process. Without a lock, as the cut reads them too."""

    def __init__(self, parties: Parties) -> None:
        """``parties`` names the current party."""
        self._parties = parties
        self._now: dict[Answering, tuple[PartyName, Callable[[], bool], tuple[str, ...]]] = {}

    def begin(self, names: tuple[str, ...]) -> Answering:
        """Declare that the current party answers ``names``."""
        answering = Answering(self)
        self._now[answering] = (self._parties.current(), self._end_of_current(), names)
        return answering

    def end(self, answering: Answering) -> None:
        """End a declaration. Idempotent."""
        self._now.pop(answering, None)

    def restart(self) -> None:
        """Start afresh after a fork: the parties belonged to the parent."""
        self._now.clear()

    def holds(self) -> tuple[Hold, ...]:
        """The declarations in force, as holders of resources with a single share."""
        found: dict[Hold, None] = {}
        for answering, (party, has_ended, names) in items_of(self._now):
            if has_ended():
                self._now.pop(answering, None)
            else:
                found.update(dict.fromkeys(Hold(party=party, resource=name) for name in names))
        return tuple(found)

    def _end_of_current(self) -> Callable[[], bool]:
        """A function that returns whether the current party has ended."""
        served = self._parties.serving()
        return end_of_current() if served is None else lambda: served.state is ServerState.OVER
