"""Preferences between victims: the cost of aborting each party, from a built-in or plug-in preference."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.metadata import entry_points
from numbers import Real

import numpy as np

from detector.core.registry import described
from detector.core.snapshot import Snapshot
from detector.core.waits.resolution import owner_of
from detector.graph.columns import Floats, Ints
from stilltrue.model import ENDED, LOCK, PartyName, ProcessState, process_of

GROUP = "stilltrue.preferences"
UNKNOWN = ProcessState()


Preference = Callable[[PartyName, float | None, ProcessState], float]
"""Returns the cost of aborting a party. The cheapest parties are suggested; infinity means never.

Called with the party, the start of its oldest wait (seconds since the epoch; None if unknown), and the state of its process.
"""


def youngest(_party: PartyName, since: float | None, _state: ProcessState) -> float:
    """Prefer the party that has waited for the shortest time; one of unknown age counts as the oldest."""
    return 0.0 if since is None else -since


def least_work(_party: PartyName, _since: float | None, state: ProcessState) -> float:
    """Prefer the party of the process that declares the least ``work``; an undeclared amount counts as 0."""
    return _number(state, "work")


def lowest_priority(_party: PartyName, _since: float | None, state: ProcessState) -> float:
    """Prefer the party of the process that declares the lowest ``priority``; an undeclared one counts as 0."""
    return _number(state, "priority")


PREFERENCES: dict[str, Preference] = {
    "youngest": youngest,
    "least-work": least_work,
    "lowest-priority": lowest_priority,
}


def find_preference(name: str) -> Preference:
    """Find the preference ``name``: a built-in one, or an entry point of the group ``stilltrue.preferences``.

    Raises
    ------
    ValueError
        If there is none of that name, it cannot be loaded, or several packages provide it.
    """
    if name in PREFERENCES:
        return PREFERENCES[name]
    found = {entry.value: entry for entry in entry_points(group=GROUP, name=name)}
    if not found:
        known = sorted({*PREFERENCES, *(entry.name for entry in entry_points(group=GROUP))})
        raise ValueError(f"setting victims must be one of {', '.join(known)}, not {name!r}; for example victims=youngest")
    if len(found) > 1:
        raise ValueError(f"preference {name!r} is provided by {' and by '.join(sorted(found))}")
    ((place, entry),) = found.items()
    try:
        loaded = entry.load()
    except (Exception, SystemExit) as error:
        raise ValueError(f"preference {name!r} ({place}) cannot be loaded: {described(error)}") from error
    if not callable(loaded):
        raise ValueError(f"preference {name!r} ({place}) is not callable")  # noqa: TRY004 - a setting of the wrong value
    return _ThirdParty(name, loaded)


class PreferenceError(Exception):
    """A third-party preference failed; the text names it."""


@dataclass(frozen=True, slots=True)
class _ThirdParty:
    """A third-party preference; its errors are attributed to it."""

    name: str
    prefers: Preference

    def __call__(self, party: PartyName, since: float | None, state: ProcessState) -> float:
        try:
            cost = self.prefers(party, since, state)
        except (Exception, SystemExit) as error:
            raise PreferenceError(f"preference {self.name!r} failed: {described(error)}") from error
        if not isinstance(cost, Real) or math.isnan(cost):
            raise PreferenceError(f"preference {self.name!r} returned {cost!r}, not a number")
        return float(cost)


@dataclass(frozen=True, slots=True)
class Costs:
    """The cost of aborting each party of one snapshot; infinity for parties that match a pattern in ``never``.

    A pattern is the name of a party or process, in which ``*`` matches anything. Auxiliary parties, ended holders and the locks
    that a probe reports cannot be aborted.
    """

    snapshot: Snapshot
    preference: Preference
    never: tuple[str, ...] = ()

    def __call__(self, parties: Ints) -> Floats:
        """(len(parties),) the cost of each."""
        waits = self.snapshot.waits
        since = np.full(len(waits.names), np.inf)
        np.minimum.at(since, waits.waiter, np.where(np.isnan(waits.since), np.inf, waits.since))
        since, names = since[parties], waits.named(parties)
        if self.preference is youngest and not self.never:  # fast path: a Python call per party would dominate large verdicts
            costs: Floats = np.where(np.isinf(since), 0.0, -since)
            costs[[at for at, name in enumerate(names) if self._is_nobody(name)]] = np.inf
            return costs
        begun = (None if math.isinf(moment) else moment for moment in since.tolist())
        return np.fromiter(map(self._cost, names, begun), np.float64, len(parties))

    def _cost(self, party: PartyName, since: float | None) -> float:
        process = process_of(party)
        if self._is_nobody(party):
            return math.inf
        if any(fnmatchcase(party, pattern) or fnmatchcase(process, pattern) for pattern in self.never):
            return math.inf
        return self.preference(party, since, self.snapshot.processes.get(process, UNKNOWN))

    def _is_nobody(self, party: PartyName) -> bool:
        """Whether there is nothing to abort behind this name."""
        if party.partition("/")[2].startswith((ENDED, LOCK)):
            return True
        if "~" not in party or (owner := owner_of(party)) is None:
            return False
        names = self.snapshot.waits.names
        at = bisect_left(names, owner)
        return at < len(names) and names[at] == owner


def _number(state: ProcessState, fact: str) -> float:
    value = state.facts.get(fact, 0)
    return float(value) if isinstance(value, (int, float)) else 0.0
