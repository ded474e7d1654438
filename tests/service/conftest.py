"""A detector on loopback, and processes that are played by the real recorder over a real stream."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import inspect
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from detector.service.app import Listening, running
from detector.service.settings import Settings
from stilltrue.model import PartyName, ProcessId, ProcessName, SnapshotId
from stilltrue.protocol.books.ledger import ChannelRecord, ClientCall, ServerCall
from stilltrue.protocol.recorder import Recorder
from stilltrue.protocol.report import Report
from stilltrue.protocol.requests.look import Look
from stilltrue.protocol.wire.look import look_to_wire, request_from_wire
from stilltrue.protocol.wire.report import report_to_wire
from stilltrue.protocol.wire.values import process_to_wire
from stilltrue.runtime.membership.differences import Differences
from stilltrue.v1 import agent_pb2, agent_pb2_grpc, detector_pb2, detector_pb2_grpc, snapshot_pb2
from tests.service.authority import ROLES, Authority
from tests.service.browser import PROGRAM, Page, tab
from tests.service.browser import running as running_browser

TEST_SECONDS_MAX = 240.0
"""Less than pytest's own limit, which ends the worker and cannot say what a coroutine waits for."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """An asynchronous test that takes too long fails with the stack of what it waits for."""
    if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
        item.obj = _bounded(item.obj)


