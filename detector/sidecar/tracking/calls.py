"""Open calls as the sidecar sees them: one that the program serves, and one that it makes."""

from __future__ import annotations

from stilltrue.model import CallNumber, PartyName, WaitNumber
from stilltrue.protocol.books.ledger import ClientCall, ServerCall


class InboundCall:
    """A call to the program that has not ended."""

    __slots__ = (
        "acted", "made", "over", "served", "sole_of_trace", "stamped", "started_at", "trace", "wait", "waits_for",
    )  # fmt: skip

    def __init__(self, served: ServerCall, trace: bytes, *, stamped: bool) -> None:
        """``trace`` is the trace-id of its ``traceparent`` (empty: none); ``stamped``: its caller reads stamps.

        ``sole_of_trace``: nothing else here has borne that trace. ``started_at``: when it was first known to be served.
        """
        self.served = served
        self.trace = trace
        self.stamped = stamped
        self.sole_of_trace = False
        self.started_at = 0.0
        self.acted = False
        self.over = False
        self.made: list[OutboundCall] = []
        self.wait: WaitNumber | None = None
        self.waits_for: tuple[CallNumber, ...] = ()

    @property
    def party(self) -> PartyName:
        """The party that serves it."""
        return self.served.party


class OutboundCall:
    """A call by the program whose outcome is not known.

    ``asked``: its request is complete. ``answering``: its reply has begun. ``counted``: nothing contradicts that its caller is
    blocked on it. ``alone`` until another call of the same caller has ended.
    """

    __slots__ = ("alone", "answering", "asked", "caller", "counted", "made", "method", "over")

    def __init__(self, made: ClientCall, method: str, caller: InboundCall | None, *, counted: bool) -> None:
        """``caller`` is the inbound call that made it; None: unknown."""
        self.made = made
        self.method = method
        self.caller = caller
        self.counted = counted
        self.asked = False
        self.answering = False
        self.alone = True
        self.over = False

    @property
    def awaited(self) -> bool:
        """Whether its caller counts as blocked on it, as far as this call shows."""
        return self.counted and self.asked and not self.answering
