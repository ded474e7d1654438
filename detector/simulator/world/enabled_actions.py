"""What can happen next, by kind: additions, removals and a random choice in constant time."""

from __future__ import annotations

from random import Random
from typing import Any

from detector.simulator.plans.plan import Weights
from stilltrue.model import ProcessName

Action = tuple[Any, ...]
"""One step of a world: a word, then names and numbers; the same actions in the same order give the same run."""

KINDS = tuple(Weights.__dataclass_fields__)


class Bag:
    """A set of actions from which one can be drawn by its position."""

    __slots__ = ("_at", "actions")

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self._at: dict[Action, int] = {}

    def add(self, action: Action) -> None:
        """Put ``action`` in; nothing if it is in."""
        if action not in self._at:
            self._at[action] = len(self.actions)
            self.actions.append(action)

    def discard(self, action: Action) -> None:
        """Take ``action`` out; nothing if it is not in. The last one takes its place."""
        at = self._at.pop(action, None)
        if at is None:
            return
        last = self.actions.pop()
        if at < len(self.actions):
            self.actions[at] = last
            self._at[last] = at

    def __contains__(self, action: Action) -> bool:
        return action in self._at

    def __len__(self) -> int:
        return len(self.actions)


class EnabledActions:
    """One bag for each kind of step."""

    def __init__(self) -> None:
        self.bags: dict[str, Bag] = {kind: Bag() for kind in KINDS}

    def add(self, kind: str, *action: Any) -> None:
        """Enable ``action``."""
        self.bags[kind].add(action)

    def discard(self, kind: str, *action: Any) -> None:
        """Disable ``action``."""
        self.bags[kind].discard(action)

    def has(self, *kinds: str) -> bool:
        """Whether anything of one of ``kinds`` can happen."""
        return any(self.bags[kind].actions for kind in kinds)

    def draw(self, random: Random, weights: Weights, kinds: tuple[str, ...] = KINDS) -> Action | None:
        """One action, its kind by weight and then any of that kind alike; None when there is none."""
        able = [(bag.actions, getattr(weights, kind)) for kind in kinds if (bag := self.bags[kind]).actions]
        total = sum(weight for _, weight in able)
        if total <= 0:
            return None
        point = random.random() * total
        drawn = able[-1][0]
        for actions, weight in able:
            point -= weight
            if point < 0:
                drawn = actions
                break
        return drawn[int(random.random() * len(drawn))]

    def all(self, *kinds: str) -> list[Action]:
        """Every action of the given kinds (all kinds if none is given), sorted."""
        return sorted(
            (action for kind in kinds or KINDS for action in self.bags[kind].actions), key=lambda one: tuple(map(str, one))
        )


def owner_of(action: Action) -> ProcessName:
    """The process whose event an action is; the detector's events (and those of no process) have the empty name."""
    match action:
        case (
            ("step" | "take" | "interrupt" | "reset" | "hangup", name, *_)
            | ("request", _, _, name)
            | ("marker" | "look" | "cure", _, name, _)
            | ("settles", _, name, _, _)
        ):
            return ProcessName(name)
        case ("reply" | "fail", (name, *_), *_) | ("expire" | "hedge", (name, *_)):
            return ProcessName(name)
        case ("expire", name, _):
            return ProcessName(name)
    return ProcessName("")
