"""The open calls as the sidecar sees them: one that the program serves, and one that it makes."""

from __future__ import annotations

from stilltrue.model import CallNumber, PartyName, WaitNumber
from stilltrue.protocol.ledger import ClientCall, ServerCall


class InboundCall:
    """A call that came to the program and is not over."""

    __slots__ = (
        "acted", "made", "over", "served", "sole_of_trace", "stamped", "started_at", "trace", "wait", "waits_for",
        "waits_since",
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
        self.waits_since = 0.0

    @property
    def party(self) -> PartyName:
        """Who serves it."""
        return self.served.party


class OutboundCall:
    """A call that the program made and whose outcome has not come.

    ``asked``: its request is complete. ``answering``: something of its reply has come. ``counted``: nothing speaks against its
    caller being blocked on it. ``alone`` until another call of the same caller is over.
    """

    __slots__ = ("alone", "answering", "asked", "caller", "counted", "made", "method", "over")

    def __init__(self, made: ClientCall, method: str, caller: InboundCall | None, *, counted: bool) -> None:
        """``caller`` is the inbound call that it belongs to; None: nobody knows."""
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
        """Whether its caller counts as blocked on it, as far as this call tells."""
        return self.counted and self.asked and not self.answering
