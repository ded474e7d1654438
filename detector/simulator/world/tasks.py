"""Tasks of one process that wait for each other and cancel each other, and what a cut or a look can see of that.

No recorder is notified when it happens: as in a live process, it is observed. A task with a ``Stop`` ahead of it holds
a reference to the task that it stops. ``deep`` ones are not seen at a cut, only when somebody looks again.
"""

from __future__ import annotations

from collections.abc import Iterator

from detector.simulator.world.plan import Stop
from detector.simulator.world.state import Party, Process
from stilltrue.model import PartyName, party
from stilltrue.protocol.observation import Observation
from stilltrue.protocol.report import LocalWait, PartyTarget


def task_named(process: Process, number: int) -> Party | None:
    """The root task with this number, unless it is over."""
    return process.parties.get(party(process.name, f"task#{number}"))


def stoppers(who: Party, *, deep: bool = True) -> list[Party]:
    """The parties that may yet stop ``who``; not ``deep``: only those that a cut can see."""
    return [other for other in who.process.parties.values() if other is not who and _may_stop(other, who, deep=deep)]


def _may_stop(other: Party, who: Party, *, deep: bool) -> bool:
    return any(
        isinstance(op, Stop) and who.name == party(who.process.name, f"task#{op.task}") and (deep or not op.deep)
        for op in other.body[other.at :]
    )


def observed(process: Process) -> Observation:
    """What can be seen of a process's tasks at a cut."""
    blocked = [who for who in process.parties.values() if who.block is not None]
    known = {who.name: tuple(sorted(one.name for one in stoppers(who, deep=False))) for who in blocked}
    return Observation(waits=tuple(_joins(process)), ways_out={name: others for name, others in known.items() if others})


def _joins(process: Process) -> Iterator[LocalWait]:
    for who in process.parties.values():
        if who.block is not None and who.block.task is not None:
            yield LocalWait(
                waiter=who.name, number=who.block.number, among=(PartyTarget(party=who.block.task.name),), what="a task"
            )


def seen_again(process: Process, name: PartyName) -> tuple[PartyName, ...]:
    """The parties that a second look finds to hold a reference to a party, and that may stop it."""
    who = process.parties.get(name)
    return () if who is None else tuple(sorted(other.name for other in stoppers(who)))
