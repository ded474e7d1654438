"""The enabled actions by kind, with addition, removal and random choice in constant time."""

from __future__ import annotations

from random import Random
from typing import Any

from detector.simulator.plans.plan import Weights
from stilltrue.model import ProcessName

Action = tuple[Any, ...]
"""One step of a world: a word, then names and numbers. The same actions in the same order give the same run."""

KINDS = tuple(Weights.__dataclass_fields__)


class Bag:
    """A set of actions that can be drawn by index."""

    __slots__ = ("_at", "actions")

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self._at: dict[Action, int] = {}

    def add(self, action: Action) -> None:
        """Add ``action`` if it is not present."""
        if action not in self._at:
            self._at[action] = len(self.actions)
            self.actions.append(action)

    def discard(self, action: Action) -> None:
        """Remove ``action`` if it is present; the last action takes its index."""
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
        """Whether an action of one of ``kinds`` is enabled."""
        return any(self.bags[kind].actions for kind in kinds)

    def draw(self, random: Random, weights: Weights, kinds: tuple[str, ...] = KINDS) -> Action | None:
        """Draw an action: its kind by weight, then uniformly within the kind; None if there is none."""
        choices = [(bag.actions, getattr(weights, kind)) for kind in kinds if (bag := self.bags[kind]).actions]
        total = sum(weight for _, weight in choices)
        if total <= 0:
            return None
        point = random.random() * total
        drawn = choices[-1][0]
        for actions, weight in choices:
            point -= weight
            if point < 0:
                drawn = actions
                break
        return drawn[int(random.random() * len(drawn))]

    def all(self, *kinds: str) -> list[Action]:
        """All actions of ``kinds`` (of all kinds if none are given), sorted."""
        return sorted(
            (action for kind in kinds or KINDS for action in self.bags[kind].actions), key=lambda one: tuple(map(str, one))
        )


def owner_of(action: Action) -> ProcessName:
    """The process whose event an action is; an empty name for events of the detector or of no process."""
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
