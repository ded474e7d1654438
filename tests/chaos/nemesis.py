"""The nemesis: seeded rounds of a deadlock that comes and goes, under faults and hostile outsiders; the oracle looks on.

``python -m tests.chaos.nemesis --seed 7 --seconds 600``. Ends with 1, and says the seed, when a promise is broken.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from stilltrue.protocol.stamp import METADATA_KEY
from stilltrue.v1 import agent_pb2, agent_pb2_grpc, detector_pb2, detector_pb2_grpc, snapshot_pb2
from tests.chaos.fleet import Fleet
from tests.chaos.link import State
from tests.chaos.oracle import BreachError, Oracle
from tests.chaos.processors import Window

NAMES = ("m0", "m1", "m2")
ANSWER_SECONDS_MAX = 30.0
CALM_SECONDS_MAX = 90.0
LISTED_MAX = 10_000
Act = Callable[["Nemesis"], Awaitable[None]]
ACTS: dict[str, Act] = {}


def act(run: Act) -> Act:
    """One kind of fault, by its name."""
    ACTS[run.__name__] = run
    return run


class Nemesis:
    """One run."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self.fleet = fleet
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

    async def run(self, seconds: float) -> None:
        """Rounds until the time is over, one at the least, while somebody asks all the time."""
        end = time.monotonic() + seconds
        asker = asyncio.create_task(self._asks())
        try:
            acts = list(ACTS)
            self.random.shuffle(acts)
            while True:
                rounds = asyncio.create_task(self._round(acts, end))
                await asyncio.wait([rounds, asker], return_when=asyncio.FIRST_COMPLETED)
                if asker.done():
                    rounds.cancel()
                    asker.result()
                rounds.result()
                if time.monotonic() >= end:
                    return
        finally:
            asker.cancel()
            self._forget_channel()
            await asyncio.gather(*(channel.close() for channel in self._forgotten))

    async def _round(self, acts: list[str], end: float) -> None:
        first, second = self.random.sample(NAMES, 2)
        if not self.done or self.random.random() < 0.8:
            await self._deadlock(first, second)
        for _ in range(3):
            name = acts.pop()
            acts.insert(0, name)
            self.done[name] += 1
            await ACTS[name](self)
            if time.monotonic() >= end:
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
                await self._lists()
        except TimeoutError:
            if window.starved():
                self.starved += 1
                return
            said = "nothing" if verdict is None else verdict.witness.text
            raise BreachError(
                f"not said in {CALM_SECONDS_MAX:g} s of calm, of which others took {window.others():.0%} of the processors: "
                f"{sorted(self.oracle.stuck)} stuck; {said}"
            ) from None

    async def ask(self) -> snapshot_pb2.Verdict | None:
        """One honest question; None when nobody answers."""
        epoch = self.oracle.epoch
        try:
            answer = await self.stub.Ask(
                detector_pb2.AskRequest(predicate="deadlock"), timeout=ANSWER_SECONDS_MAX, wait_for_ready=True
            )
        except grpc.aio.AioRpcError:
            self.unanswered += 1
            self._forget_channel()
            return None
        verdict: snapshot_pb2.Verdict = answer.verdict
        self.oracle.answered(epoch, verdict)
        return verdict

    def _forget_channel(self) -> None:
        """The next call dials anew; others may be under way on the old one."""
        if self._channel is not None:
            self._forgotten.append(self._channel)
            self._channel = None

    async def _looks_at_incidents(self) -> None:
        epoch = self.oracle.epoch
        request = detector_pb2.ListIncidentsRequest(limit=LISTED_MAX)
        with contextlib.suppress(grpc.aio.AioRpcError):
            found = await self.stub.ListIncidents(request, timeout=ANSWER_SECONDS_MAX)
            self.oracle.has_incidents(epoch, found.incidents)

    async def _lists(self) -> None:
        """What is listed while the archive cannot be written is not acknowledged: it says so, and is waited for."""
        while not await asyncio.to_thread(self.fleet.writes):
            await asyncio.sleep(0.2)
        found = await self.stub.ListSnapshots(detector_pb2.ListSnapshotsRequest(limit=LISTED_MAX), timeout=ANSWER_SECONDS_MAX)
        self.oracle.lists(summary.ref.id for summary in found.snapshots)

    async def _asks(self) -> None:
        while True:
            await self.ask()
            await self._looks_at_incidents()
            await asyncio.sleep(0.05)

    async def pause(self, low: float, high: float) -> None:
        """The fault lasts."""
        await asyncio.sleep(self.random.uniform(low, high))

    def some(self) -> list[str]:
        """One member or more."""
        return self.random.sample(NAMES, self.random.randint(1, len(NAMES)))


