"""``demo`` interrupted: it stops what it started, even while it is stopping, and says where the logs and the data are."""

from __future__ import annotations

import asyncio
import io
import signal
import subprocess
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from rich.console import Console

from detector.demo.demos import Demo
from detector.demo.harness import Harness, ManagedProcess


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


@pytest.mark.parametrize("terminal", [True, False])
def test_a_command_prints_to_the_terminal_itself_so_that_its_lines_fit(terminal: bool) -> None:
    out = io.StringIO()
    harness = Mock()
    harness.run.return_value = subprocess.CompletedProcess(
        [], 3, stdout=None if terminal else "said", stderr=None if terminal else ""
    )
    demo = Demo(harness, Console(file=out, width=40, force_terminal=terminal, color_system=None))
    assert demo.command("ask", "deadlock", exit_codes=(1, 3)) == 3
    harness.run.assert_called_once_with("ask", "deadlock", captured=not terminal)
    assert out.getvalue() == "\n$ stilltrue ask deadlock\n" + ("" if terminal else "said\n")
    demo.say("one two three four five six seven eight nine ten")
    assert max(map(len, out.getvalue().splitlines())) <= (40 if terminal else 48)


def test_processes_are_killed_when_stopping_them_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness(tmp_path)
    for name in ("detector", "orders"):
        harness.processes[name] = ManagedProcess(name, ["sleep", "600"], environment={}, log=tmp_path / name)
    started = [each.process for each in harness.processes.values()]
    monkeypatch.setattr(harness.processes["orders"], "stop", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        harness.stop()
    assert [process.wait(timeout=30) for process in started] == [-signal.SIGKILL, -signal.SIGKILL]
