"""A warm standby takes over when the detector ends: ids rise, incidents go on, and nothing is closed by it."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

from detector.commands.shared.connection import _answering


async def test_a_standby_takes_over_when_the_detector_is_killed(serve: Any, begin: Any, played: Any, tmp_path: Path) -> None:
    a, b = played.FakeProcess("a"), played.FakeProcess("b")
    stuck = played.Deadlock(a, b)
    async with serve(tmp_path, "--period-seconds", "0.05") as detector:
        await asyncio.gather(a.connect(detector.address), b.connect(detector.address))
        verdict = json.loads((await detector.run("ask", "deadlock", "--json")).out)
        (incident,) = json.loads((await detector.run("incidents", "--json")).out)
        standby = await begin("serve", "--standby", "--data", str(tmp_path), "--port", "0", "--http-port", "0")
        while b"standing by" not in await standby.stderr.readline():
            continue
        assert (await detector.run("ask", "deadlock")).code == 0  # it disturbs nobody
        detector.process.send_signal(signal.SIGKILL)
        await detector.process.wait()
    try:
        async with asyncio.timeout(30):
            line = (await standby.stdout.readline()).decode()
        address = line.split("grpc=")[1].split()[0]
        await asyncio.gather(a.ended.wait(), b.ended.wait())
        await asyncio.gather(a.connect(address), b.connect(address))
        asked = await begin("ask", "deadlock", "--json", STILLTRUE_DETECTOR=f"127.0.0.1:1,{address}")
        later = json.loads((await asked.communicate())[0])
        assert (later["holds"], later["core"]) == (True, stuck.core)
        assert later["snapshot"]["id"] > verdict["snapshot"]["id"]
        listed = await begin("incidents", "--json", STILLTRUE_DETECTOR=address)
        (same,) = json.loads((await listed.communicate())[0])
        assert (same["id"], same["closed"]) == (incident["id"], None)
    finally:
        await asyncio.gather(a.kill(), b.kill())
        standby.kill()
        await standby.communicate()


async def test_a_standby_that_is_told_to_stop_stops(serve: Any, begin: Any, tmp_path: Path) -> None:
    async with serve(tmp_path):
        standby = await begin("serve", "--standby", "--data", str(tmp_path), "--port", "0", "--http-port", "0")
        while b"standing by" not in await standby.stderr.readline():
            continue
        standby.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            await standby.communicate()
        assert standby.returncode == 0


def test_of_several_addresses_the_first_that_answers_is_asked() -> None:
    assert _answering("127.0.0.1:1") == "127.0.0.1:1"
    assert _answering("127.0.0.1:1,127.0.0.1:2") == "127.0.0.1:1"
