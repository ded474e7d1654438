"""The network between processes: packets in transit, their order of arrival, and connection losses not yet noticed.

Guarantee: a server knows of a lost connection when a snapshot has ended since the loss and another one begins.
"""

from __future__ import annotations

from collections import deque

from detector.simulator.plans.plan import Order
from detector.simulator.world.enabled_actions import Action, EnabledActions


class Network:
    """The packets in transit; a packet that may arrive is an enabled action."""

    def __init__(self, order: Order, enabled: EnabledActions) -> None:
        self._order = order
        self._enabled = enabled
        self._lanes: dict[tuple[str, str], deque[Action]] = {}
        self._lane_of: dict[Action, tuple[str, str]] = {}
        self.unnoticed: dict[Action, bool] = {}
        """Connection losses that a server has not noticed, and whether a snapshot has ended since."""

    def post(self, packet: Action, source: str, target: str) -> None:
        """Send a packet on the channel from ``source`` to ``target``."""
        if self._order is Order.ANY:
            self._enabled.add("deliver", *packet)
            return
        lane = self._lanes.setdefault((source, target), deque())
        self._lane_of[packet] = (source, target)
        lane.append(packet)
        if len(lane) == 1:
            self._enabled.add("deliver", *packet)

    def remove(self, packet: Action) -> None:
        """Remove a packet that has arrived or is lost."""
        self._enabled.discard("deliver", *packet)
        if self._order is Order.ANY:
            return
        lane = self._lanes[self._lane_of.pop(packet)]
        first = lane[0] == packet
        lane.remove(packet)
        if first and lane:
            self._enabled.add("deliver", *lane[0])

    def requests_of(self, key: Action) -> list[Action]:
        """The copies of a call's request that may arrive now."""
        return [one for one in self._enabled.bags["deliver"].actions if one[:2] == ("request", key)]

    def snapshot_ended(self) -> None:
        """A snapshot has ended, which may have missed the unnoticed losses."""
        self.unnoticed.update(dict.fromkeys(self.unnoticed, True))

    def overdue(self) -> list[Action]:
        """Connection losses that must be noticed now, since a snapshot has ended."""
        return [action for action, overdue in self.unnoticed.items() if overdue]