# -- faults ------------------------------------------------------------------------------------------------------------


@act
async def detector_is_killed(nemesis: Nemesis) -> None:
    """What was listed a moment before is on disk; ids go on rising; members come back one after the other."""
    fleet, oracle = nemesis.fleet, nemesis.oracle
    newest = oracle.newest
    order = nemesis.some()
    for name in order:
        fleet.links[name].set(State.CUT)
    await fleet.restart_detector()
    nemesis._forget_channel()
    for name in order:
        await nemesis.pause(0.0, 1.0)
        fleet.links[name].set(State.WHOLE)
    verdict = await nemesis.ask()
    if verdict is not None and verdict.snapshot.id and verdict.snapshot.id <= newest:
        raise BreachError(f"snapshot {verdict.snapshot.id} after {newest}: ids do not rise")


@act
async def detector_is_stopped(nemesis: Nemesis) -> None:
    """It wakes up to leases that ended while nobody could be heard."""
    assert nemesis.fleet.detector is not None
    nemesis.fleet.detector.send(signal.SIGSTOP)
    await nemesis.pause(1.0, 4.0)
    nemesis.fleet.detector.send(signal.SIGCONT)


@act
async def members_are_stopped(nemesis: Nemesis) -> None:
    """For longer than a lease."""
    names = nemesis.some()
    for name in names:
        nemesis.fleet.members[name].send(signal.SIGSTOP)
    await nemesis.pause(0.5, 4.0)
    for name in names:
        nemesis.fleet.members[name].send(signal.SIGCONT)


@act
async def bystander_is_killed(nemesis: Nemesis) -> None:
    """And comes back as another incarnation."""
    names = [name for name in NAMES if name not in nemesis.oracle.stuck]
    await nemesis.fleet.restart_member(nemesis.random.choice(names))


@act
async def links_fail(nemesis: Nemesis) -> None:
    """Cut, slow, or half open, each member's in its own way."""
    states = [State.CUT, State.SLOW, State.HALF_OPEN]
    for name in nemesis.some():
        nemesis.fleet.links[name].set(nemesis.random.choice(states))
    await nemesis.pause(0.5, 4.0)
    for link in nemesis.fleet.links.values():
        link.set(State.CUT if link.state is State.HALF_OPEN else State.WHOLE)  # what was swallowed never comes
        link.set(State.WHOLE)


@act
async def disk_is_full(nemesis: Nemesis) -> None:
    """No file of the detector's may grow."""
    nemesis.fleet.limit(resource.RLIMIT_FSIZE, 4096)
    await nemesis.pause(1.0, 3.0)
    nemesis.fleet.limit(resource.RLIMIT_FSIZE, None)


@act
async def disk_vanishes(nemesis: Nemesis) -> None:
    """The directory is deleted under it: a new one holds what a restart needs a moment later."""
    nemesis.fleet.vanish()
    nemesis.oracle.listed.clear()
    while not (nemesis.fleet.data / "stilltrue.sqlite3").exists():
        await nemesis.ask()
    await nemesis.pause(1.0, 2.0)


@act
async def descriptors_run_out(nemesis: Nemesis) -> None:
    """New connections fail; those that are there go on."""
    nemesis.fleet.limit(resource.RLIMIT_NOFILE, nemesis.fleet.open_descriptors())
    with contextlib.suppress(OSError):
        sockets = [await asyncio.open_connection("127.0.0.1", nemesis.fleet.http_port) for _ in range(20)]
        await nemesis.pause(0.5, 2.0)
        for _, writer in sockets:
            writer.close()
    nemesis.fleet.limit(resource.RLIMIT_NOFILE, None)


@act
async def clock_steps(nemesis: Nemesis) -> None:
    """The wall clock goes forward, and back. Only where libfaketime is installed."""
    if nemesis.fleet.clock is None:
        nemesis.done["clock_steps: no libfaketime"] += 1
        return
    for step in (8, -3600, 0):
        nemesis.fleet.clock.write_text(f"{step:+d}s\n")
        await nemesis.pause(0.3, 1.5)


# -- outsiders ---------------------------------------------------------------------------------------------------------


