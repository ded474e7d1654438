"""A warm standby takes over when the detector ends: ids rise, and incidents stay open."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from detector.commands.shared.connection import _first_reachable
from tests.commands.conftest import environment
from tests.free_ports import free_port
from tests.service.authority import Authority
from tests.service.kubernetes_api import Leases, answering


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.longer)])
async def test_a_standby_takes_over_when_the_detector_is_killed(
    serve: Any, begin: Any, played: Any, tmp_path: Path, times: int
) -> None:
    a, b = played.FakeProcess("a"), played.FakeProcess("b")
    stuck = played.Deadlock(a, b)
    async with serve(tmp_path, "--period-seconds", "0.05") as detector, contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(a.kill)
        stack.push_async_callback(b.kill)
        await asyncio.gather(a.connect(detector.address), b.connect(detector.address))
        verdict = json.loads((await detector.run("ask", "deadlock", "--json")).out)
        (incident,) = json.loads((await detector.run("incidents", "--json")).out)
        running, address = detector.process, detector.address
        for _ in range(times):
            standby = await begin("serve", "--standby", "--data", str(tmp_path), "--port", "0", "--http-port", "0")
            stack.push_async_callback(_ended, standby)
            while b"standing by" not in await standby.stderr.readline():
                continue
            asked = await begin("ask", "deadlock", STILLTRUE_DETECTOR=address)
            await asked.communicate()
            assert asked.returncode == 0  # it disturbs nobody
            running.send_signal(signal.SIGKILL)
            await running.wait()
            async with asyncio.timeout(30):
                line = (await standby.stdout.readline()).decode()
            running, address = standby, line.split("grpc=")[1].split()[0]
            await asyncio.gather(a.ended.wait(), b.ended.wait())
            await asyncio.gather(a.connect(address), b.connect(address))
            asked = await begin("ask", "deadlock", "--json", STILLTRUE_DETECTOR=f"127.0.0.1:1,{address}")
            later = json.loads((await asked.communicate())[0])
            assert (later["holds"], later["core"]) == (True, stuck.core)
            assert later["snapshot"]["id"] > verdict["snapshot"]["id"]
            listed = await begin("incidents", "--json", STILLTRUE_DETECTOR=address)
            (same,) = json.loads((await listed.communicate())[0])
            assert (same["id"], same["closed"]) == (incident["id"], None)
            verdict = later


async def _ended(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.communicate()


async def test_a_standby_says_so_on_every_page_and_stops_on_a_signal(serve: Any, begin: Any, tmp_path: Path) -> None:
    port = str(free_port())
    async with serve(tmp_path), aiohttp.ClientSession(f"http://127.0.0.1:{port}") as browser:
        standby = await begin("serve", "--standby", "--data", str(tmp_path), "--port", "0", "--http-port", port)
        while b"standing by" not in await standby.stderr.readline():
            continue
        async with browser.get("/healthz") as alive, browser.get("/") as page:
            assert (alive.status, page.status) == (200, 503)
            assert "another detector uses" in await page.text()
        standby.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            await standby.communicate()
        assert standby.returncode == 0


async def test_a_standby_takes_over_once_a_failing_disk_works_again(begin: Any, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.write_text("a file where the disk should be")
    standby = await begin("serve", "--standby", "--data", str(disk / "data"), "--port", "0", "--http-port", "0")
    try:
        async with asyncio.timeout(60):
            while b"directory cannot be locked" not in (line := await standby.stderr.readline()):
                assert line, "it ended"
            disk.unlink()
            assert b"listening" in await standby.stdout.readline()
    finally:
        await _ended(standby)


@pytest.fixture
async def leases(tmp_path: Path) -> AsyncIterator[tuple[Leases, dict[str, str]]]:
    """The API server of a cluster, and the environment of its pods; their account is in ``account``."""
    authority = Authority(tmp_path / "ca", "the cluster's")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*authority.sign("detector"))
    leases = Leases()
    async with answering(leases, tls) as url:
        leases.server(tmp_path / "account", url, "")
        (tmp_path / "account" / "ca.crt").write_bytes(authority.pem)
        yield leases, {"KUBERNETES_SERVICE_HOST": "localhost", "KUBERNETES_SERVICE_PORT": url.rpartition(":")[2]}


@pytest.mark.longer
async def test_in_kubernetes_a_standby_takes_over_by_a_lease(leases: Any, begin: Any, played: Any, tmp_path: Path) -> None:
    api, cluster = leases
    data = str(tmp_path / "data")

    @contextlib.asynccontextmanager
    async def pod() -> AsyncIterator[asyncio.subprocess.Process]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(Path(__file__).with_name("in_pod.py")), str(tmp_path / "account"), "serve",
            "--standby-lease", "stilltrue", "--standby-lease-seconds", "5", "--data", data, "--port", "0", "--http-port", "0",
            "--period-seconds", "0.05", env=environment(**cluster),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.communicate()

    async def address_of(process: asyncio.subprocess.Process) -> str:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            return (await process.stdout.readline()).decode().split("grpc=")[1].split()[0]

    async def told(command: str, address: str, *more: str) -> Any:
        asked = await begin(command, *more, "--json", STILLTRUE_DETECTOR=f"127.0.0.1:1,{address}")
        return json.loads((await asked.communicate())[0])

    a, b = played.FakeProcess("a"), played.FakeProcess("b")
    stuck = played.Deadlock(a, b)
    async with pod() as first:
        address = await address_of(first)
        await asyncio.gather(a.connect(address), b.connect(address))
        verdict = await told("ask", address, "deadlock")
        (incident,) = await told("incidents", address)
        async with pod() as second:
            assert second.stderr is not None
            async with asyncio.timeout(60):
                while b"standing by" not in await second.stderr.readline():
                    continue
            assert len(api.holders) == 1
            first.kill()
            later_address = await address_of(second)
            await asyncio.gather(a.ended.wait(), b.ended.wait())
            await asyncio.gather(a.connect(later_address), b.connect(later_address))
            later = await told("ask", later_address, "deadlock")
            (same,) = await told("incidents", later_address)
            assert (later["holds"], later["core"]) == (True, stuck.core)
            assert later["snapshot"]["id"] > verdict["snapshot"]["id"]
            assert (same["id"], same["closed"]) == (incident["id"], None)
            assert len(set(api.holders)) == 2
            api.refused[""] = 503  # it can no longer renew: it ends before another may begin, and stands by again
            async with asyncio.timeout(60):
                while b"lease lost" not in await second.stderr.readline():
                    continue
                while b"standing by" not in await second.stderr.readline():
                    continue
    await asyncio.gather(a.kill(), b.kill())


async def test_a_lease_needs_a_cluster(begin: Any, tmp_path: Path) -> None:
    refused = await begin("serve", "--standby-lease", "stilltrue", "--data", str(tmp_path))
    _, err = await refused.communicate()
    assert refused.returncode == 2
    assert b"--standby-lease works only in a Kubernetes pod; on one machine, use --standby" in err


def test_the_first_of_several_addresses_that_answers_is_asked() -> None:
    assert _first_reachable("127.0.0.1:1") == "127.0.0.1:1"
    assert _first_reachable("127.0.0.1:1,127.0.0.1:2") == "127.0.0.1:1"
