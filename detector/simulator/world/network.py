"""The network between processes: what is in transit, the order of arrival, and lost connections that go unnoticed.

What it promises: when a snapshot has ended since a connection was lost, and another begins, the server knows of it.
"""

from __future__ import annotations

from collections import deque

from detector.simulator.plans.plan import Order
from detector.simulator.world.enabled_actions import Action, EnabledActions


class Network:
    """Packets in transit; each is an action that can happen when it may arrive."""

    def __init__(self, order: Order, enabled: EnabledActions) -> None:
        self._order = order
        self._enabled = enabled
        self._lanes: dict[tuple[str, str], deque[Action]] = {}
        self._lane_of: dict[Action, tuple[str, str]] = {}
        self.unnoticed: dict[Action, bool] = {}
        """Lost connections that a server does not know of yet, and whether a snapshot has ended since."""

    def post(self, packet: Action, source: str, target: str) -> None:
        """A packet sets out on the channel from ``source`` to ``target``."""
        if self._order is Order.ANY:
            self._enabled.add("deliver", *packet)
            return
        lane = self._lanes.setdefault((source, target), deque())
        self._lane_of[packet] = (source, target)
        lane.append(packet)
        if len(lane) == 1:
            self._enabled.add("deliver", *packet)

    def remove(self, packet: Action) -> None:
        """A packet has arrived, or is lost."""
        self._enabled.discard("deliver", *packet)
        if self._order is Order.ANY:
            return
        lane = self._lanes[self._lane_of.pop(packet)]
        first = lane[0] == packet
        lane.remove(packet)
        if first and lane:
            self._enabled.add("deliver", *lane[0])

    def requests_of(self, key: Action) -> list[Action]:
        """The copies of a call's request that can arrive now."""
        return [one for one in self._enabled.bags["deliver"].actions if one[:2] == ("request", key)]

    def snapshot_ended(self) -> None:
        """A snapshot has ended that may have missed what is not noticed yet."""
        self.unnoticed.update(dict.fromkeys(self.unnoticed, True))

    def overdue(self) -> list[Action]:
        """News of lost connections that must have arrived by now: a snapshot has ended since."""
        return [action for action, overdue in self.unnoticed.items() if overdue]
