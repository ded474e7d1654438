"""Stop the world: the synchronous snapshot that barriers replace, kept to measure them against.

Sources pause, the channels drain, every vertex's state is taken, the sources go on. Naiad's way, as Carbone et al. 2015
tell it (on related work). It never ends where a loop never drains.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from detector.checkpoints.protocol.points import Value
from detector.checkpoints.runtime.inbox import PauseSource
from detector.checkpoints.runtime.pipeline import Pipeline
from stilltrue.model import ProcessName

States = Mapping[ProcessName, Value]


async def stopped_states(pipeline: Pipeline, keep: Callable[[States], Awaitable[None]] | None = None) -> States:
    """Stop ``pipeline``, take every vertex's state, wait for ``keep`` (if given), and let it go on."""
    vertices = pipeline.vertices
    for vertex in vertices.values():
        vertex.inbox.command(PauseSource(paused=True))
    try:
        while not all(vertex.resting and vertex.inbox.quiet for vertex in vertices.values()):
            await asyncio.sleep(0)
        states = {name: vertex.made.state() for name, vertex in vertices.items()}
        if keep is not None:
            await keep(states)
    finally:
        for vertex in vertices.values():
            vertex.inbox.command(PauseSource(paused=False))
    return states
