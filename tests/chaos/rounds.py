"""Seeded rounds of a deadlock that comes and goes, while acts of faults and outsiders strike; the oracle looks on."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from stilltrue.v1 import detector_pb2, detector_pb2_grpc, snapshot_pb2
from tests.chaos.fleet import Fleet
from tests.chaos.holdings import Holdings, Sample
from tests.chaos.oracle import BreachError, Oracle
from tests.chaos.processors import Window

NAMES = ("m0", "m1", "m2")
ANSWER_SECONDS_MAX = 30.0
CALM_SECONDS_MAX = 90.0
LISTED_MAX = 10_000
SAMPLE_SECONDS = 1.0
Act = Callable[["Nemesis"], Awaitable[None]]
ACTS: dict[str, Act] = {}


def act(run: Act) -> Act:
    """One kind of fault, by its name."""
    ACTS[run.__name__] = run
    return run


class Nemesis:
    """One run."""

    def __init__(self, fleet: Fleet, seed: int, seconds: float, ask_seconds: float) -> None:
        self.fleet = fleet
        self.holdings = Holdings(seconds)
        self._ask_seconds = ask_seconds
        self._begun = time.monotonic()
        self.random = random.Random(seed)
        self.oracle = Oracle()
        self.done: Counter[str] = Counter()
        self.unanswered = 0
        self.starved = 0
        self._channel: grpc.aio.Channel | None = None
        self._forgotten: list[grpc.aio.Channel] = []

    @property
    def stub(self) -> Any:
        """A new channel each time it broke: gRPC's own pauses between attempts are not what is tested."""
        if self._channel is None:
            options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 500)]
            self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{self.fleet.port}", options=options)
        return detector_pb2_grpc.DetectorServiceStub(self._channel)  # type: ignore[no-untyped-call]

    @property
    def passed(self) -> float:
        """The share of the run that is over; more than 1 while its last round ends."""
        return (time.monotonic() - self._begun) / self.holdings.seconds

    async def run(self) -> None:
        """Rounds until the time is over, one at the least, while somebody asks all the time."""
        asker = asyncio.create_task(self._asks())
        sampler = asyncio.create_task(self._samples())
        try:
            acts = list(ACTS)
            self.random.shuffle(acts)
            while True:
                rounds = asyncio.create_task(self._round(acts))
                await asyncio.wait([rounds, asker], return_when=asyncio.FIRST_COMPLETED)
                if asker.done():
                    rounds.cancel()
                    asker.result()
                rounds.result()
                if self.passed >= 1:
                    break
            if growth := self.holdings.growth():
                raise BreachError(growth)
        finally:
            asker.cancel()
            sampler.cancel()
            self.forget_channel()
            await asyncio.gather(*(channel.close() for channel in self._forgotten))

    async def _round(self, acts: list[str]) -> None:
        first, second = self.random.sample(NAMES, 2)
        if not self.done or self.random.random() < 0.8:
            await self._deadlock(first, second)
        for _ in range(3):
            name = acts.pop()
            acts.insert(0, name)
            self.done[name] += 1
            await ACTS[name](self)
            if self.passed >= 1:
                break
        await self._is_calm()
        if self.oracle.stuck:
            self.oracle.ends()
            await self.fleet.restart_member(first)
            await self._is_calm()

    async def _deadlock(self, first: str, second: str) -> None:
        members = self.fleet.members
        self.oracle.forms((first, second))
        await members[first].tell(f"hold {self.fleet.address(second)}")
        assert await members[first].line() == "holding"
        await members[second].tell(f"hold {self.fleet.address(first)}")
        assert await members[second].line() == "holding"
        for name in (first, second):
            await members[name].tell("go on")
        await self._is_calm()

    async def _is_calm(self) -> None:
        """Live: with no fault left, what is so is said, and what was listed is listed."""
        wanted = snapshot_pb2.HOLDS_TRUE if self.oracle.stuck else snapshot_pb2.HOLDS_FALSE
        verdict: Any = None
        window = Window(self.fleet.processes)
        try:
            async with asyncio.timeout(CALM_SECONDS_MAX):
                while verdict is None or verdict.holds != wanted or verdict.missing:
                    verdict = await self.ask()
                while self.oracle.stuck and not self.oracle.incident:
                    await self._looks_at_incidents()
                while not self.oracle.stuck and await self._looks_at_incidents():
                    await asyncio.sleep(0.1)  # an answer comes before the incidents that it ends are closed
                await self.lists()
        except TimeoutError:
            if window.starved():
                self.starved += 1
                return
            said = "nothing" if verdict is None else verdict.witness.text
            if not self.oracle.stuck and verdict is not None and verdict.holds == wanted:
                said += ", and an incident is open, or nothing is listed"
            raise BreachError(
                f"not said in {CALM_SECONDS_MAX:g} s of calm, of which others took {window.others():.0%} of the processors: "
                f"{sorted(self.oracle.stuck)} stuck; {said}"
            ) from None

    async def ask(self) -> snapshot_pb2.Verdict | None:
        """One honest question; None when nobody answers."""
        epoch, proved = self.oracle.epoch, self.oracle.proved
        try:
            answer = await self.stub.Ask(
                detector_pb2.AskRequest(predicate="deadlock"), timeout=ANSWER_SECONDS_MAX, wait_for_ready=True
            )
        except grpc.aio.AioRpcError:
            self.unanswered += 1
            self.forget_channel()
            return None
        verdict: snapshot_pb2.Verdict = answer.verdict
        self.oracle.answered(epoch, proved, verdict)
        return verdict

    def forget_channel(self) -> None:
        """The next call dials anew; others may be under way on the old one."""
        if self._channel is not None:
            self._forgotten.append(self._channel)
            self._channel = None

    async def _looks_at_incidents(self) -> bool:
        """Whether an incident is open, as far as anybody says."""
        epoch = self.oracle.epoch
        request = detector_pb2.ListIncidentsRequest(limit=LISTED_MAX)
        try:
            found = await self.stub.ListIncidents(request, timeout=ANSWER_SECONDS_MAX)
        except grpc.aio.AioRpcError:
            return True
        self.oracle.has_incidents(epoch, found.incidents)
        return any(each.predicate == "deadlock" and not each.HasField("closed") for each in found.incidents)

    async def lists(self) -> None:
        """What is listed while the archive cannot be written is not acknowledged: it says so, and is waited for."""
        while not await asyncio.to_thread(self.fleet.writes):
            await asyncio.sleep(0.2)
        found = await self.stub.ListSnapshots(detector_pb2.ListSnapshotsRequest(limit=LISTED_MAX), timeout=ANSWER_SECONDS_MAX)
        self.oracle.lists(summary.ref.id for summary in found.snapshots)

    async def _asks(self) -> None:
        while True:
            await self.ask()
            await self._looks_at_incidents()
            await asyncio.sleep(self._ask_seconds)

    async def _samples(self) -> None:
        while True:
            with contextlib.suppress(OSError):  # the detector has just been killed
                self.holdings.samples.append(
                    Sample(
                        at=self.passed, process=self.fleet.detector_pid, descriptors=self.fleet.open_descriptors(),
                        resident_bytes=self.fleet.resident_bytes(),
                    )
                )  # fmt: skip
            await asyncio.sleep(SAMPLE_SECONDS)

    async def pause(self, low: float, high: float) -> None:
        """The fault lasts."""
        await asyncio.sleep(self.random.uniform(low, high))

    def some(self) -> list[str]:
        """One member or more."""
        return self.random.sample(NAMES, self.random.randint(1, len(NAMES)))
