"""Tracks whether a process may act spontaneously, as its application declares (docs/design.md, section 4). Unknown is active.

A process that is not reactive is active until :meth:`Activities.idle` is called; from then on it is idle while none of its
parties is active. A thread or task is active from :meth:`Activities.active` until its own ``idle``. ``busy`` blocks nest.
"""

from __future__ import annotations

from stilltrue.model import PartyName


class Activities:
    """The active parties of a process, and its open ``busy`` blocks."""

    __slots__ = ("_active", "_busy", "_declared_idle")

    def __init__(self, *, reactive: bool) -> None:
        """``reactive``: the process acts only when it receives a message."""
        self._declared_idle = reactive
        self._active: set[PartyName] = set()
        self._busy = 0

    @property
    def all_idle(self) -> bool:
        """Whether the process is declared idle and nothing in it is active."""
        return self._declared_idle and not self._active and not self._busy

    def active(self, party: PartyName) -> None:
        """Mark ``party`` active until it calls :meth:`idle` itself."""
        self._active.add(party)

    def idle(self, party: PartyName) -> None:
        """Mark ``party`` idle; also declares that nothing else in the process acts spontaneously."""
        self._active.discard(party)
        self._declared_idle = True

    def rename(self) -> None:
        """Forget the parties, which get new names. If one was active, the process stays active until the next ``idle``."""
        if self._active:
            self._declared_idle = False
            self._active.clear()

    def busy(self) -> None:
        """Enter a block of work."""
        self._busy += 1

    def done(self) -> None:
        """Leave a block of work."""
        self._busy -= 1
