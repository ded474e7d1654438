"""Tasks of one process that await and cancel each other, as far as a cut or a look can see them.

No recorder is notified of these: as in a live process, they are observed. A task with a ``Stop`` ahead of it holds a reference
to the task that it stops. A ``deep`` one is seen only by a second look, not by a cut.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

from detector.simulator.plans.plan import Close, Join, Op, Shut, Stop, flat
from detector.simulator.world.state import Party, Process
from stilltrue.model import PartyName, party
from stilltrue.protocol.observation import Observation
from stilltrue.protocol.report import LocalWait, PartyTarget


def task_named(process: Process, number: int) -> Party | None:
    """The root task with this number, unless it is over."""
    return process.parties.get(party(process.name, f"task#{number}"))


def stoppers(who: Party, *, deep: bool = True) -> list[Party]:
    """The parties that may yet end the waits of ``who``; without ``deep``, only those that a cut can see.

    They may stop it, or a task that awaits it and passes the cancellation on; close the channel of a call that one of these
    waits for; or stop the server that one of these serves for.
    """
    chain = [who, *awaiting(who)]
    return [
        other
        for other in who.process.parties.values()
        if other is not who and any(_may_end(op, one, deep=deep) for op in _ahead(other) for one in chain)
    ]


def holders(who: Party) -> list[Party]:
    """The parties that hold ``who``, or a task that awaits it, and have yet to await it themselves."""
    chain = [who, *awaiting(who)]
    return [other for other in who.process.parties.values() if any(_has_yet_to_await(other, one) for one in chain)]


def _has_yet_to_await(other: Party, who: Party) -> bool:
    """Whether ``other`` holds the task ``who`` and will await it; if cancelled then, it cancels the task, too."""
    if other.newest is not who or (other.block is not None and other.block.task is who):
        return False
    return any(isinstance(op, Join) and op.task == 0 and op.passes_on for op in other.body[other.at :])


def awaiting(who: Party) -> list[Party]:
    """The parties that await ``who``, or will, directly or indirectly, and cancel it when they are cancelled."""
    found: list[Party] = []
    todo = [who]
    while todo:
        one = todo.pop()
        above = [other for other in who.process.parties.values() if _awaits(other, one) or _has_yet_to_await(other, one)]
        new = [other for other in above if other is not who and other not in found]
        found += new
        todo += new
    return found


def _awaits(other: Party, who: Party) -> bool:
    return other.block is not None and other.block.task is who and other.block.passes_on


def _ahead(who: Party) -> tuple[Op, ...]:
    return flat(who.body[who.at :])


def _may_end(op: Op, who: Party, *, deep: bool) -> bool:
    match op:
        case Stop(task=task):
            return who.name == party(who.process.name, f"task#{task}") and (deep or not op.deep)
        case Close(service=service):
            return deep and who.block is not None and any(call.service == service for call in who.block.calls)
        case Shut():
            return deep and who.call is not None
    return False


def observed(process: Process) -> Observation:
    """What a cut can see of a process's tasks."""
    blocked = [who for who in process.parties.values() if who.block is not None]
    known = {who.name: tuple(sorted(one.name for one in stoppers(who, deep=False))) for who in blocked}
    return Observation(waits=tuple(_waits(process)), ways_out={name: others for name, others in known.items() if others})


def _waits(process: Process) -> Iterator[LocalWait]:
    for who in process.parties.values():
        if who.block is not None and who.block.task is not None:
            yield LocalWait(
                waiter=who.name, number=who.block.number, among=(PartyTarget(party=who.block.task.name),), what="a task"
            )


def found_by_look(process: Process, name: PartyName) -> tuple[PartyName, ...]:
    """The parties that, as a second look finds, hold a reference to a party and may stop it."""
    who = process.parties.get(name)
    if who is None:
        return ()
    return tuple(sorted({other.name for other in (*stoppers(who), *holders(who))}))


def awaited_since(process: Process, name: PartyName, suspected: Container[PartyName]) -> bool:
    """Whether a party that the cut did not show as waiting now awaits this one; suspected parties already did at the cut."""
    who = process.parties.get(name)
    return who is not None and any(other.block is not None and other.name not in suspected for other in awaiting(who))
