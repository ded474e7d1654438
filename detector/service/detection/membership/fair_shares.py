"""A total bound shared by all members, so that a few with large reports leave the others what they need."""

from __future__ import annotations

from stilltrue.model import ProcessName


class FairShares:
    """The members' shares of the bound."""

    def __init__(self, most: int) -> None:
        """``most``: the total. Members below an equal share may exceed it, until the others' next request."""
        self.most = most
        self._shares: dict[ProcessName, int] = {}
        self._total = 0

    def take(self, name: ProcessName, amount: int) -> bool:
        """Set a member's share to ``amount``; returns False, changing nothing, if that is too much."""
        others = self._total - self._shares.get(name, 0)
        members = len(self._shares) + (name not in self._shares)
        if others + amount > self.most and amount > self.most // members:
            return False
        self._shares[name], self._total = amount, others + amount
        return True

    def keep(self, name: ProcessName) -> bool:
        """Whether a member may keep its share; there may be more members by now."""
        return self.take(name, self._shares.get(name, 0))

    def release(self, name: ProcessName) -> None:
        """Release a member's share."""
        self._total -= self._shares.pop(name, 0)
