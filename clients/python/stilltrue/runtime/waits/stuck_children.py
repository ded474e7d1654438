"""Child processes that have no agent and never go on, for which parties of this process wait.

Rules:

1. A child never goes on if it and its own children stand still (:mod:`~stilltrue.runtime.waits.pipes.process_trees`) and the
   pipes at which they wait have no other end in another process: each thread waits for a lock that another one held when the
   process was forked, say, for each other, or for a child that waits for it. The system shows that; the child has no agent.
   Another process may be about to signal it (:mod:`~stilltrue.runtime.waits.pipes.signallers`): that is unknown.
2. Whoever waits for the child's end, or for its work, waits for itself: it holds, in the child's place, what it waits for. A
   party that may end the child is a way out, as in any such wait.
3. A child that is stuck remains so. It is found in the agent's own thread, while a party waits for a child that is no member.
4. So does whoever waits for the turn of a stuck worker: what that was running never comes
   (:mod:`~stilltrue.runtime.waits.process_pools.pools`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator

from stilltrue.model import PartyName
from stilltrue.protocol.report import Hold, ResourceTarget
from stilltrue.runtime.introspection.linux.child_processes import ChildProcess, child_processes, parent_of
from stilltrue.runtime.waits.pipes.known_stuck import ask_for_stuck, is_of_stuck, remember_stuck, was_asked
from stilltrue.runtime.waits.pipes.process_trees import tree_of
from stilltrue.runtime.waits.pipes.signallers import may_be_signalled
from stilltrue.runtime.waits.process_pools.names import name_of_turn
from stilltrue.runtime.waits.process_view import LiveProcessView
from stilltrue.runtime.waits.resolvers.processes import name_of, work_of
from stilltrue.runtime.waits.wait import Ender, SeenWait

AGAIN_SECONDS = 0.5
CHILDREN_MAX = 64
_OF_PROCESSES = ("end of process", "work of process", "turn of process")


class StuckChildren:
    """The stuck children of this process."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._again = float("-inf")

    def search(self) -> None:
        """Find the stuck children, if a party waits for a process."""
        if time.monotonic() < self._again or not was_asked():
            return
        self._again = time.monotonic() + AGAIN_SECONDS
        own = [child for child in child_processes()[:CHILDREN_MAX] if parent_of(child.pid) == os.getpid()]
        stuck = [child for child in own if is_stuck(child.pid)]
        remember_stuck({child.key: tuple(name for name in _names_of(child) if name) for child in stuck})

    def holds(self, view: LiveProcessView) -> tuple[Hold, ...]:
        """Rule 2."""
        waits = list(_waits_for_processes(view))
        if waits:
            ask_for_stuck()
        return tuple(
            Hold(party=party, resource=target.resource)
            for party, wait in waits
            for target in wait.enders or ()
            if isinstance(target, ResourceTarget) and is_of_stuck(target.resource)
        )


def _names_of(child: ChildProcess) -> tuple[str | None, ...]:
    return name_of(child), work_of(child), name_of_turn(child.pid)


def is_stuck(pid: int) -> bool:
    """Whether a child never goes on (rule 1)."""
    tree = tree_of(pid)
    return tree is not None and tree.is_closed() and not may_be_signalled(tree.processes)


def _waits_for_processes(view: LiveProcessView) -> Iterator[tuple[PartyName, SeenWait]]:
    threads: list[tuple[Ender, SeenWait]] = [(stack.ident, wait) for _, stack, wait in view.blocked()]
    tasks: list[tuple[Ender, SeenWait]] = [
        (task, wait) for task in view.stacks_of_tasks() if (wait := view.wait_of_task(task)) is not None
    ]
    for who, wait in (*threads, *tasks):
        party = view.party_of(who) if _is_for_process(wait.enders or ()) else None
        if party is not None:
            yield party, wait


def _is_for_process(enders: Iterable[object]) -> bool:
    return any(isinstance(one, ResourceTarget) and one.resource.startswith(_OF_PROCESSES) for one in enders)
