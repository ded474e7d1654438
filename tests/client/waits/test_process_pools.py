"""A thread that waits for an item of a pool of processes waits for the worker that runs it, or for a worker's turn."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Lock
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from stilltrue.model import ProcessName, has_ended, party
from stilltrue.protocol.report import LocalWait, PartyTarget, Report, ResourceTarget
from stilltrue.runtime.introspection.frames import frames_of_threads
from stilltrue.runtime.waits.databases.source_search import Mentions
from stilltrue.runtime.waits.process_pools import executors, pools, workers
from stilltrue.runtime.waits.process_pools.names import EXECUTORS, POOLS, name_of_item, name_of_turn
from stilltrue.runtime.waits.wait import CallStack
from tests.client.look.worlds import look_at, of, report_of, report_when
from tests.client.waits.conftest import PATIENCE_SECONDS, Front

pytestmark = pytest.mark.skipif(not Path("/proc/self/syscall").exists(), reason="the system does not show system calls")
SPAWN: Any = multiprocessing.get_context("spawn")
_given: list[Any] = []


def start(*given: Any) -> None:
    _given.extend(given)


def read(_: int = 0) -> None:
    """Wait for a byte on the pipe that the worker was given."""
    _given[0].recv_bytes()


def take(_: int = 0) -> None:
    with _given[1]:
        pass


def answer(number: int = 0) -> int:
    return number


@contextmanager
def given() -> Iterator[tuple[Connection, Connection, Lock]]:
    reader, writer = SPAWN.Pipe(duplex=False)
    yield reader, writer, SPAWN.Lock()
    reader.close()
    writer.close()


@pytest.fixture(autouse=True)
def workers_find_this_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[3])


def waits_of(report: Report) -> list[LocalWait]:
    return [one for one in report.waits if one.waiter == "front/thread:waiter"]


def resources(wait: LocalWait) -> list[str]:
    return [one.resource for one in wait.among if isinstance(one, ResourceTarget)]


def waits_for(front: Front, thread: threading.Thread) -> Report:
    """The report once the waiter waits for this thread, and for nothing else."""
    among = (PartyTarget(party=party(ProcessName("front"), f"thread:{thread.name}")),)
    return report_when(front.agent, lambda report: [one.among for one in waits_of(report)] == [among])


def seen(front: Front) -> list[LocalWait]:
    """The waiter's waits, once they are for resources."""

    def is_seen(report: Report) -> bool:
        found = waits_of(report)
        return bool(found) and all(isinstance(target, ResourceTarget) for wait in found for target in wait.among)

    return waits_of(report_when(front.agent, is_seen))


@pytest.fixture
def executor() -> Iterator[Callable[[int], tuple[ProcessPoolExecutor, Connection]]]:
    made: list[tuple[ProcessPoolExecutor, Connection]] = []
    with given() as (reader, writer, lock):

        def make(size: int) -> tuple[ProcessPoolExecutor, Connection]:
            made.append((ProcessPoolExecutor(size, SPAWN, start, (reader, lock)), writer))
            return made[-1]

        yield make
        for pool, _ in made:
            for worker in list((pool._processes or {}).values()):
                worker.kill()
            pool.shutdown()


def manager_of(pool: ProcessPoolExecutor) -> Any:
    return pool._executor_manager_thread


def item(pool: ProcessPoolExecutor, number: int) -> str | None:
    return name_of_item(manager_of(pool).result_queue._reader, number)


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_running_item_waits_for_the_worker_that_runs_it(front: Front, executor: Any) -> None:
    pool, writer = executor(1)
    front.start("waiter", pool.submit(read).result)
    (wait,) = seen(front)
    assert resources(wait) == [item(pool, 0)]
    writer.send_bytes(b"go")
    front.let_go()


def test_a_queued_item_waits_for_a_turn_of_each_worker(front: Front, executor: Any) -> None:
    pool, writer = executor(1)
    pool.submit(read)
    until(lambda: len(manager_of(pool).pending_work_items) == 1)
    last = [pool.submit(answer) for _ in range(3)][-1]
    front.start("waiter", last.result)
    (wait,) = seen(front)
    assert resources(wait) == [name_of_turn(pid) for pid in pool._processes]
    assert wait.needs == 1
    writer.send_bytes(b"go")
    front.let_go()


