"""A thread that runs an event loop for one task waits for that task, if others depend on the thread."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.client.waits.conftest import Front, is_unseen, targets

_LOCK = threading.Lock()


def _begin(front: Front, within: Callable[[Callable[[], None]], object]) -> threading.Thread:
    """A thread named ``runner``, which runs a loop whose main task waits for another thread's call."""

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.set_name("main")
        await asyncio.to_thread(front.get, b"")

    thread = front.start("runner", within, lambda: asyncio.run(main()))
    front.wait_for_callers()
    return thread


def _in_a_lock(run: Callable[[], None]) -> None:
    with _LOCK:
        run()


def test_a_thread_that_runs_its_loop_within_a_lock_waits_for_the_main_task(front: Front) -> None:
    _begin(front, _in_a_lock)
    assert targets(front.seen("thread:runner")) == ["task:main"]
    front.let_go()


def test_so_does_one_that_is_joined(front: Front) -> None:
    runner = _begin(front, lambda run: run())
    assert is_unseen(front.report_when_still("runner"), "thread:runner")
    front.start("joins", runner.join)
    assert targets(front.seen("thread:runner")) == ["task:main"]
    assert targets(front.seen("thread:joins")) == ["thread:runner"]
    front.let_go()


def test_so_does_one_that_imports_a_module(front: Front, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs_a_loop.py").write_text("import runners\nrunners.run()\n")
    (tmp_path / "runners.py").write_text("run = None\n")
    monkeypatch.syspath_prepend(tmp_path)

    def imports(run: Callable[[], None]) -> None:
        import runners  # type: ignore[import-not-found]  # noqa: PLC0415 - written above

        runners.run = run
        import runs_a_loop  # type: ignore[import-not-found]  # noqa: F401, PLC0415

    _begin(front, imports)
    assert targets(front.seen("thread:runner")) == ["task:main"]
    front.let_go()
    for name in ("runners", "runs_a_loop"):
        sys.modules.pop(name, None)
