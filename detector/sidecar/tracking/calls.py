"""Open calls as the sidecar sees them: those that the program serves, and those that it makes."""

from __future__ import annotations

from stilltrue.model import CallNumber, PartyName, WaitNumber
from stilltrue.protocol.books.ledger import ClientCall, ServerCall


class InboundCall:
    """A call to the program that has not ended."""

    __slots__ = (
        "acted", "made", "over", "served", "sole_of_trace", "stamped", "started_at", "trace", "wait", "waits_for",
        "waits_since",
    )  # fmt: skip

    def __init__(self, served: ServerCall, trace: bytes, *, stamped: bool) -> None:
        """``trace`` is the trace-id of its ``traceparent`` (empty: none); ``stamped``: its caller reads stamps.

        ``sole_of_trace``: nothing else here has used the trace. ``started_at``: when it was first known to be served.
        ``waits_since``: when its current wait began. Times are in seconds of the recorder's clock.
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
        self.waits_since = 0.0

    @property
    def party(self) -> PartyName:
        """The party that serves it."""
        return self.served.party


class OutboundCall:
    """A call by the program whose outcome is not known.

    ``asked``: its request is complete. ``answering``: its reply has begun. ``counted``: no evidence contradicts that its caller
    is blocked on it. ``alone``: no other call of the same caller has ended since.
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
        """Whether this call alone would count its caller as blocked on it."""
        return self.counted and self.asked and not self.answering