def test_a_queued_item_of_a_pool_that_may_start_workers_is_unknown(front: Front, executor: Any) -> None:
    pool, writer = executor(1)
    pool.submit(read)
    last = [pool.submit(answer) for _ in range(3)][-1]
    pool._max_workers = 2
    front.start("waiter", last.result)
    assert not waits_of(front.report_when_still("waiter"))
    writer.send_bytes(b"go")
    front.let_go()


def test_a_task_waits_for_its_item(front: Front, executor: Any) -> None:
    pool, writer = executor(1)

    async def await_item() -> None:
        await asyncio.get_running_loop().run_in_executor(pool, read)

    async def main() -> None:
        await asyncio.create_task(await_item(), name="waiter")

    front.start("loop", asyncio.run, main())
    until(lambda: pool._executor_manager_thread is not None)
    name = item(pool, 0)

    def is_seen(report: Report) -> bool:
        return any(one.waiter == "front/task:waiter" and resources(one) == [name] for one in report.waits)

    report_when(front.agent, is_seen)
    writer.send_bytes(b"go")
    front.let_go()


def test_a_shutdown_waits_for_all_items(front: Front, executor: Any) -> None:
    pool, writer = executor(1)
    pool.submit(read)
    name = item(pool, 0)
    front.start("waiter", pool.shutdown)
    (wait,) = seen(front)
    assert resources(wait) == [name]
    writer.send_bytes(b"go")
    front.let_go()


def test_with_another_worker_nothing_is_known_until_the_program_is_known_not_to_end_one(
    front: Front, executor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "search_for_crashes", lambda: None)
    monkeypatch.setattr(executors._Crashes, "none", False)
    pool, writer = executor(2)
    pool.submit(read)
    running = pool.submit(read)
    until(lambda: len(pool._processes) == 2)
    front.start("waiter", running.result)
    assert not waits_of(front.report_when_still("waiter"))
    monkeypatch.setattr(executors._Crashes, "none", True)
    (wait,) = seen(front)
    assert resources(wait) == [item(pool, 1)]
    writer.send_bytes(b"go")
    writer.send_bytes(b"go")
    front.let_go()


def without_workers(
    front: Front, executor: Any, wait: Callable[[Any], Callable[[], Any]]
) -> tuple[Any, Connection, dict[int, Any], Report]:
    """A pool whose only worker runs, as if it had ended without being replaced.

    Returns the writing end for the worker, the pool's processes before, and the report of who waits for another item.
    """
    pool, writer = executor(1)
    pool.submit(read)
    until(lambda: pool._processes and not manager_of(pool).call_queue._buffer)
    front.start("waiter", wait(pool))
    until(lambda: len(manager_of(pool).pending_work_items) == 2 and pool._work_ids.empty())
    running = dict(pool._processes)
    pool._processes.clear()
    return pool, writer, running, report_when(front.agent, lambda report: any(has_ended(one.waiter) for one in report.waits))


@pytest.mark.parametrize("of_task", [False, True])
def test_an_item_of_a_pool_without_workers_waits_for_an_ended_one_until_there_is_another(
    front: Front, executor: Any, of_task: bool
) -> None:
    async def in_loop(pool: Any) -> None:
        await asyncio.get_running_loop().run_in_executor(pool, answer)

    def wait(pool: Any) -> Callable[[], Any]:
        return (lambda: asyncio.run(in_loop(pool))) if of_task else pool.submit(answer).result

    pool, writer, running, report = without_workers(front, executor, wait)
    (waiter,) = (one.waiter for one in report.waits for target in one.among if _is_other(one, target))
    assert of(look_at(front.agent, report), waiter).unchanged
    pool._processes.update(running)
    assert not of(look_at(front.agent, report), waiter).unchanged
    writer.send_bytes(b"go")
    front.let_go()


def _is_other(wait: LocalWait, target: Any) -> bool:
    return isinstance(target, PartyTarget) and has_ended(target.party) and target.party != wait.waiter


