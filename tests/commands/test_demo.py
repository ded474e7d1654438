"""``demo`` interrupted: it stops what it started, and says where the logs and the data are."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any


async def test_an_interrupted_demo_says_where_its_logs_are(begin: Any, tmp_path: Path) -> None:
    demo = await begin("demo", "locks", "--keep", "--dir", str(tmp_path / "out"))
    async with asyncio.timeout(60):
        while b"The detector listens on" not in await demo.stdout.readline():
            pass
        demo.send_signal(signal.SIGINT)
        out, _ = await demo.communicate()
    assert demo.returncode == 130
    assert f"Everything has been stopped. Logs and data: {tmp_path / 'out'}" in out.decode().replace("\n", "")
    assert (tmp_path / "out" / "locks" / "detector.log").exists()
