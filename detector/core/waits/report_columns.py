"""The reports of one snapshot as columns, without a Python object for each wait or call.

Processes, parties and methods are indices into ``processes``, ``names`` and ``methods``. Times are by the detector's clock, NaN
if unset.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detector.graph.columns import Bools, Floats
from stilltrue.model import PartyName, ProcessId, ProcessState

Rows = NDArray[np.int64]

OUTSIDE, MISSING = -1, -2
"""Values for a caller that is not a member or is unknown, and for a member without a report."""
CALL, PARTY, OTHER = 0, 1, 2
"""The kinds of target."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MadeColumns:
    """The M outstanding calls. ``special``: it is in doubt, hedged, sent more than once, or carries facts."""

    process: Rows
    number: Rows
    method: Rows
    deadline: Floats
    sent: Rows
    received: Rows
    special: Bools


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServedColumns:
    """The S calls that have arrived. ``same``: the caller is the very incarnation that reported."""

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
    """What servers remember of callers. ``answered`` are the calls they answered, ``answered_by`` the row here of each."""

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
    """The W waits and their T targets. ``every``: the wait needs all of its targets.

    Of each target, ``wait`` is its wait's row here, ``kind`` is ``CALL``, ``PARTY`` or ``OTHER``, and ``target`` the call's
    number or the party's index.
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
    """The reports of P processes, sorted by name. ``lost``: it had to forget something. ``holding``: it holds resources.

    ``owner``: (N,) the process of each party in ``names``; ``OUTSIDE`` if it did not report.
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
