"""Pictures and graphs are drawn once for all concurrent viewers, and bounded."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import time
from typing import Any, cast

import pytest

from detector.service.web.api import picture_cache
from detector.service.web.api.api import Api
from detector.service.web.api.picture_cache import Pictures
from stilltrue.v1 import detector_pb2 as pb


def stored(number: int) -> pb.GetSnapshotResponse:
    answer = pb.GetSnapshotResponse(document_json="{}")
    answer.summary.ref.id = number
    return answer


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the snapshots whose graph was drawn; each takes a while, and none is drawn beside another."""
    numbers: list[int] = []
    alone = threading.Lock()

    def draw(answer: pb.GetSnapshotResponse, _predicate: str, _core: object) -> dict[str, Any]:
        assert alone.acquire(blocking=False), "two are drawn at once"
        time.sleep(0.02)
        numbers.append(answer.summary.ref.id)
        alone.release()
        if answer.summary.ref.id == 13:
            raise ValueError("cannot be drawn")
        return {"snapshot": answer.summary.ref.id, "nodes": [], "edges": []}

    monkeypatch.setattr(picture_cache, "graph_of", draw)
    return numbers


async def test_hundreds_of_concurrent_viewers_share_one_drawing(drawn: list[int]) -> None:
    shared = Pictures()
    answers = await asyncio.gather(*(shared.graph(stored(1 + at % 2)) for at in range(300)))
    assert sorted(drawn) == [1, 2]
    assert json.loads(answers[0].body)["snapshot"] == 1
    assert answers[0].gzipped is not None
    assert gzip.decompress(answers[0].gzipped).decode() == answers[0].body


async def test_a_viewer_that_leaves_does_not_cancel_the_drawing(drawn: list[int]) -> None:
    shared = Pictures()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await shared.graph(stored(1))
    await shared.graph(stored(1))
    assert drawn == [1]


async def test_a_failed_drawing_fails_for_all_viewers_and_is_retried(drawn: list[int]) -> None:
    shared = Pictures()
    for _ in range(2):
        failed = await asyncio.gather(*(shared.graph(stored(13)) for _ in range(5)), return_exceptions=True)
        assert {str(each) for each in failed} == {"cannot be drawn"}
    assert drawn == [13, 13]


async def test_few_large_pictures_are_kept(drawn: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture_cache, "KEPT_CHARACTERS_MAX", 180)
    shared = Pictures()
    for number in (1, 2, 3, 1, 3):
        await shared.graph(stored(number))
    assert drawn == [1, 2, 3, 1]


async def test_a_viewer_with_the_same_layout_gets_only_the_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    node = {"id": "a/1", "service": "a", "role": "core", "victim": False, "since": "2026-11-20T14:02:11Z", "parties": ["a/1"]}

    def draw(answer: pb.GetSnapshotResponse, _predicate: str, _core: object) -> dict[str, Any]:
        number = answer.summary.ref.id
        return {"snapshot": number, "nodes": [{**node, "victim": number == 3, "waits": [f"{number} s for b"]}], "edges": []}

    monkeypatch.setattr(picture_cache, "graph_of", draw)
    shared = Pictures()
    first = json.loads((await shared.graph(stored(1))).body)
    same = json.loads((await shared.graph(stored(2), shape=first["shape"])).body)
    assert same == {"snapshot": 2, "shape": first["shape"]}
    other = json.loads((await shared.graph(stored(3), shape=first["shape"])).body)
    assert other["nodes"][0]["victim"]
    assert other["shape"] != first["shape"]


async def test_the_latest_snapshot_is_shown_with_its_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    unjudged, judged, rejected = stored(7), stored(7), stored(8)
    judged.verdicts.add(predicate="deadlock")
    rejected.summary.outcome = "rejected"

    answers = [unjudged, unjudged, judged, rejected]

    class Store:
        async def snapshot(self, id: int) -> pb.GetSnapshotResponse:
            assert id == 0
            return answers.pop(0)

    monkeypatch.setattr(
        picture_cache, "graph_of", lambda answer, *_: {"verdicts": len(answer.verdicts), "nodes": [], "edges": []}
    )
    api = Api(driver=cast("Any", None), snapshot_store=cast("Any", Store()), find=cast("Any", None))
    assert json.loads((await api.document("snapshots/latest/graph")).body)["verdicts"] == 1
    assert (await api.document("snapshots/latest/graph")) is not None, "a rejected one never has verdicts"