def test_a_pool_that_replaces_its_only_worker_has_not_lost_it(executor: Any) -> None:
    """The manager thread left its wait for results after its stack had been read."""
    pool, _ = executor(1)
    pool.submit(read)
    until(lambda: "wait_result_broken_or_wakeup" in {one.f_code.co_name for one in frames_of_manager(pool)})
    at_results = CallStack(frames_of_manager(pool))
    elsewhere = threading.Thread(target=threading.Event().wait, daemon=True)
    elsewhere.start()
    thread: Any = type("Manager", (), {})()
    thread.ident, thread.processes, thread.call_queue = elsewhere.ident, {}, None
    view: Any = SimpleNamespace(stacks=lambda: {elsewhere.ident: at_results})
    assert executors._enders(executors._Pool(thread, {}), (0,), view) == executors._UNKNOWN


def frames_of_manager(pool: ProcessPoolExecutor) -> tuple[FrameType, ...]:
    return tuple(frames_of_threads()[manager_of(pool).ident])


def test_a_program_that_ends_a_worker_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for code, found in (("import os\nos._exit(3)", True), ("worker.kill()", True), ("killed = 1\nexit_code = 2", False)):
        file = tmp_path / f"program_{len(code)}.py"
        file.write_text(code)
        mentions = Mentions(executors._CRASHES, own_only=True)
        module = type(os)("program")
        module.__file__ = str(file)
        monkeypatch.setattr("sys.modules", {"program": module})
        mentions.search()
        monkeypatch.undo()
        assert bool(mentions.found) is found


def test_items_wait_for_a_callback_of_another_future(front: Front, executor: Any) -> None:
    pool, writer = executor(1)
    go, called = threading.Event(), threading.Event()
    first = pool.submit(read)

    def wait(_: Future[None]) -> None:
        called.set()
        go.wait()

    first.add_done_callback(wait)
    second = pool.submit(read)
    writer.send_bytes(b"go")
    assert called.wait(PATIENCE_SECONDS)
    front.start("waiter", second.result)
    assert waits_for(front, manager_of(pool))
    go.set()
    writer.send_bytes(b"go")
    front.let_go()


def test_an_item_that_is_being_pickled_waits_for_the_thread_that_sends_it(front: Front, executor: Any) -> None:
    pool, _ = executor(1)
    slow = Slow()
    front.start("waiter", pool.submit(answer, slow).result)
    until(lambda: manager_of(pool).call_queue._thread is not None)
    assert waits_for(front, manager_of(pool).call_queue._thread)
    slow.go.set()
    front.let_go()


