"""How the items of pools of processes are named, and the turns of their workers.

A pool is named by the pipe on which its workers send results: it is the same pipe in all of its processes.
"""

from __future__ import annotations

from typing import Any

from stilltrue.runtime.introspection.linux.child_processes import process_at
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.waits.files.kernel import machine
from stilltrue.runtime.waits.pipes.kernel import other_end_at
from stilltrue.runtime.waits.resolvers.processes import named
from stilltrue.runtime.waits.resolvers.thread_pools import MODULE

EXECUTORS, POOLS = "concurrent.futures.process", MODULE
"""The modules; not imported here: a program that waits in one has imported it."""


def name_of_item(end: Any, number: int, part: int = 0) -> str | None:
    """The name of a pool's item, by its number; ``end``: an end of the pipe for results. None if it has none."""
    descriptor, where = attribute_of(end, "_handle"), machine()
    pipe = other_end_at(descriptor) if type(descriptor) is int else None
    return None if pipe is None or where is None else f"item {number}.{part} of the pool with {pipe} of machine {where}"


def name_of_turn(pid: int) -> str | None:
    """The name of the turn of a worker; None if it has ended."""
    process = process_at(pid)
    return None if process is None else named("turn", process)
