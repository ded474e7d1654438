"""Whether a process may act spontaneously, as its application declares (docs/design.md, section 4). Unknown is active.

A process that is not reactive is active until :meth:`Activities.idle` is called; from then on it is idle while none of its
parties is active. A thread or task is active after :meth:`Activities.active` until its own ``idle``; ``busy`` blocks are
counted as often as they were entered.
"""

from __future__ import annotations

from stilltrue.model import PartyName


class Activities:
    """The parties at work."""

    __slots__ = ("_active", "_busy", "_said_idle")

    def __init__(self, *, reactive: bool) -> None:
        """``reactive``: the process does nothing unless a message comes."""
        self._said_idle = reactive
        self._active: set[PartyName] = set()
        self._busy = 0

    @property
    def none(self) -> bool:
        """Whether nothing is owed."""
        return self._said_idle and not self._active and not self._busy

    def active(self, party: PartyName) -> None:
        """``party`` is at work until it says :meth:`idle` itself."""
        self._active.add(party)

    def idle(self, party: PartyName) -> None:
        """``party`` is no longer active, and the process has declared that nothing else in it acts spontaneously."""
        self._active.discard(party)
        self._said_idle = True

    def rename(self) -> None:
        """The parties get other names from now on: if one was active, the process stays active until the next ``idle``."""
        if self._active:
            self._said_idle = False
            self._active.clear()

    def busy(self) -> None:
        """A block of work begins."""
        self._busy += 1

    def done(self) -> None:
        """A block of work ends."""
        self._busy -= 1
