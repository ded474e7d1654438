"""The whole state of a world as one hashable value: truth, recorders, messages and the detector's pending snapshots.

Two runs that come to the same value can only go on alike, so an exploration need not follow both. Call numbers and party
names are counted by each process for itself, so that the order of events in different processes leaves no trace.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from hashlib import blake2b
from typing import Any

from detector.simulator.permutation import outline
from detector.simulator.watch import Watch
from detector.simulator.world import World


def fingerprint(world: World, watch: Watch) -> bytes:
    """16 bytes that are equal for equal states."""
    state = (
        outline(world),
        [action for kind in ("step", "take", "expire", "mark") for action in world.agenda.all(kind)],
        [world.processes[name].recorder.__dict__ for name in sorted(world.processes)],
        sorted((key, call.stamp, call.made.received) for key, call in world.calls.items()),
        world.replies,
        world.reports,
        [[who.name for who in lock.holders] + [""] + [who.name for who in lock.queue] for lock in _sorted(world.locks)],
        {snapshot: pending._reports for snapshot, pending in watch.initiator._pending.items()},  # noqa: SLF001
        watch.begun,
        watch.asks_left,
        world.now,
    )
    return blake2b(repr(canonical(state)).encode(), digest_size=16).digest()


def canonical(value: Any) -> Any:
    """``value`` with every mapping and set in a fixed order, and every object as its fields."""
    if value is None or isinstance(value, (str, int, float, bytes, Enum)):
        return value
    if isinstance(value, Mapping):
        return sorted(((repr(canonical(key)), canonical(one)) for key, one in value.items()), key=lambda pair: pair[0])
    if isinstance(value, (set, frozenset)):
        return sorted(map(repr, map(canonical, value)))
    if isinstance(value, (list, tuple, deque)):
        return [canonical(one) for one in value]
    if isinstance(value, Callable):  # type: ignore[arg-type]
        return "function"
    fields = getattr(type(value), "__slots__", None)
    names = fields if fields is not None else tuple(vars(value))
    return type(value).__name__, [(name, canonical(getattr(value, name))) for name in names if name != "__weakref__"]


def _sorted(locks: Mapping[str, Any]) -> list[Any]:
    return [locks[name] for name in sorted(locks)]
