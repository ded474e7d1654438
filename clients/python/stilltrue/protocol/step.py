"""Rule 7 for the application: facts change in the same step as the message they belong to.

    with agent.atomic() as step:      # give the token up, and send it, in one step
        step.fact(tokens=0)
        step.carries(token=1)
        stub.Pass(request)

A step is a passive value: the application declares what belongs to it, and the recorder applies it. Changes are deferred until
the one message is sent, and later ones until the step closes, when its reply counts as received.
"""

from __future__ import annotations

from typing import Any

from stilltrue.model import Fact, Facts
from stilltrue.protocol.books.ledger import ClientCall, ServerCall
from stilltrue.protocol.stamp import Stamp

INTEGER_MAX = 2**63


class StepError(RuntimeError):
    """Invalid use of a step by the application; the text says how."""


def checked(facts: dict[str, Any]) -> dict[str, Fact]:
    """``facts``, if all of them can be reported. Raises ``TypeError`` or ``ValueError`` with the fact's name."""
    for name, value in facts.items():
        if not isinstance(value, bool | int | float | str):
            raise TypeError(f"fact {name}: must be a bool, int, float or str, not {type(value).__name__}")
        if isinstance(value, int) and not -INTEGER_MAX <= value < INTEGER_MAX:
            raise ValueError(f"fact {name}: {value} does not fit in 64 bits")
    return facts


class Step:
    """One step of the application. Open in one task or thread, and not shared."""

    __slots__ = ("came_back", "carried", "changes", "message", "outcome", "replying", "served", "spent", "taking")

    def __init__(self, served: ServerCall | None = None) -> None:
        """``served`` is the call being served where the step is made, if any."""
        self.served = served
        self.changes: dict[str, Fact] = {}
        self.carried: dict[str, Fact] = {}
        self.taking = False
        self.replying = False
        self.spent = False
        """Its message was sent."""
        self.message: ClientCall | None = None
        self.outcome: tuple[Stamp | None, bool] | None = None
        """How the message ended (its reply's stamp, in doubt), held back until the step closes."""
        self.came_back: dict[str, Fact] = {}
        """What the message carried, which has failed, as far as nobody has said since how much of it there is."""

    def fact(self, **changes: Fact) -> None:
        """Facts of this process change in this step."""
        self.changes.update(checked(changes))

    def carries(self, **facts: Fact) -> None:
        """Facts travel with the message of this step."""
        self.carried.update(checked(facts))

    def takes(self) -> None:
        """The facts that came with the request being served are this process's own from this step on."""
        if self.served is None:
            raise StepError("takes(): no call is being served here")
        self.taking = True

    def with_reply(self) -> None:
        """The message of this step is the reply of the call being served: the step is made when the handler returns."""
        if self.served is None:
            raise StepError("with_reply(): no call is being served here")
        self.replying = True

    def spend(self) -> tuple[Facts, Facts]:
        """The step's message is sent: the facts it carries, and what changes with it. Once, else :class:`StepError`."""
        if self.spent:
            raise StepError("atomic(): a second message in one step")
        self.spent = True
        changes, self.changes = self.changes, {}
        return self.carried, changes
