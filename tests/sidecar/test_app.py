"""The sidecar as a process: its pages, its command, and a shutdown without lost calls."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import grpc
import grpc.aio
import pytest
from prometheus_client.parser import text_string_to_metric_families

from detector.ops.address import Address
from detector.sidecar.routing import Upstreams
from detector.sidecar.settings import SettingError, SidecarSettings
from detector.sidecar.tracking import program as tracking
from stilltrue.model import Activity, SnapshotId
from stilltrue.v1 import detector_pb2 as pb
from tests.service.conftest import Detector, detecting

FREE = Address(host="127.0.0.1", port=0)


async def page(admin: Address, path: str) -> tuple[int, str]:
    def fetch() -> tuple[int, str]:
        try:
            with urlopen(f"http://{admin}{path}", timeout=5) as reply:
                return reply.status, reply.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()

    return await asyncio.to_thread(fetch)


async def call(target: object, method: str = "Unary", **metadata: str) -> bytes:
    async with grpc.aio.insecure_channel(str(target), (("grpc.use_local_subchannel_pool", 1),)) as channel:
        unary: Any = channel.unary_unary(f"/mix.Mix/{method}")
        return bytes(await unary(b"hello", metadata=tuple(metadata.items()), timeout=20))


async def test_the_admin_pages_show_health_coverage_and_counts(program: str, start_sidecar: Any) -> None:
    async with start_sidecar(program, upstream=program, workers=3, never_awaited=("/a.B/C",)) as (_, listening):
        await call(listening.inbound)
        await call(listening.outbound)
        admin = listening.admin
        assert (await page(admin, "/"))[1].split() == ["/healthz", "/readyz", "/metadata", "/metrics"]
        assert await page(admin, "/healthz") == (200, "ok\n")
        assert await page(admin, "/readyz") == (200, "ok\n")
        metadata = json.loads((await page(admin, "/metadata"))[1])
        assert metadata["process"]["service"] == "program"
        assert metadata["coverage"] == {
            "workers": 3,
            "workers_told": 3,
            "outbound_calls": 1,
            "outbound_calls_of_unknown_caller": 1,
            "outbound_calls_of_unknown_caller_outstanding": 0,
            "blind_spots": [],
            "methods_not_awaited": ["/a.B/C"],
        }
        families = text_string_to_metric_families((await page(admin, "/metrics"))[1])
        samples = {(s.name, tuple(s.labels.values())): s.value for family in families for s in family.samples}
        assert samples["stilltrue_sidecar_inbound_calls_total", ()] == 1
        assert samples["stilltrue_sidecar_outbound_calls_total", ("unknown",)] == 1
        assert samples["stilltrue_sidecar_outbound_calls_of_unknown_caller", ()] == 0
        assert samples["stilltrue_sidecar_workers", ()] == 3
        assert samples["stilltrue_sidecar_faults_total", ()] == 0
        assert samples["stilltrue_sidecar_reports_dropped_total", ()] == 0
        assert samples["stilltrue_sidecar_inbound_calls", ("served",)] == 0
        assert (await page(admin, "/nothing"))[0] == 404


async def test_the_admin_page_tells_whether_a_detector_has_accepted_the_sidecar(
    program: str, start_sidecar: Any, tmp_path: Path
) -> None:
    async def connected(admin: Any) -> bool:
        return bool(json.loads((await page(admin, "/metadata"))[1])["connected"])

    async with asyncio.timeout(60), contextlib.AsyncExitStack() as detectors:
        detector = await detectors.enter_async_context(detecting(tmp_path))
        agent = {"service": "program", "instance": "program-1", "detector": detector.address}
        async with start_sidecar(program, agent=agent) as (_, listening):
            while not await connected(listening.admin):
                await asyncio.sleep(0.05)
            (stacks,) = (await detector.stub.ListStacks(pb.ListStacksRequest(), timeout=30)).processes
            assert stacks.silent.startswith("a sidecar cannot look into its program, so it has no stacks")
            await detectors.aclose()
            while await connected(listening.admin):
                await asyncio.sleep(0.05)


async def test_a_detector_is_told_of_calls_whose_caller_is_unknown(
    start_sidecar: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program without tracing serves a call and makes one, which the sidecar cannot attribute to it."""
    monkeypatch.setattr(tracking, "UNKNOWN_SECONDS", 0.0)
    held, go = asyncio.Semaphore(0), asyncio.Event()

    async def hold(request: bytes, context: Any) -> bytes:
        held.release()
        await go.wait()
        return request

    server = grpc.aio.server()
    methods: dict[str, Any] = {"Unary": grpc.unary_unary_rpc_method_handler(hold)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("mix.Mix", methods),))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    async with detecting(tmp_path, lease_seconds=0.5) as detector:
        agent = {"service": "program", "instance": "program-1", "detector": detector.address}
        async with asyncio.timeout(60), start_sidecar(address, upstream=address, agent=agent) as (_, listening):
            calls = []
            for one in (listening.inbound, listening.outbound):
                calls.append(asyncio.create_task(call(one)))
                await held.acquire()
            while "1 outgoing call whose caller is unknown (/mix.Mix/Unary)" not in await blind_spots(detector):
                await asyncio.sleep(0.05)
            go.set()
            await asyncio.gather(*calls)
            while await blind_spots(detector):
                await asyncio.sleep(0.05)
    await server.stop(0)


async def blind_spots(detector: Detector) -> list[str]:
    """Those of the one member, if it has joined."""
    found = (await detector.stub.ListAgents(pb.ListAgentsRequest(), timeout=30)).agents
    return [text for agent in found for text in agent.blind if "whose caller is unknown" in text]


