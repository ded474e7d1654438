"""Rule 7 for the application: its facts change in the same step as the message that they belong to.

    with agent.atomic() as step:      # give the token up, and send it, in one step
        step.fact(tokens=0)
        step.carries(token=1)
        stub.Pass(request)

No lock is held inside the block: changes are kept back until the one message is sent, and those after it until the block ends,
when the reply to it counts as received.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from stilltrue.model import Fact, Facts
from stilltrue.protocol.ledger import ClientCall, ServerCall
from stilltrue.protocol.stamp import Stamp

if TYPE_CHECKING:
    from stilltrue.runtime.recorder import LockedRecorder

WHOLE_MAX = 2**63


class StepError(RuntimeError):
    """A step was used in a way that cannot be one step; the text says which."""


def checked(facts: dict[str, Any]) -> dict[str, Fact]:
    """``facts``, all of which can be told to the detector. Raises ``TypeError`` or ``ValueError`` with the fact's name."""
    for name, value in facts.items():
        if not isinstance(value, bool | int | float | str):
            raise TypeError(f"fact {name}: a bool, int, float or str, not {type(value).__name__}")
        if isinstance(value, int) and not -WHOLE_MAX <= value < WHOLE_MAX:
            raise ValueError(f"fact {name}: {value} has more than 64 bits")
    return facts


def here() -> int:
    """Who runs this line, as a key: its task, else its thread."""
    if asyncio._get_running_loop() is not None:  # noqa: SLF001 - the documented way that does not raise
        task = asyncio.current_task()
        if task is not None:
            return id(task)
    return threading.get_ident()


class Step:
    """One step of the application. Open in one task or thread, and not shared."""

    def __init__(self, live: LockedRecorder, served: ServerCall | None) -> None:
        """``served`` is the call that is being served here, if one is."""
        self._live = live
        self._served = served
        self._key = 0
        self._changes: dict[str, Fact] = {}
        self._carries: dict[str, Fact] = {}
        self._takes = False
        self._with_reply = False
        self._sent: ClientCall | None = None
        self._spent = False
        self._held: tuple[ClientCall, Stamp | None, bool] | None = None

    def fact(self, **changes: Fact) -> None:
        """Facts of this process change in this step."""
        self._changes.update(checked(changes))

    def carries(self, **facts: Fact) -> None:
        """Facts travel with the message of this step."""
        self._carries.update(checked(facts))

    def takes(self) -> None:
        """The facts that came with the request being served are this process's own from this step on."""
        if self._served is None:
            raise StepError("takes(): no call is being served here")
        self._takes = True

    def with_reply(self) -> None:
        """The message of this step is the reply of the call being served: the step is made when the handler returns."""
        if self._served is None:
            raise StepError("with_reply(): no call is being served here")
        self._with_reply = True

    def __enter__(self) -> Step:
        self._key = here()
        with self._live.lock:
            if self._key in self._live.steps:
                raise StepError("atomic(): a step is open here already")
            self._live.steps[self._key] = self
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        live = self._live
        with live.lock:
            del live.steps[self._key]
            if self._held is not None:
                made, stamp, in_doubt = self._held
                live.settle(made, stamp, in_doubt, self._changes)
            elif self._with_reply and self._served is not None:
                live.replies[self._served.serial] = (self._carries, self._changes)
                return
            elif self._takes and self._served is not None:
                live.recorder.took(self._served, self._changes)
            elif self._changes:
                live.recorder.fact(self._changes)
        if self._carries and not self._spent and error is None:
            raise StepError("atomic(): facts were to travel, but no message was sent in the step")

    # -- for the recorder; under its lock ------------------------------------------------------------------------------

    def spend(self) -> tuple[Facts, Facts]:
        """A message is sent in this step: the facts it carries, and what changes with it. Once."""
        if self._spent:
            raise StepError("atomic(): a second message in one step")
        self._spent = True
        changes, self._changes = self._changes, {}
        if self._takes and self._served is not None:
            self._served.taken = True
            self._takes = False
        return self._carries, changes

    def sent(self, made: ClientCall) -> None:
        """This call was the message."""
        self._sent = made

    def holds_back(self, made: ClientCall, stamp: Stamp | None, in_doubt: bool) -> bool:
        """Whether the settling of ``made`` belongs to the end of this step; it is kept until then."""
        if made is not self._sent:
            return False
        self._held = (made, stamp, in_doubt)
        return True
