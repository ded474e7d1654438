"""``agent.atomic()``: opens and closes a step of the application (protocol rule 7 of the recorder)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stilltrue.protocol.books.ledger import ServerCall
from stilltrue.protocol.step import Step, StepError
from stilltrue.runtime.locked_recorder import LockedRecorder


@contextmanager
def atomic(live: LockedRecorder, served: ServerCall | None) -> Iterator[Step]:
    """A step of the current party; ``served`` is the call it serves, if any. No lock is held during the step.

    Raises :class:`~stilltrue.protocol.step.StepError` if a step is already open here, or if ``carries()`` was called and the
    step ends without having sent a message.
    """
    step = Step(served)
    key = live.open(step)
    try:
        yield step
    finally:
        live.close(key, step)
    if step.carried and not (step.spent or step.replying):
        raise StepError("atomic(): carries() was called, but the step sent no message")
