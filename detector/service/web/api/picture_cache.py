"""Pictures and graphs of stored snapshots, each drawn once for all viewers, and one at a time.

A large graph takes half a second of processor time, which the detector also needs for its snapshots.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from detector.drawing.draw import Format
from detector.ops.http import Answer
from detector.ops.printable_text import printable_json
from detector.service.web.api.graph import graph_of
from detector.service.web.api.picture import picture_of
from stilltrue.model import PartyName
from stilltrue.v1 import detector_pb2 as pb

KEPT_MAX = 32
KEPT_CHARACTERS_MAX = 2**24
"""Total size of the cache; the newest entry is kept regardless of its size."""
FORMS = {"svg": Format.SVG, "space-time": Format.SPACE_TIME}
_JSON = "application/json"
_SVG = "image/svg+xml"
_Core = tuple[PartyName, ...]
_Key = tuple[int, int, str, str, _Core]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawn:
    """A picture or a graph; ``brief``: for clients that have already drawn a graph of the same ``shape``."""

    whole: Answer
    shape: str = ""
    brief: Answer | None = None


class Pictures:
    """A cache of the most recently requested pictures and graphs."""

    def __init__(self) -> None:
        self._drawn: OrderedDict[_Key, _Drawn] = OrderedDict()
        self._drawing: dict[_Key, asyncio.Task[_Drawn]] = {}
        self._turn = asyncio.Lock()

    async def picture(self, answer: pb.GetSnapshotResponse, form: str, predicate: str = "", core: _Core = ()) -> Answer:
        """Draw a stored snapshot in one of ``FORMS``, with its current verdicts; of an incident, only its ``core``."""
        key = _key(answer, form, predicate, core)
        return (await self._once(key, partial(_svg, answer, FORMS[form], predicate, core))).whole

    async def graph(self, answer: pb.GetSnapshotResponse, predicate: str = "", shape: str = "", core: _Core = ()) -> Answer:
        """The wait-for graph as JSON; without nodes and edges if it has the client's ``shape``. ``core``: as above."""
        drawn = await self._once(_key(answer, "graph", predicate, core), partial(_graph, answer, predicate, core))
        return drawn.brief if drawn.brief is not None and shape == drawn.shape else drawn.whole

    async def _once(self, key: _Key, draw: Callable[[], _Drawn]) -> _Drawn:
        """Call ``draw`` once per key; it continues if the client leaves, so that the next one finds the result."""
        if key in self._drawn:
            self._drawn.move_to_end(key)
            return self._drawn[key]
        task = self._drawing.get(key)
        if task is None:
            task = self._drawing[key] = asyncio.create_task(self._draw(key, draw))
        return await asyncio.shield(task)

    async def _draw(self, key: _Key, draw: Callable[[], _Drawn]) -> _Drawn:
        try:
            async with self._turn:
                drawn = self._drawn[key] = await asyncio.to_thread(draw)
        finally:
            del self._drawing[key]
        while len(self._drawn) > 1 and (len(self._drawn) > KEPT_MAX or self._characters() > KEPT_CHARACTERS_MAX):
            self._drawn.popitem(last=False)
        return drawn

    def _characters(self) -> int:
        return sum(len(each.whole.body) for each in self._drawn.values())


def _key(answer: pb.GetSnapshotResponse, form: str, predicate: str, core: _Core) -> _Key:
    return answer.summary.ref.id, len(answer.verdicts), form, predicate, core


def _svg(answer: pb.GetSnapshotResponse, form: Format, predicate: str, core: _Core) -> _Drawn:
    return _Drawn(whole=_compressed(picture_of(answer, form, predicate, core), _SVG))


def _graph(answer: pb.GetSnapshotResponse, predicate: str, core: _Core) -> _Drawn:
    graph = graph_of(answer, predicate, core)
    shape = _shape(graph)
    brief = {name: value for name, value in graph.items() if name not in {"nodes", "edges"}}
    return _Drawn(whole=_json({**graph, "shape": shape}), shape=shape, brief=_json({**brief, "shape": shape}))


def _shape(graph: dict[str, Any]) -> str:
    """A digest of a graph's drawing, which does not depend on the ages of waits."""
    nodes = [[node[name] for name in ("id", "service", "role", "victim", "since", "parties")] for node in graph["nodes"]]
    edges = [[edge[name] for name in ("source", "target", "core")] for edge in graph["edges"]]
    return hashlib.sha256(json.dumps([nodes, edges]).encode()).hexdigest()[:16]


def _json(value: Any) -> Answer:
    return _compressed(printable_json(json.dumps(value, ensure_ascii=False)) + "\n", _JSON)


def _compressed(body: str, content_type: str) -> Answer:
    return Answer(body=body, content_type=content_type, gzipped=gzip.compress(body.encode(errors="replace"), 6, mtime=0))
