"""The declared pool size is tested by a health check: confirmed without an answer, disproved by one, else in doubt."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from detector.sidecar.tracking import probe as module
from detector.sidecar.tracking.calls import InboundCall
from detector.sidecar.tracking.probe import Answer, PoolProbe
from detector.sidecar.tracking.program import Program
from stilltrue.model import ProcessId, ProcessName, SnapshotId, WaitNumber
from stilltrue.protocol.recorder import Recorder
from stilltrue.protocol.requests.look import LookRequest, Suspect
from stilltrue.runtime.locked_recorder import LockedRecorder


class Beside:
    """A program with a pool told to have one worker, and its probe; the clock and the answers are the test's."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.warnings: list[str] = []
        process = ProcessId(service="orders", instance=ProcessName("orders"), incarnation=1)
        live = LockedRecorder(lambda: Recorder(process=process), clock=lambda: self.now)
        self.program = Program(live, later=lambda _seconds, _do: None, warn=self.warnings.append, workers=1)
        self.sent = asyncio.Event()
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.probe = PoolProbe(self.program.pool, self._check, lambda: self.now)

    async def _check(self) -> Answer:
        self.sent.set()
        return await self.answer

    def comes(self) -> InboundCall:
        return self.program.arrives("/s/Place", None, None, ())

    def doubts(self, *parties: str) -> list[str]:
        suspects = tuple(Suspect(party=party, waits=()) for party in parties)  # type: ignore[arg-type]
        look = self.program.look(LookRequest(snapshot=SnapshotId(1), suspects=suspects), self.probe.doubt())
        return [one.doubt for one in look.parties]


@pytest.fixture
async def tested(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Beside]:
    for name in ("LOOK_SECONDS", "GRACE_SECONDS", "RETRY_SECONDS"):
        monkeypatch.setattr(module, name, 0.001)
    tested = Beside()
    running = asyncio.create_task(tested.probe.run())
    yield tested
    running.cancel()


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0)


async def test_a_full_pool_is_in_doubt_until_a_health_check_has_been_unanswered_for_a_while(tested: Beside) -> None:
    served = tested.comes()
    assert tested.doubts(served.party) == [""]
    queued = tested.comes()
    await tested.sent.wait()
    assert tested.doubts(served.party, queued.party) == [
        "--workers 1 is not tested: no health check has stayed unanswered long enough", ""
    ]  # fmt: skip
    tested.now += module.PENDING_SECONDS_MIN
    assert tested.doubts(served.party, queued.party) == ["", ""]


async def test_a_health_check_that_is_answered_beside_the_others_disproves_the_size(tested: Beside) -> None:
    tested.comes(), tested.comes()
    await tested.sent.wait()
    tested.answer.set_result(Answer.SERVED)
    await _until(lambda: tested.program.pool.size is None)
    assert tested.warnings == ["--workers 1 is wrong: a health check was served at the same time as 1 other"]


async def test_a_health_check_answered_because_one_had_left_disproves_nothing(tested: Beside) -> None:
    first = tested.comes()
    tested.comes()
    await tested.sent.wait()
    tested.answer.set_result(Answer.SERVED)
    tested.program.ends(first)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.05):
            await _until(lambda: tested.program.pool.size is None)
    assert tested.program.pool.size == 1


async def test_without_a_health_service_the_size_stays_in_doubt(tested: Beside) -> None:
    served = tested.comes()
    tested.comes()
    await tested.sent.wait()
    tested.answer.set_result(Answer.UNIMPLEMENTED)
    await _until(lambda: "does not implement the health service (grpc.health.v1.Health)" in tested.doubts(served.party)[0])
    tested.now += 3600.0
    assert "does not implement" in tested.doubts(served.party)[0]


async def test_an_ended_wait_is_noticed_at_the_second_look(tested: Beside) -> None:
    party = tested.comes().party
    request = LookRequest(snapshot=SnapshotId(1), suspects=(Suspect(party=party, waits=(WaitNumber(7),)),))
    assert [one.unchanged for one in tested.program.look(request, "").parties] == [False]
