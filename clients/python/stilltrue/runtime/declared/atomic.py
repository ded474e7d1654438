"""``agent.atomic()``: opens a step of the application and closes it again (rule 7; the recorder has the rules)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stilltrue.protocol.books.ledger import ServerCall
from stilltrue.protocol.step import Step, StepError
from stilltrue.runtime.recorder import LockedRecorder


@contextmanager
def atomic(live: LockedRecorder, served: ServerCall | None) -> Iterator[Step]:
    """A step of the current party, during which no lock is held; ``served`` is the call it serves, if any.

    Raises :class:`~stilltrue.protocol.step.StepError` when a step is already open here, and at the end when facts were to
    travel and no message was sent.
    """
    step = Step(served)
    key = live.open(step)
    try:
        yield step
    finally:
        live.close(key, step)
    if step.carried and not (step.spent or step.replying):
        raise StepError("atomic(): carries() was called, but the step sent no message")