@act
async def stamps_are_forged(nemesis: Nemesis) -> None:
    """Ordinary calls of a stranger's, in a member's name."""
    victim, server = nemesis.random.sample(NAMES, 2)
    for forged in (f"{victim};7;9999999;0;9999999", f"{victim};7;1;{10**9};1", "x" * 400):
        async with grpc.aio.insecure_channel(nemesis.fleet.address(server)) as channel:
            call: Any = channel.unary_unary("/chaos.Member/Do")
            with contextlib.suppress(grpc.aio.AioRpcError):
                await call(b"x", metadata=((METADATA_KEY, forged),), timeout=0.5)


@act
async def asks_flood(nemesis: Nemesis) -> None:
    """More questions from one connection than it may have."""
    async with grpc.aio.insecure_channel(
        f"127.0.0.1:{nemesis.fleet.port}", options=[("grpc.use_local_subchannel_pool", 1)]
    ) as channel:
        stub: Any = detector_pb2_grpc.DetectorServiceStub(channel)  # type: ignore[no-untyped-call]
        request = detector_pb2.AskRequest(predicate="deadlock")
        calls = [stub.Ask(request, timeout=5) for _ in range(300)]
        await asyncio.gather(*calls, return_exceptions=True)


@act
async def garbage_comes(nemesis: Nemesis) -> None:
    """Bytes that are no HTTP/2, headers that never end."""
    junk = bytes(nemesis.random.randrange(256) for _ in range(4096))
    for port, content in ((nemesis.fleet.port, junk), (nemesis.fleet.http_port, b"GET / HTTP/1.1\r\nX: ")):
        for _ in range(20):
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(content)
                await writer.drain()
                writer.close()


@act
async def agent_is_hostile(nemesis: Nemesis) -> None:
    """It joins under a name of its own and lies: colours of no snapshot, calls that nobody sent, reports of others."""
    address = f"127.0.0.1:{nemesis.fleet.port}"
    async with grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        stub: Any = agent_pb2_grpc.AgentServiceStub(channel)  # type: ignore[no-untyped-call]
        process = snapshot_pb2.ProcessId(service="chaos", instance="liar", incarnation=nemesis.random.randrange(1, 2**40))
        call = stub.Connect(timeout=10)
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError):
            await call.write(agent_pb2.ConnectRequest(hello=agent_pb2.Hello(process=process, colour=10**6)))
            for _ in range(8):
                answer = await asyncio.wait_for(call.read(), 5)
                if answer is grpc.aio.EOF:
                    return
                if answer.WhichOneof("message") == "mark":
                    await call.write(agent_pb2.ConnectRequest(report=_lies(process, answer.mark.snapshot)))
            await call.write(agent_pb2.ConnectRequest(goodbye=agent_pb2.Goodbye()))
            await call.done_writing()
            await asyncio.wait_for(call.read(), 5)


def _lies(process: snapshot_pb2.ProcessId, snapshot: int) -> snapshot_pb2.Report:
    seen = [
        snapshot_pb2.Seen(caller=snapshot_pb2.Caller(process=name, incarnation=1), highest=10**9, plain=[10**9])
        for name in NAMES
    ]
    return snapshot_pb2.Report(
        process=process, snapshot=snapshot, after=snapshot - 1, cut_at=time.time(), next_number=1, seen=seen,
        activity=snapshot_pb2.ACTIVITY_IDLE,
    )  # fmt: skip


async def play(seed: int, seconds: float, folder: Path) -> str:
    """One run: what happened, in a line. Raises :class:`BreachError`."""
    fleet = Fleet(folder, NAMES)
    try:
        await fleet.open()
        nemesis = Nemesis(fleet, seed)
        begun = (fleet.open_descriptors(), fleet.resident_bytes())
        await nemesis.run(seconds)
        ended = (fleet.open_descriptors(), fleet.resident_bytes())
    finally:
        await fleet.close()
    acts = ", ".join(f"{name} {count}" for name, count in sorted(nemesis.done.items()))
    answers = ", ".join(f"{name.removeprefix('HOLDS_')} {count}" for name, count in sorted(nemesis.oracle.answers.items()))
    return (
        f"seed {seed}: no breach; answers: {answers}; unanswered {nemesis.unanswered}; "
        f"starved {nemesis.starved}; descriptors {begun[0]} to {ended[0]}; "
        f"resident {begun[1] >> 20} to {ended[1] >> 20} MiB; {acts}"
    )


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--seconds", type=float, default=600.0)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="stilltrue-chaos-"))
    try:
        told = asyncio.run(play(given.seed, given.seconds, folder))
    except BreachError as breach:
        sys.exit(f"seed {given.seed}: {breach} (logs: {folder})")
    sys.stdout.write(f"{told}\n")
    os._exit(0)  # gRPC's threads need not be waited for


if __name__ == "__main__":
    main()
