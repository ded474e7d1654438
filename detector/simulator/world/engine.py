"""The engine: performs the actions of a world with the handlers from a table, and keeps the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from detector.simulator.world.enabled_actions import Action
from detector.simulator.world.state import Process
from detector.simulator.world.world import Entry, World

Handler = Callable[..., Process | None]
"""Called with the world and the action without its first word; returns the process whose event it was, if any."""


class Engine:
    """Dispatches actions. It contains no randomness: the same actions give the same run."""

    def __init__(self, world: World, handlers: Mapping[str, Handler]) -> None:
        """``handlers`` by the action's first word."""
        self.world = world
        self._handlers = handlers

    def do(self, action: Action) -> None:
        """Perform ``action``."""
        world = self.world
        world.now += world.step_seconds
        process = self._handlers[action[0]](world, *action[1:])
        if process is not None:
            world.log.append(Entry(action, world.now, process.name, process.recorder.colour))

    def notice_losses(self) -> None:
        """A snapshot begins: servers notice the connection losses that an earlier snapshot may have missed."""
        for action in self.world.network.overdue():
            if action in self.world.network.unnoticed:
                self.do(action)
