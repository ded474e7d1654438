"""Open calls as the sidecar sees them: those that the program serves, and those that it makes."""

from __future__ import annotations

from dataclasses import dataclass, field

from stilltrue.model import CallNumber, PartyName, WaitNumber
from stilltrue.protocol.books.ledger import ClientCall, ServerCall


@dataclass(slots=True, eq=False)
class InboundCall:
    """A call to the program that has not ended.

    ``traces``: its trace-id and ``x-request-id``; ``stamped``: its caller reads stamps. ``sole_of``: those of ``traces`` that
    nothing else here has used. ``started_at``: when it was first known to be served. ``waits_since``: when its
    current wait began; ``moved_at``: when anything last happened in it. ``first_item_at``: when the first message of its reply
    was sent, until that is counted as an item of a stream. Times are in seconds of the recorder's clock.
    """

    served: ServerCall
    traces: tuple[bytes, ...]
    stamped: bool
    sole_of: set[bytes] = field(default_factory=set)
    started_at: float = 0.0
    acted: bool = False
    over: bool = False
    made: list[OutboundCall] = field(default_factory=list)
    wait: WaitNumber | None = None
    waits_for: tuple[CallNumber, ...] = ()
    waits_since: float = 0.0
    moved_at: float = 0.0
    replied: bool = False
    first_item_at: float | None = None

    @property
    def party(self) -> PartyName:
        """The party that serves it."""
        return self.served.party


@dataclass(slots=True, eq=False)
class OutboundCall:
    """A call by the program whose outcome is not known.

    ``caller`` is the inbound call that made it (None: unknown; ``late``: one that had ended before). ``asked``: its request is
    complete. ``answering``: its reply has begun. ``counted``: no evidence contradicts that its caller is blocked on it.
    ``alone``: no other call of the same caller has ended since.
    """

    made: ClientCall
    method: str
    caller: InboundCall | None
    counted: bool
    late: bool = False
    asked: bool = False
    answering: bool = False
    alone: bool = True
    over: bool = False

    @property
    def awaited(self) -> bool:
        """Whether this call alone would count its caller as blocked on it."""
        return self.counted and self.asked and not self.answering
