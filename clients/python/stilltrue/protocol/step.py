"""Protocol rule 7 for the application: facts change in the same step as the message they belong to.

    with agent.atomic() as step:      # give the token up, and send it, in one step
        step.fact(token=0)
        step.carries(token=1)
        stub.Pass(request)

A step is a passive value: the application declares what belongs to it, and the recorder applies it. Changes take effect when
the step's one message is sent; later changes, and the reply, take effect when the step closes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stilltrue.model import Fact, Facts
from stilltrue.protocol.books.ledger import ClientCall, ServerCall
from stilltrue.protocol.stamp import Stamp

INTEGER_MAX = 2**63


class StepError(RuntimeError):
    """The application misused a step; the message says how."""


def check_facts(facts: dict[str, Any]) -> dict[str, Fact]:
    """Return ``facts`` if all of them can be reported. Raises ``TypeError`` or ``ValueError`` that names the fact."""
    for name, value in facts.items():
        if not isinstance(value, bool | int | float | str):
            raise TypeError(f"fact {name}: must be a bool, int, float or str, not {type(value).__name__}")
        if isinstance(value, int) and not -INTEGER_MAX <= value < INTEGER_MAX:
            raise ValueError(f"fact {name}: {value} does not fit in 64 bits")
    return facts


@dataclass(slots=True, eq=False)
class Step:
    """One step of the application (``with agent.atomic() as step``). Used by one task or thread; not shared.

    Fact values are ``bool``, ``int`` (64 bits, signed), ``float`` or ``str``.
    """

    served: ServerCall | None = None
    """The call being served where the step is opened, if any."""
    changes: dict[str, Fact] = field(default_factory=dict)
    carried: dict[str, Fact] = field(default_factory=dict)
    taking: bool = False
    replying: bool = False
    spent: bool = False
    """Whether its message was sent."""
    message: ClientCall | None = None
    outcome: tuple[Stamp | None, bool] | None = None
    """The outcome of the message (its reply's stamp, whether in doubt), held back until the step closes."""
    lost: dict[str, Fact] = field(default_factory=dict)
    """The facts carried by the message, if it failed and they were not set since; each is ``UNKNOWN_FACT``."""

    def fact(self, **changes: Fact) -> None:
        """Change facts of this process in this step.

        Raises ``TypeError`` for a value of another type, and ``ValueError`` for an integer that does not fit in 64 bits.
        """
        self.changes.update(check_facts(changes))

    def carries(self, **facts: Fact) -> None:
        """Let facts travel with the message of this step. Raises as :meth:`fact`."""
        self.carried.update(check_facts(facts))

    def takes(self) -> None:
        """Make the facts that came with the request being served this process's own.

        Raises :class:`StepError` if no call is being served where the step was opened.
        """
        if self.served is None:
            raise StepError("takes(): no call is being served here")
        self.taking = True

    def with_reply(self) -> None:
        """Make the reply of the call being served the message of this step, which takes effect when the handler returns.

        Raises :class:`StepError` if no call is being served where the step was opened.
        """
        if self.served is None:
            raise StepError("with_reply(): no call is being served here")
        self.replying = True

    def spend(self) -> tuple[Facts, Facts]:
        """Take the facts that the message carries and those that change with it. Raises :class:`StepError` the second time."""
        if self.spent:
            raise StepError("atomic(): a second message in one step")
        self.spent = True
        changes, self.changes = self.changes, {}
        return self.carried, changes
