"""Who answers what: the parties that serve a named mailbox or key, as the application declares.

Rules:

1. A wait for a name is a wait for the party that answers it; if several do, for one of them. A name that nobody answers may
   be answered by anybody: a wait for it ends by itself.
2. It ends with its block, with :meth:`Answering.stop`, or with its party: the call that was served is over, the task is done,
   the thread has ended.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from weakref import ref

from stilltrue.model import PartyName
from stilltrue.protocol.books.call_state import ServerState
from stilltrue.protocol.report import Hold
from stilltrue.runtime.changing import items_of
from stilltrue.runtime.parties import Parties


class Answering:
    """A party answers some names, until the block ends or :meth:`stop` is called. Also in force without a block."""

    __slots__ = ("_answers",)

    def __init__(self, answers: Answers | None) -> None:
        """``answers`` has it; None if that failed."""
        self._answers = answers

    def stop(self) -> None:
        """The names are answered no longer, at least not by this. Idempotent."""
        answers, self._answers = self._answers, None
        if answers is not None:
            answers.end(self)

    def __enter__(self) -> Answering:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()


class Answers:
    """What the parties of one process answer. No lock: it is also read at the cut."""

    def __init__(self, parties: Parties) -> None:
        """``parties`` names them."""
        self._parties = parties
        self._now: dict[Answering, tuple[PartyName, Callable[[], bool], tuple[str, ...]]] = {}

    def begin(self, names: tuple[str, ...]) -> Answering:
        """The current party answers ``names`` from now on."""
        answering = Answering(self)
        self._now[answering] = (self._parties.now(), self._end_of_current(), names)
        return answering

    def end(self, answering: Answering) -> None:
        """It is over."""
        self._now.pop(answering, None)

    def restart(self) -> None:
        """Start again, as after a fork: the parties were the parent's."""
        self._now.clear()

    def holds(self) -> tuple[Hold, ...]:
        """Who answers what at this moment, as shares of which there is one."""
        found: dict[Hold, None] = {}
        for answering, (party, is_over, names) in items_of(self._now):
            if is_over():
                self._now.pop(answering, None)
            else:
                found.update(dict.fromkeys(Hold(party=party, resource=name) for name in names))
        return tuple(found)

    def _end_of_current(self) -> Callable[[], bool]:
        """Whether the current party is over."""
        served = self._parties.serving()
        if served is not None:
            return lambda: served.state is ServerState.OVER
        task = asyncio.current_task() if asyncio._get_running_loop() is not None else None  # noqa: SLF001 - as in Parties.now
        if task is not None:
            weak = ref(task)
            return lambda: (still := weak()) is None or still.done()
        thread = threading.current_thread()
        return lambda: not thread.is_alive()
