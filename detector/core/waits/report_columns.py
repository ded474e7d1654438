"""The reports of one snapshot as columns: no Python object for each wait or call.

Processes, parties and methods are positions in ``processes``, ``names`` and ``methods``; moments are by the detector's clock,
NaN where there is none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detector.graph.columns import Bools, Floats
from stilltrue.model import PartyName, ProcessId, ProcessState

Rows = NDArray[np.int64]

OUTSIDE, MISSING = -1, -2
"""In the place of a caller: no member, or nobody; a member without a report."""
CALL, PARTY, OTHER = 0, 1, 2
"""What a target is."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MadeColumns:
    """The M outstanding calls. ``special``: in doubt, hedged, sent more than once, or with facts."""

    process: Rows
    number: Rows
    method: Rows
    deadline: Floats
    sent: Rows
    received: Rows
    special: Bools


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServedColumns:
    """The S calls that have arrived. ``caller`` is known by name; ``same``: and is the incarnation that reported."""

    process: Rows
    party: Rows
    method: Rows
    caller: Rows
    same: Bools
    number: Rows
    deadline: Floats
    sent: Rows
    received: Rows
    serving: Bools
    taken: Bools
    interruptible: Bools
    hung_up: Bools


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SeenColumns:
    """What servers remember of callers; ``answered_by`` (its row here) and ``answered`` are the calls that they answered."""

    process: Rows
    caller: Rows
    same: Bools
    highest: Rows
    floor: Rows
    forgotten: Bools
    answered_by: Rows
    answered: Rows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocalWaitColumns:
    """The W waits. ``every``: all of its targets are needed.

    ``wait`` is the row here of each of T targets; ``kind`` is ``CALL``, ``PARTY`` or ``OTHER``; ``target`` its number or name.
    """

    process: Rows
    waiter: Rows
    number: Rows
    deadline: Floats
    since: Floats
    uncoloured: Bools
    every: Bools
    what: tuple[str, ...]
    wait: Rows
    kind: Rows
    target: Rows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReportColumns:
    """The reports of P processes, sorted by name. ``lost``: which had to forget something; ``holding``: which hold resources.

    ``owner``: (N,) the process of each party in ``names``, if it reported, else ``OUTSIDE``.
    """

    processes: tuple[ProcessId, ...]
    states: tuple[ProcessState, ...]
    next_number: Rows
    lost: Bools
    holding: Bools
    names: tuple[PartyName, ...]
    owner: Rows
    methods: tuple[str, ...]
    made: MadeColumns
    served: ServedColumns
    seen: SeenColumns
    waits: LocalWaitColumns

    @property
    def has_facts(self) -> bool:
        """Whether any process has a fact."""
        return any(state.facts for state in self.states)
