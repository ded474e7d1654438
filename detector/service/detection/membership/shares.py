"""A bound on all members together, of which each has a share: a few that say too much leave the others what they need."""

from __future__ import annotations

from stilltrue.model import ProcessName


class Shares:
    """How much of the bound each member has."""

    def __init__(self, most: int) -> None:
        """``most``: for all together. Who has no more than an equal share may exceed it, until the others have asked again."""
        self.most = most
        self._of: dict[ProcessName, int] = {}
        self._total = 0

    def take(self, name: ProcessName, amount: int) -> bool:
        """Make ``amount`` the share of a member; False, and nothing changes, when it is too much."""
        others = self._total - self._of.get(name, 0)
        members = len(self._of) + (name not in self._of)
        if others + amount > self.most and amount > self.most // members:
            return False
        self._of[name], self._total = amount, others + amount
        return True

    def keep(self, name: ProcessName) -> bool:
        """Whether a member may still have what it has: there may be more members by now."""
        return self.take(name, self._of.get(name, 0))

    def give_back(self, name: ProcessName) -> None:
        """A member has left, or what it said is dropped."""
        self._total -= self._of.pop(name, 0)
