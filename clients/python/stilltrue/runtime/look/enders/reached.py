"""What reachability says of the ways out of one look: who can end a wait that is so proved.

Whoever can reach what a suspect waits for, and was not named at the cut, is a way out. Without a proof there is doubt.
"""

from __future__ import annotations

from collections.abc import Mapping

from stilltrue.model import PartyName
from stilltrue.runtime.look.enders.found import Found
from stilltrue.runtime.parties import Parties
from stilltrue.runtime.seen.reachability.waits import Reachable

_UNPROVED = "who can reach what it waits for could not be found, or nothing keeps its task"


def add_reachers(found: Mapping[PartyName, Found], reachable: Reachable, parties: Parties) -> None:
    """Add who can reach what the suspects wait for to their ways out; ``reachable`` was proved before the look began."""
    for party, asked in reachable.asked.items():
        one, task = found.get(party), asked.task()
        enders = None if task is None else reachable.enders.get(task)
        if one is None:
            continue
        if not enders:
            one.doubt = one.doubt or _UNPROVED
        for ender in enders or ():
            by = parties.of(ender, None)
            if by not in asked.enders and by != party:
                one.add(f"task {ender.get_name()}, which can reach what it waits for", by, ender)