def _bounded(test: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(test)
    async def bounded(*args: Any, **given: Any) -> None:
        async with asyncio.timeout(TEST_SECONDS_MAX):
            await test(*args, **given)

    return bounded


class FakeProcess:
    """One process: a recorder, a stream to the detector, and calls to other such processes that arrive when told."""

    def __init__(self, name: str, *, service: str = "", incarnation: int = 1, labels: dict[str, str] | None = None) -> None:
        self.id = ProcessId(service=service or name, instance=ProcessName(name), incarnation=incarnation)
        self.labels = labels or {}
        self.recorder = Recorder(process=self.id, reactive=True, labels=self.labels)
        self.silent = False
        self.looks = True
        self.blind = False
        self.look_seconds = 0.0
        self.differences: Differences | None = None
        self.cures: Callable[[], None] | None = None
        self.aborts = True
        self.agent = ""
        self.standing: list[agent_pb2.StandingParty] | None = None
        self.asked_to_cure: list[agent_pb2.Cure] = []
        self.see: Callable[[Look], Look] = lambda look: look
        self.change: Callable[[Report], Report] = lambda report: report
        self.welcomed = asyncio.Event()
        self.ended = asyncio.Event()
        self.status: grpc.StatusCode | None = None
        self.details = ""
        self.marks: list[int] = []
        self._writing = asyncio.Lock()
        self._call: Any = None
        self._channel: grpc.aio.Channel | None = None
        self._task: asyncio.Task[None] | None = None

    async def connect(self, address: str) -> FakeProcess:
        """Say hello and be welcomed (or refused)."""
        self.welcomed.clear()
        self.ended.clear()
        self._channel = grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self._call = agent_pb2_grpc.AgentServiceStub(self._channel).Connect()  # type: ignore[no-untyped-call]  # generated code
        await self.say(
            hello=agent_pb2.Hello(
                process=process_to_wire(self.id),
                labels=self.labels,
                colour=self.recorder.colour,
                agent=self.agent,
                looks=self.looks,
                cures=self.cures is not None,
                stacks=self.standing is not None,
            )
        )
        self._task = asyncio.create_task(self._listen())
        done = [asyncio.create_task(event.wait()) for event in (self.welcomed, self.ended)]
        await asyncio.wait(done, return_when=asyncio.FIRST_COMPLETED, timeout=10)
        for task in done:
            task.cancel()
        return self

    async def say(self, **message: Any) -> None:
        """One message at a time: two writes at once end a stream of grpc.aio's here, and the other side never hears of it."""
        async with self._writing:
            await self._write(**message)

    async def _write(self, **message: Any) -> None:
        with contextlib.suppress(asyncio.InvalidStateError, grpc.RpcError):
            await self._call.write(agent_pb2.ConnectRequest(**message))

    async def _listen(self) -> None:
        try:
            async for response in self._call:
                if response.WhichOneof("message") == "welcome":
                    self.welcomed.set()
                elif response.WhichOneof("message") == "look":
                    if not self.blind:
                        await asyncio.sleep(self.look_seconds)
                        look = self.recorder.look(request_from_wire(response.look), time.time())
                        await self.say(looked=look_to_wire(self.see(look)))
                elif response.WhichOneof("message") in ("cure", "stacks"):
                    await self._answer(response)
                elif not self.silent:
                    self.marks.append(response.mark.snapshot)
                    report = self.recorder.marked(SnapshotId(response.mark.snapshot), time.time())
                    if report is not None:
                        await self._report(report_to_wire(self.change(report)))
        except grpc.RpcError as error:
            self.status, self.details = error.code(), error.details() or ""
        finally:
            self._call.cancel()
            self.ended.set()

    async def _report(self, report: snapshot_pb2.Report) -> None:
        if self.differences is None:
            await self.say(report=report)
        else:
            await self.say(difference=self.differences.request(report).difference)

    async def _answer(self, response: agent_pb2.ConnectResponse) -> None:
        if response.HasField("cure"):
            await self._cure(response.cure)
        elif not self.blind:
            found = agent_pb2.StacksFound(number=response.stacks.number, parties=self.standing)
            await self.say(stacks_found=found)

    async def _cure(self, request: agent_pb2.Cure) -> None:
        self.asked_to_cure.append(request)
        if self.cures is not None:
            self.cures()
            text = "its call ended" if self.aborts else "it has no call"
            parties = [agent_pb2.PartyCured(party=one.party, aborted=self.aborts, text=text) for one in request.victims]
            await self.say(cured=agent_pb2.Cured(number=request.number, parties=parties))

    async def kill(self) -> None:
        """The stream breaks, as when a process is killed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._channel is not None:
            await self._channel.close()

    # -- calls: requests and replies go from hand to hand ---------------------------------------------------------------

    def call(self, server: FakeProcess, method: str, *, by: str = "main", starts: bool = True) -> tuple[ClientCall, ServerCall]:
        """The party ``by`` calls ``server`` and waits; the request arrives at once at its pool, and ``starts`` or is queued."""
        channel = ChannelRecord(server.id.instance)
        party = PartyName(by if "/" in by else f"{self.id.instance}/{by}")
        made, stamp = self.recorder.sent(method=method, channel=channel, now=time.time(), party=party, waiting=True)
        served, _ = server.recorder.arrived(stamp, method=method, now=time.time(), pool="workers")
        if starts:
            server.recorder.started(served)
        return made, served

    def work_for(self, caller: FakeProcess) -> None:
        """Serve a call of ``caller`` from its arrival to its reply."""
        made, served = caller.call(self, "/s/Work")
        caller.recorder.settled(made, self.recorder.replied(served, stamped=True), time.time())

    def gives_up(self, made: ClientCall) -> None:
        """The call fails, and it is unknown whether it was received."""
        self.recorder.settled(made, None, time.time(), in_doubt=True)


class Deadlock:
    """Two processes with a pool of one worker each, and each worker has called the other process: a cycle of two."""

    def __init__(self, a: FakeProcess, b: FakeProcess) -> None:
        self.a, self.b = a, b
        for one in (a, b):
            one.recorder.pool_opened("workers", 1)
        to_a, in_a = a.call(a, "/s/X")
        to_b, in_b = b.call(b, "/s/Y")
        self.of_a, self.of_b = in_a, in_b
        self.from_a, at_b = a.call(b, "/s/Second", by=in_a.party, starts=False)
        self.from_b, at_a = b.call(a, "/s/Second", by=in_b.party, starts=False)
        self._calls = (a, self.from_a, b, at_b), (b, self.from_b, a, at_a), (a, to_a, a, in_a), (b, to_b, b, in_b)

    @property
    def core(self) -> list[str]:
        return sorted([self.of_a.party, self.of_b.party])

    def cure(self) -> None:
        """The worker of ``a`` gives up and replies."""
        self.a.gives_up(self.from_a)
        self.a.recorder.replied(self.of_a)

    def dissolve(self) -> None:
        """All four calls are answered: nothing is left of them."""
        for caller, made, server, served in self._calls:
            caller.recorder.settled(made, server.recorder.replied(served, stamped=True), time.time())


class Detector:
    """A running detector, with a stub to ask it."""

    def __init__(self, listening: Listening, channel: grpc.aio.Channel) -> None:
        self.address = f"{listening.host}:{listening.port}"
        self.web = f"http://{listening.http}"
        self.channel = channel
        self.stub: Any = detector_pb2_grpc.DetectorServiceStub(channel)  # type: ignore[no-untyped-call]  # generated code
        self._processes: list[FakeProcess] = []

    async def join(self, *processes: FakeProcess) -> None:
        self._processes += processes
        await asyncio.gather(*(process.connect(self.address) for process in processes))

    async def ask(self, predicate: str = "deadlock", scope: str = "", seconds_max: float = 10) -> snapshot_pb2.Verdict:
        answer = await self.stub.Ask(detector_pb2.AskRequest(predicate=predicate, scope=scope), timeout=seconds_max)
        verdict: snapshot_pb2.Verdict = answer.verdict
        return verdict

    async def deadlock(self, seconds_max: float = 10) -> tuple[int, list[str]]:
        """The verdict on ``deadlock`` and its core."""
        verdict = await self.ask(seconds_max=seconds_max)
        return verdict.holds, list(verdict.core)

    async def agents(self) -> dict[str, int]:
        """The state of each member, by name."""
        answer = await self.stub.ListAgents(detector_pb2.ListAgentsRequest(), timeout=10)
        return {agent.process.instance: agent.state for agent in answer.agents}

    async def incidents(self) -> list[detector_pb2.Incident]:
        answer = await self.stub.ListIncidents(detector_pb2.ListIncidentsRequest(), timeout=10)
        return list(answer.incidents)

    async def metric(self, series: str) -> float:
        """The value of one series; 0 when there is none."""
        _, _, text = await self.fetch("/metrics")
        for line in text.splitlines():
            if line.startswith(series + " "):
                return float(line.rpartition(" ")[2])
        return 0.0

    async def fetch(self, path: str) -> tuple[int, str, str]:
        """Status, content type and body."""
        host, _, port = self.web.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        writer.close()
        content = next(line for line in head.splitlines() if line.lower().startswith("content-type"))
        return int(head.split()[1]), content.partition(": ")[2], body

    async def close(self) -> None:
        await asyncio.gather(*(process.kill() for process in self._processes))


@contextlib.asynccontextmanager
async def detecting(data: Path, predicates: Any = None, **settings: Any) -> AsyncIterator[Detector]:
    values: dict[str, Any] = {"port": 0, "http_port": 0, "data": data, "period_seconds": 0.0}
    async with (
        running(Settings(**values | settings), predicates) as listening,
        grpc.aio.insecure_channel(f"{listening.host}:{listening.port}") as channel,
    ):
        detector = Detector(listening, channel)
        try:
            yield detector
        finally:
            await detector.close()


@pytest.fixture
def process() -> type[FakeProcess]:
    return FakeProcess


@pytest.fixture
def start_detector() -> Any:
    return detecting


@pytest.fixture
def deadlock() -> type[Deadlock]:
    return Deadlock


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ours"), "our authority")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("others"), "somebody else's")


@pytest.fixture
def roles(tmp_path: Path) -> Path:
    path = tmp_path / "roles.toml"
    path.write_text(ROLES.format(reader=hashlib.sha256(b"open sesame").hexdigest()))
    return path


@pytest.fixture
def server_files(authority: Authority, tmp_path: Path) -> dict[str, Any]:
    certificate, key = authority.sign("detector", to=tmp_path / "served")
    return {"host": "localhost", "tls_cert_file": certificate, "tls_key_file": key}


@pytest.fixture
def mutual(server_files: dict[str, Any], authority: Authority, roles: Path) -> dict[str, Any]:
    return server_files | {"tls_client_ca_file": authority.file, "roles_file": roles}


@pytest.fixture(scope="session")
def browser() -> Iterator[int]:
    """The port of the one browser in which all tests of this worker look at pages."""
    if PROGRAM is None:
        assert os.environ.get("CI") != "true", "chromium is not here"
        pytest.skip("chromium is not here")
    with running_browser() as port:
        yield port


@pytest.fixture
async def page(browser: int) -> AsyncIterator[Page]:
    async with tab(browser) as page:
        yield page