async def test_without_its_program_a_sidecar_is_healthy_but_not_ready(start_sidecar: Any) -> None:
    async with start_sidecar("127.0.0.1:1") as (_, listening):
        assert (await page(listening.admin, "/healthz"))[0] == 200
        status, text = await page(listening.admin, "/readyz")
        assert status == 503
        assert "127.0.0.1:1 does not accept connections" in text


async def test_a_sidecar_ends_after_its_calls_in_progress(program: str, start_sidecar: Any) -> None:
    async with start_sidecar(program, drain_seconds_max=10.0) as (sidecar, listening):
        slow = asyncio.create_task(call(listening.inbound, sleep="0.5"))
        while not sidecar.program.in_progress:
            await asyncio.sleep(0.01)
    assert await slow == b"hello"


async def test_an_abandoned_call_leaves_no_record(program: str, start_sidecar: Any) -> None:
    async with start_sidecar(program) as (sidecar, listening):
        slow = asyncio.create_task(call(listening.inbound, sleep="0.5"))
        while not sidecar.program.in_progress:
            await asyncio.sleep(0.01)
        slow.cancel()
        async with asyncio.timeout(10):
            while sidecar.program.in_progress:
                await asyncio.sleep(0.01)
        assert not sidecar.agent.live.recorder.calls_served
        assert not any(relay.streams for relay in sidecar.relays)


async def test_health_checks_pass_unrecorded(program: str, start_sidecar: Any) -> None:
    async with start_sidecar(program) as (sidecar, listening):
        async with grpc.aio.insecure_channel(str(listening.inbound)) as channel:
            health: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
            with pytest.raises(grpc.aio.AioRpcError) as failure:
                await health(b"")
        assert failure.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert sidecar.program.inbound == 0


def run(*flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "detector", "sidecar", *flags]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--app", "nowhere"), "--app: 'nowhere' is not a valid HOST:PORT"),
        (("--upstream", "=x:1"), "--upstream: '=x:1' is not a valid NAME=HOST:PORT"),
        (("--never-awaited", "Watch"), "--never-awaited: 'Watch' is not a valid /package.Service/Method"),
        (("--label", "team"), "--label: must be NAME=VALUE"),
        (("--admin-port", "0", "--inbound", "192.0.2.1:1"), "--inbound: cannot listen on 192.0.2.1:1"),
        (("--instance", "a/b"), "instance: "),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_invalid_options_are_reported_in_one_line(flags: tuple[str, ...], says: str) -> None:
    done = run(*flags)
    assert done.returncode == 2
    assert says in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("flags", "outbound", "warned"),
    [((), r"off", True), (("--upstream", "stock=127.0.0.1:2"), r"127\.0\.0\.1:\d+", False)],
    ids=["no upstream", "an upstream"],
)
def test_a_sidecar_says_where_it_listens_and_what_it_does_not_see(flags: tuple[str, ...], outbound: str, warned: bool) -> None:
    free = ("--inbound", "127.0.0.1:0", "--outbound", "127.0.0.1:0", "--admin-port", "0")
    command = [sys.executable, "-m", "detector", "sidecar", "--app", "127.0.0.1:1", *free, *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            with urlopen(f"{line.rpartition('admin=')[2].strip()}metadata", timeout=20) as answer:
                own = json.load(answer)["process"]
        finally:
            process.terminate()
        _, errors = process.communicate(timeout=60)
    address = r"127\.0\.0\.1:\d+"
    wanted = rf"listening inbound={address} app=127\.0\.0\.1:1 outbound={outbound} admin=http://{address}/\n"
    assert re.fullmatch(wanted, line), line
    assert own["service"] == "program", "not python: it may be in any language"
    assert ("no --upstream is given" in errors) is warned


def test_the_check_of_an_absent_sidecar_fails() -> None:
    done = run("--check", "--admin-port", "1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("stilltrue: not ready: no sidecar answers at 127.0.0.1:1: ")


async def test_the_check_says_why_a_sidecar_is_not_ready(start_sidecar: Any) -> None:
    async with start_sidecar("127.0.0.1:1") as (_, listening):
        done = await asyncio.to_thread(run, "--check", "--admin-port", str(listening.admin.port))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("stilltrue: not ready: the program at 127.0.0.1:1 does not accept connections")


async def test_a_probe_before_the_program_listens_is_said_to_be_harmless(
    start_sidecar: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with start_sidecar("127.0.0.1:1") as (_, listening):
        reader, writer = await asyncio.open_connection(listening.inbound.host, listening.inbound.port)
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
    (record,) = [record for record in caplog.records if record.message == "relay failed"]
    fields: dict[str, str] = record.stilltrue_fields  # type: ignore[attr-defined]
    assert fields["text"].startswith("127.0.0.1:1 cannot be reached: ")
    assert fields["fix"].startswith("none while the program starts")


@pytest.mark.parametrize(
    "wrong",
    [
        {"outbound": Address(host="0.0.0.0", port=1)},
        {"workers": 0},
        {"inbound": Address(host="h", port=1), "program": Address(host="h", port=1)},
        {"inbound": Address(host="0.0.0.0", port=1), "program": Address(host="127.0.0.1", port=1)},
    ],
)
def test_invalid_settings_are_refused(wrong: dict[str, Any]) -> None:
    values: dict[str, Any] = {
        "program": FREE,
        "inbound": FREE,
        "outbound": FREE,
        "admin": FREE,
        "upstreams": Upstreams(named={}),
    }
    with pytest.raises(SettingError, match=r"^--"):
        SidecarSettings(**values | wrong)


async def test_a_sidecar_never_reports_its_program_as_idle(
    program: str, start_sidecar: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STILLTRUE_REACTIVE", "true")
    async with start_sidecar(program) as (sidecar, _):
        report = sidecar.agent.live.marked(SnapshotId(1))
        assert report.activity is Activity.ACTIVE
