"""A task that sleeps now and then and only looks at what another waits for, to print a status, say, is no way out of that."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client.waits.test_own_modules import needs_memory, told_by

_MAIN = """
import tests.mutants.injection  # a mutant is put into this process, too
from app.start import begin, tell
del tests.mutants.injection.importlib  # by which code of the application's might load anything
begin()
tell()
"""
_START = """
import asyncio, json, os, sys, threading, time
from app.program import finish, look, wait
from stilltrue.runtime.introspection.tasks import blocking_future
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.reachability import thread_waits

SECONDS = 30.0
TASKS = {}

async def main():
    for name, function in (("waiter", wait), ("looker", look), ("finisher", finish)):
        TASKS[name] = asyncio.create_task(function(), name=name)
    await asyncio.sleep(3600)

def run():
    asyncio.run(main())

def begin():
    threading.Thread(target=run, daemon=True).start()

def tell():
    end = time.monotonic() + SECONDS
    found = ["looker"]
    while time.monotonic() < end and (found is None or "looker" in found):  # it may be running just then
        time.sleep(0.2)
        task = TASKS.get("waiter")
        future = None if task is None else blocking_future(task)
        if future is None:
            continue
        thing = OwnRef(future)
        del future
        proof = thread_waits.proved({task: thing}, time.thread_time() + 60).get(task)
        found = None if proof is None else [one().get_name() for one, _ in proof.tasks]
        del proof
    sys.stdout.flush()
    os.write(1, f"\\n{json.dumps(found)}\\n".encode())  # what other tasks print comes first, or never
    os._exit(0)
"""
_STATE = """
import asyncio

class Service:
    def __init__(self):
        self.todo = asyncio.Queue()
        self.pending = {}
        self.kept = [self.feed]

    def status(self):
        return self.todo.qsize()

    async def refresh(self):
        await asyncio.sleep(0.01)

    def feed(self):
        self.todo.put_nowait(1)

def never():
    return False

def feed(_):
    service.feed()

service = Service()
"""
_PROGRAM = """
import asyncio
from app import state

async def wait():
    service = state.service
    while True:
        print(await service.todo.get())

async def look():
    while True:
        await asyncio.sleep(0.05)
        await act()

async def finish():
    await asyncio.sleep(3600)
"""
_ASKS = """
import asyncio
from app import state

async def wait():
    service = state.service
    future = service.pending[1] = asyncio.get_running_loop().create_future()
    return await future

async def look():
    while True:
        await asyncio.sleep(0.05)
        await act()

async def finish():
    await asyncio.sleep(3600)
"""


def told(program: str, acts: str, tmp_path: Path, seconds: str = "30.0") -> list[str] | None:
    """The tasks that may end the wait, if the one that looks does this now and then; None if they are not known."""
    program = f"{program}\nasync def act():\n    {acts}\n"
    found: list[str] | None = told_by(_MAIN, tmp_path, program, state=_STATE, start=_START.replace("30.0", seconds))
    return found


@needs_memory
@pytest.mark.parametrize(
    "acts", ["print(state.service.todo.qsize())", "print(state.service.status())", "await state.service.refresh()"]
)
def test_a_task_that_only_looks_is_no_way_out(acts: str, tmp_path: Path) -> None:
    assert told(_PROGRAM, acts, tmp_path) == []


@needs_memory
@pytest.mark.parametrize(
    "acts",
    [
        "state.never() and state.service.todo.put_nowait(1)",
        "state.never() and state.service.feed()",
        "state.never() and state.service.kept[0]()",
        "state.never() and asyncio.create_task(state.service.kept[0])",
        "asyncio.current_task().add_done_callback(state.feed)",
    ],
)
def test_a_task_that_may_end_the_wait_is_a_way_out(acts: str, tmp_path: Path) -> None:
    found = told(_PROGRAM, acts, tmp_path, "3.0")
    assert found is None or "looker" in found


@needs_memory
def test_so_is_one_that_may_await_the_future_of_another(tmp_path: Path) -> None:
    """Who cancels it cancels the future."""
    assert told(_ASKS, "print(len(state.service.pending))", tmp_path) == []
    found = told(_ASKS, "state.never() and await state.service.pending[1]", tmp_path, "3.0")
    assert found is None or "looker" in found
