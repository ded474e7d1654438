"""Whether a process owes messages of its own accord, as its application says (docs/design.md, section 4). Unknown is active.

A process that is not reactive is active until :meth:`Activities.idle` is said; from then on it is idle while nobody is at work.
At work is who has said :meth:`Activities.active` and not yet ``idle``, each thread and task for itself, and who is inside a
``busy`` block, counted as often as it was entered.
"""

from __future__ import annotations

from stilltrue.model import PartyName


class Activities:
    """Who is at work."""

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
        """``party`` is at work no longer, and the process has spoken: it owes nothing else of its own accord."""
        self._active.discard(party)
        self._said_idle = True

    def rename(self) -> None:
        """The parties bear other names from now on: as long as somebody was at work, the process is until it says idle anew."""
        if self._active:
            self._said_idle = False
            self._active.clear()

    def busy(self) -> None:
        """A block of work begins."""
        self._busy += 1

    def done(self) -> None:
        """A block of work ends."""
        self._busy -= 1
