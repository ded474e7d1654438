"""When a process requests a snapshot, and which recent ones serve as well."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from stilltrue.model import WaitNumber
from stilltrue.runtime.membership.triggers import AGAIN_SECONDS_MAX, AGAIN_SECONDS_MIN, STILL_BLOCKED, SnapshotRequests


class Live:
    """A process with one wait that began at a given time, or with none."""

    def __init__(self) -> None:
        self.now = 100.0
        self.wait: tuple[int, float] | None = None

    def clock(self) -> float:
        return self.now

    def oldest_wait(self, after: WaitNumber) -> tuple[int, float] | None:
        return self.wait if self.wait is not None and self.wait[0] > after else None


@pytest.fixture
def polled() -> Any:
    live, requests = Live(), SnapshotRequests(0.5)

    def poll(now: float) -> Any:
        live.now = now
        return requests.poll(live, now)  # type: ignore[arg-type]  # the part of the recorder that it asks

    return SimpleNamespace(live=live, at=poll)


def test_a_long_wait_is_covered_by_a_snapshot_that_began_after_it_became_long(polled: Any) -> None:
    polled.live.wait = (1, 100.0)
    assert polled.at(100.4) is None
    reason, covered = polled.at(100.6)
    assert (reason, covered) == ("blocked for 0.600 s", pytest.approx(0.6))


def test_a_continuing_wait_is_covered_by_a_snapshot_since_the_last_request(polled: Any) -> None:
    polled.live.wait = (1, 100.0)
    assert polled.at(101.0) is not None
    asked, covered, now = [101.0], [], 101.0
    while len(asked) < 6:
        now += 0.01
        request = polled.at(now)
        if request is not None:
            assert request.reason.startswith(STILL_BLOCKED)
            asked.append(now)
            covered.append(request.covered_seconds)
    pauses = [after - before for before, after in itertools.pairwise(asked)]
    assert covered == pytest.approx(pauses, abs=0.02)
    assert pauses[0] == pytest.approx(AGAIN_SECONDS_MIN, abs=0.02)
    assert pauses[-1] == pytest.approx(AGAIN_SECONDS_MAX, abs=0.02)


def test_an_ended_wait_requests_nothing(polled: Any) -> None:
    polled.live.wait = (1, 100.0)
    assert polled.at(101.0) is not None
    polled.live.wait = None
    assert polled.at(102.0) is None
