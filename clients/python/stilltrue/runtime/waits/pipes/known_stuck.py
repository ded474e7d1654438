"""The children of this process that are known to be stuck; :mod:`~stilltrue.runtime.waits.stuck_children` finds them.

All agents of a process share this: whichever searches first finds them for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stilltrue.runtime.introspection.linux.child_processes import joined_at, process_at

Key = tuple[int, int]
"""The process id and the start time of a child."""


class _Known:
    names: Mapping[Key, tuple[str, ...]] = {}
    asked = False
    """Whether a party waits for a child that may be stuck."""


def remember_stuck(names: Mapping[Key, tuple[str, ...]]) -> None:
    """Remember the stuck children, instead of those known before, each with the names by which others wait for it."""
    _Known.names = names


def ask_for_stuck() -> None:
    """Have the stuck children searched for, in the agent's own thread."""
    _Known.asked = True


def was_asked() -> bool:
    """Whether they were asked for since the last call."""
    asked, _Known.asked = _Known.asked, False
    return asked


def is_known_stuck(pid: object) -> bool:
    """Whether this child is known to be stuck, still there, and no member: one reports for itself."""
    child = process_at(pid) if type(pid) is int and any(pid == one for one, _ in _Known.names) else None
    return child is not None and child.key in _Known.names and joined_at(child) is None


def are_known_stuck(pids: Iterable[int]) -> bool:
    """The same for all of these children."""
    return all(map(is_known_stuck, pids))


def is_of_stuck(resource: str) -> bool:
    """Whether this is the name of something of a child that is known to be stuck."""
    return any(resource in names and is_known_stuck(pid) for (pid, _), names in _Known.names.items())
