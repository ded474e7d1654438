"""Ways out of waits that were proved by reachability.

A task or thread that can reach the awaited object and was not named at the cut is a way out. Without a proof there is doubt.
What a loop that no thread runs is to do with the object is no way out by itself: whoever can run the loop can reach the object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stilltrue.model import PartyName
from stilltrue.runtime import compat
from stilltrue.runtime.introspection.tasks import Task
from stilltrue.runtime.look.ways_out.actors import Actor
from stilltrue.runtime.look.ways_out.findings import Found
from stilltrue.runtime.waits.reachability.loops.stopped_loops import has_stopped
from stilltrue.runtime.waits.reachability.task_waits import ProvedEnders
from stilltrue.runtime.waits.reachability.thread_waits import ReportedThreadWait

_UNPROVED = "the tasks that can reach what it waits for could not be determined, or nothing keeps its task alive"
_UNPROVED_OF_THREADS = "the threads that can reach what it waits for could not be determined"


def add_tasks_that_reach(
    found: Mapping[PartyName, Found], reachable: ProvedEnders, party_of: Callable[[int | Task], PartyName | None]
) -> None:
    """Add those that can reach what the suspects, tasks, wait for; ``reachable`` was proved before the look began."""
    for party, asked in reachable.asked.items():
        one, task = found.get(party), asked.task()
        enders = None if task is None else reachable.enders.get(task)
        if one is None:
            continue
        if not enders:
            one.doubt = one.doubt or _UNPROVED
        for ender in enders or ():
            by = party_of(ender)
            if by is None or (by not in asked.enders and by != party):
                one.add_way_out(f"{_name_of(ender)}, which can reach what it waits for", by, ender)


def add_threads_that_reach(
    found: Mapping[PartyName, Found],
    asked: Mapping[PartyName, ReportedThreadWait],
    proved: Mapping[PartyName, tuple[int | Task, ...] | None],
    party_of: Callable[[int | Task], PartyName | None],
) -> None:
    """The same for threads; ``proved``: by party, the threads and tasks that can end its wait, found before the look began."""
    for party, enders in proved.items():
        one = found.get(party)
        if one is None:
            continue
        if enders is None:
            one.doubt = one.doubt or _UNPROVED_OF_THREADS
        for ender in enders or ():
            by = party_of(ender)
            if by is None or by not in asked[party].enders:
                one.add_way_out(f"{_name_of(ender)}, which can reach what it waits for", by, ender)


def without_proved(
    suspects: list[Found], held: int, actor: Actor, proved: Mapping[PartyName, ReportedThreadWait]
) -> list[Found]:
    """The ``suspects`` whose wait for the object with the identity ``held`` an actor may end that no party needs to run.

    ``proved``: the waits of threads for which the same look proves who can reach what they wait for.
    """
    if not (compat.is_stopped_loop(actor.loop) or has_stopped(actor.owner)):
        return suspects
    waits = (None if one.place.party is None else proved.get(one.place.party) for one in suspects)
    return [one for one, wait in zip(suspects, waits, strict=True) if wait is None or id(wait.thing()) != held]


def _name_of(ender: int | Task) -> str:
    return f"thread {ender}" if isinstance(ender, int) else f"task {ender.get_name()}"
