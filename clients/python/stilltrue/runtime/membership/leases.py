"""Decides when to send a lease: each third of its term, unless a report has just renewed it and the lease has nothing new.

Any message from a member renews its lease. So while snapshots are frequent the reports renew it, and only leases with new
content are sent, and occasionally one for its counters.
"""

from __future__ import annotations

from stilltrue.v1 import agent_pb2 as pb

SHARE = 3
"""Number of renewals per term of a lease."""
SKIPPED_MAX = 8
"""After this number of skipped leases one is sent for its counters."""


class Leases:
    """The leases of one session. ``now`` is monotonic."""

    def __init__(self, hello: pb.Hello, now: float) -> None:
        """``hello`` began the session."""
        self._checked_at = now
        self._reported = False
        self._skipped = 0
        self._content = _content(pb.Lease(sight=hello.sight if hello.HasField("sight") else None))
        self.demanded = False
        """Whether the detector waits for a lease, as it has asked for a cut that was already made."""

    def reported(self) -> None:
        """A report is sent, which renews the lease."""
        self._reported = True

    def due(self, now: float, lease_seconds: float) -> bool:
        """Whether it is time to call :meth:`must_send`."""
        return self.demanded or now - self._checked_at >= lease_seconds / SHARE

    def must_send(self, lease: pb.Lease, now: float) -> bool:
        """Whether ``lease`` must be sent: no report has renewed it since the last check, or its content is new."""
        content = _content(lease)
        needed = self.demanded or not self._reported or content != self._content or self._skipped >= SKIPPED_MAX
        self._checked_at, self._content, self._reported, self.demanded = now, content, False, False
        self._skipped = 0 if needed else self._skipped + 1
        return needed


def _content(lease: pb.Lease) -> bytes:
    """The fields that a report does not have; of the calls only whether there were any."""
    rest = pb.Lease()
    rest.CopyFrom(lease)
    rest.colour = 0
    if rest.HasField("sight"):
        rest.sight.calls = min(rest.sight.calls, 1)
    return rest.SerializeToString(deterministic=True)
