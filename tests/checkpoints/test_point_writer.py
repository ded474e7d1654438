"""The keeper: a point is complete only once stored, in order; a failing store is reported."""

from __future__ import annotations

import threading

from detector.checkpoints.protocol.points import CompletedPoint, PointKind, State
from detector.checkpoints.runtime.point_writer import Keeper
from stilltrue.model import SnapshotId


def point(number: int) -> CompletedPoint:
    snapshot = State(snapshot=SnapshotId(number), states={}, channels={})
    return CompletedPoint(id=SnapshotId(number), kind=PointKind.PERIODIC, name="", triggered=0, completed=0, snapshot=snapshot)


class Slow:
    """A store that saves only when it is let."""

    def __init__(self, log: list[str]) -> None:
        self.log, self.go = log, threading.Event()

    def save(self, point: CompletedPoint) -> None:
        assert self.go.wait(10)
        if point.id == 2:
            raise OSError("disk full")
        self.log.append(f"saved {point.id}")

    def drop(self, point: SnapshotId) -> None:
        self.log.append(f"dropped {point}")


async def test_points_are_stored_in_order_and_failures_reported() -> None:
    log: list[str] = []
    store = Slow(log)
    keeper = Keeper(store, kept=lambda one: log.append(f"kept {one.id}"), failed=lambda error: log.append(f"failed: {error}"))
    keeper.keep(point(1))
    keeper.keep(point(2))
    keeper.keep(point(3))
    keeper.drop(SnapshotId(1))
    assert log == []
    store.go.set()
    await keeper.settled()
    assert log == ["saved 1", "kept 1", "failed: disk full", "saved 3", "kept 3", "dropped 1"]


async def test_without_a_store_a_point_completes_at_once() -> None:
    log: list[int] = []
    keeper = Keeper(None, kept=lambda one: log.append(one.id), failed=lambda _error: None)
    keeper.keep(point(1))
    keeper.drop(SnapshotId(1))
    assert log == [1]
    await keeper.settled()