class Slow:
    """An argument that is pickled once the test says so."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        self.go.wait()
        return int, (0,)


@contextmanager
def pool_of(size: int) -> Iterator[tuple[Any, Connection, Lock]]:
    with given() as (reader, writer, lock):
        pool = SPAWN.Pool(size, start, (reader, lock))
        yield pool, writer, lock
        pool.terminate()
        pool.join()


def part(pool: Any, job: int, number: int) -> str | None:
    return name_of_item(pool._outqueue._reader, job, number)


def kill_worker(pool: Any) -> None:
    first = pool._pool[0].pid
    os.kill(first, signal.SIGKILL)
    until(lambda: pool._pool and pool._pool[0].pid != first)


def test_a_result_waits_for_all_its_parts_and_for_a_worker(front: Front) -> None:
    with pool_of(1) as (pool, writer, _):
        result: Any = pool.map_async(read, range(2), 1)
        front.start("waiter", result.wait)
        parts, turns = sorted(seen(front), key=lambda one: -len(one.among))
        assert (resources(parts), parts.needs) == ([part(pool, result._job, 0), part(pool, result._job, 1)], 2)
        assert (resources(turns), turns.needs) == ([name_of_turn(pool._pool[0].pid)], 1)
        writer.send_bytes(b"go")
        writer.send_bytes(b"go")
        front.let_go()


def test_the_next_of_imap_waits_for_one_part_and_that_of_imap_unordered_is_unknown(front: Front) -> None:
    with pool_of(1) as (pool, writer, _):
        items: Any = pool.imap(read, range(2))
        front.start("waiter", next, items)
        part_of, turns = sorted(seen(front), key=lambda one: "turn" in resources(one)[0])
        assert (resources(part_of), part_of.needs) == ([part(pool, items._job, 0)], 1)
        assert resources(turns) == [name_of_turn(pool._pool[0].pid)]
        writer.send_bytes(b"go")
        writer.send_bytes(b"go")
        front.let_go()
        assert next(items) is None
        front.start("other", next, pool.imap_unordered(read, range(2)))
        report = front.report_when_still("other")
        assert not [one for one in report.waits if one.waiter == "front/thread:other"]
        writer.send_bytes(b"go")
        writer.send_bytes(b"go")
        front.let_go()


def test_a_result_of_a_terminated_pool_never_comes(front: Front) -> None:
    with pool_of(1) as (pool, _, __):
        result: Any = pool.apply_async(read)
        pool.terminate()
        front.start("waiter", result.wait)
        (wait,) = waits_of(report_when(front.agent, lambda report: bool(waits_of(report))))
        assert [isinstance(one, PartyTarget) and has_ended(one.party) for one in wait.among] == [True]
        result._event.set()  # nobody else does
        front.let_go()


def test_what_a_killed_worker_was_running_never_comes(front: Front) -> None:
    with pool_of(1) as (pool, _, __):
        result: Any = pool.apply_async(read)
        front.start("waiter", result.wait)
        until(lambda: not pool._inqueue._reader.poll() and is_at(pool, read_at=_given_pipe(pool)))
        kill_worker(pool)

        def is_lost(report: Report) -> bool:
            found = waits_of(report)
            return bool(found) and all(isinstance(one, PartyTarget) and has_ended(one.party) for one in found[0].among)

        report_when(front.agent, is_lost)
        result._set(0, (True, None))
        front.let_go()


def _given_pipe(pool: Any) -> str:
    return str(Path(f"/proc/self/fd/{pool._initargs[0].fileno()}").readlink())


def is_at(pool: Any, *, read_at: str) -> bool:
    """Whether the first worker reads a pipe."""
    pid = pool._pool[0].pid
    number, *arguments = Path(f"/proc/{pid}/syscall").read_text().split()
    return number in ("0", "63") and str(Path(f"/proc/{pid}/fd/{int(arguments[0], 16)}").readlink()) == read_at


@pytest.mark.parametrize("run", [read, take])
def test_a_worker_that_reads_or_locks_something_else_is_not_idle(front: Front, run: Callable[[], None]) -> None:
    with pool_of(1) as (pool, writer, lock), lock:
        result: Any = pool.apply_async(run)
        front.start("waiter", result.wait)
        until(lambda: not pool._inqueue._reader.poll() and pool._taskqueue.empty())
        for _ in range(20):
            assert not any(
                isinstance(target, PartyTarget) for wait in waits_of(report_of(front.agent)) for target in wait.among
            )
            time.sleep(0.05)
        lock.release()
        writer.send_bytes(b"go")
        front.let_go()
        lock.acquire()


def test_a_result_that_is_still_in_the_pipe_is_not_lost(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    with pool_of(1) as (pool, _, __):
        until(lambda: not pool.apply(answer, (0,)))
        handler = CallStack((), pool._result_handler.ident)
        stacks = {pool._result_handler.ident: handler, pool._task_handler.ident: CallStack((), pool._task_handler.ident)}
        view: Any = SimpleNamespace(stacks=lambda: stacks)
        monkeypatch.setattr(pools, "_sends_nothing", lambda *_: True)
        until(lambda: pools.is_lost(pool, handler, view))
        monkeypatch.setattr(pools, "_is_at", lambda *_: False)
        assert not pools.is_lost(pool, handler, view)


def test_a_worker_reports_its_item_and_its_turn() -> None:
    reader, writer = SPAWN.Pipe(duplex=False)
    queue, turn = SimpleNamespace(_writer=writer), name_of_turn(os.getpid())
    call = SimpleNamespace(work_id=7)
    assert workers._names(EXECUTORS, {"result_queue": queue, "call_item": call}) == (name_of_item(reader, 7), turn)
    assert workers._names(POOLS, {"outqueue": queue, "task": (3, 1, read, (), {})}) == (name_of_item(reader, 3, 1), turn)
    assert workers._names(EXECUTORS, {"result_queue": queue}) == ()
    assert workers._names(POOLS, {"outqueue": queue, "task": None}) == ()
    reader.close()
    writer.close()
