"""When to send a lease: each third of its time, unless a report has just renewed it and there is nothing else to say.

A detector hears a member in each message. So while snapshots are taken often, reports renew the lease, and few leases are sent:
those that say something new, and now and then one for what it counts.
"""

from __future__ import annotations

from stilltrue.v1 import agent_pb2 as pb

SHARE = 3
"""How many times a lease is renewed before it would end."""
SKIPPED_MAX = 8
"""After this number of skipped leases, one is sent for what it counts."""


class Leases:
    """The leases of one session. ``now`` is monotonic."""

    def __init__(self, hello: pb.Hello, now: float) -> None:
        """``hello`` began the session."""
        self._looked_at = now
        self._reported = False
        self._skipped = 0
        self._said = _news(pb.Lease(sight=hello.sight if hello.HasField("sight") else None))
        self.demanded = False
        """Whether the detector waits for a lease: it has asked for a cut that is made already."""

    def reported(self) -> None:
        """A report is sent: it renews the lease."""
        self._reported = True

    def due(self, now: float, lease_seconds: float) -> bool:
        """Whether it is time to look whether one must be sent."""
        return self.demanded or now - self._looked_at >= lease_seconds / SHARE

    def must_send(self, lease: pb.Lease, now: float) -> bool:
        """Whether ``lease`` must be sent: no report has renewed it since the last time, or it says something new."""
        news = _news(lease)
        wanted = self.demanded or not self._reported or news != self._said or self._skipped >= SKIPPED_MAX
        self._looked_at, self._said, self._reported, self.demanded = now, news, False, False
        self._skipped = 0 if wanted else self._skipped + 1
        return wanted


def _news(lease: pb.Lease) -> bytes:
    """What a report does not say; of the calls only whether there were any."""
    rest = pb.Lease()
    rest.CopyFrom(lease)
    rest.colour = 0
    if rest.HasField("sight"):
        rest.sight.calls = min(rest.sight.calls, 1)
    return rest.SerializeToString(deterministic=True)
