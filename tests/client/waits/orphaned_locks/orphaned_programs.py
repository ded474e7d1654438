"""Programs with orphaned locks, and near misses: ``python -m tests.client.waits.orphaned_locks.orphaned_programs NAME``.

Each is compiled from its own text, so that no function of another program releases anything. Programs with semaphores whose
shares are held are in :mod:`tests.client.waits.shared_programs`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from textwrap import dedent
from typing import Any

from stilltrue import Agent
from tests.client.look.worlds import look_at, of, report_of, report_when
from tests.client.waits.shared_programs import NOT_SHARED, SHARED

ROUNDS, PAUSE_SECONDS = 8, 0.3
_BEGIN = """
import asyncio, grpc, threading, time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

ever, go = threading.Event(), threading.Event()
kept = []

def ends(run, *arguments):
    thread = threading.Thread(target=run, args=arguments)
    thread.start()
    thread.join()

def waits(run, *arguments):
    threading.Thread(target=run, args=arguments, name="waiter", daemon=True).start()

def loop(main):
    threading.Thread(target=lambda: asyncio.run(main()), daemon=True).start()
"""
LEFT = {
    "by_exception": """
        lock = threading.Lock()
        def work(fails):
            lock.acquire()
            if fails:
                raise SystemExit
            lock.release()
        ends(work, True)
        waits(work, False)
        """,
    "on_one_path": """
        class Account:
            def __init__(self):
                self._lock = threading.Lock()
            def take(self, amount):
                self._lock.acquire()
                if amount > 10:
                    return
                self._lock.release()
            def look(self):
                with self._lock:
                    pass
        account = Account()
        ends(account.take, 11)
        waits(account.look)
        """,
    "semaphore": """
        def main():
            places = threading.Semaphore(2)
            def work(fails):
                places.acquire()
                if fails:
                    return
                places.release()
            ends(work, True)
            ends(work, True)
            waits(work, False)
        main()
        """,
    "bounded": """
        places = threading.BoundedSemaphore(1)
        def work(fails):
            places.acquire()
            if fails:
                return
            places.release()
        ends(work, True)
        waits(work, False)
        """,
    "reentrant": """
        lock = threading.RLock()
        def work():
            go.wait()
            with lock:
                pass
        waits(work)  # before the owner ends: a later thread may get its identity
        ends(lock.acquire)
        go.set()
        """,
    "reentrant_with_the_same_identity": """
        lock = threading.RLock()
        def work():
            go.wait()
            with lock:
                pass
        waits(work)  # before the owner ends: a later thread may get its identity
        ends(lock.acquire)
        go.set()
        cut()
        for _ in range(3):
            threading.Thread(target=ever.wait, daemon=True).start()
        """,
    "argument": """
        def work(lock, fails):
            lock.acquire()
            if fails:
                return
            try:
                pass
            finally:
                lock.release()
        lock = threading.Lock()
        ends(work, lock, True)
        waits(work, lock, False)
        """,
    "task": """
        lock = asyncio.Lock()
        async def work(fails):
            await lock.acquire()
            if fails:
                return
            lock.release()
        async def main():
            await asyncio.create_task(work(True))
            waiter = asyncio.create_task(work(False), name="waiter")
            await waiter
        loop(main)
        """,
    "task_in_a_block": """
        places = asyncio.Semaphore(1)
        async def work():
            await places.acquire()
        async def other():
            async with places:
                pass
        async def main():
            await asyncio.create_task(work())
            waiter = asyncio.create_task(other(), name="waiter")
            await waiter
        loop(main)
        """,
    "agents_lock": """
        lock = agent.Lock("ledger", owner_releases=True)
        def work():
            with lock:
                pass
        ends(lock.acquire)
        waits(work)
        """,
    "agents_reentrant_lock": """
        lock = agent.RLock("ledger")
        def work():
            go.wait()
            with lock:
                pass
        waits(work)  # before the owner ends: a later thread may get its identity
        ends(lock.acquire)
        go.set()
        """,
    "agents_lock_of_tasks": """
        async def main():
            lock = agent.aio.Lock("ledger", owner_releases=True)
            await asyncio.create_task(lock.acquire())
            async def other():
                async with lock:
                    pass
            waiter = asyncio.create_task(other(), name="waiter")
            await waiter
        loop(main)
        """,
}
NEAR = {
    "another_may_release_it": """
        lock = threading.Lock()
        def work(fails):
            lock.acquire()
            if fails:
                return
            lock.release()
        def unlock():
            lock.release()
        ends(work, True)
        waits(work, False)
        """,
    "another_may_release_it_which_gc_freeze_hides": """
        import gc
        lock = threading.Lock()
        def work(fails):
            lock.acquire()
            if fails:
                return
            lock.release()
        def unlock():
            lock.release()
        gc.freeze()
        ends(work, True)
        waits(work, False)
        """,
    "another_may_release_it_as_an_argument": """
        lock = threading.Lock()
        def work(fails):
            lock.acquire()
            if fails:
                return
            lock.release()
        def unlock(one):
            one.release()
        kept.append(lock)
        ends(work, True)
        waits(work, False)
        """,
    "slow": """
        lock = threading.Lock()
        def work(slow):
            lock.acquire()
            if slow:
                ever.wait()
            lock.release()
        threading.Thread(target=work, args=(True,), daemon=True).start()
        while not lock.locked():
            pass
        waits(work, False)
        """,
    "slow_below": """
        lock = threading.Lock()
        def inner():
            ever.wait()
        def work(run):
            lock.acquire()
            run()
            lock.release()
        threading.Thread(target=work, args=(inner,), daemon=True).start()
        while not lock.locked():
            pass
        waits(work, inner)
        """,
    "in_a_done_callback": """
        places = asyncio.Semaphore(1)
        async def work():
            await places.acquire()
            task = asyncio.create_task(asyncio.sleep(1000))
            kept.append(task)
            task.add_done_callback(lambda _: places.release())
        async def other():
            async with places:
                pass
        async def main():
            await asyncio.create_task(work())
            await asyncio.create_task(other(), name="waiter")
        loop(main)
        """,
    "bound_in_a_done_callback": """
        places = asyncio.Semaphore(1)
        async def other():
            async with places:
                pass
        async def main():
            task = asyncio.create_task(asyncio.sleep(1000))
            kept.append(task)
            await asyncio.create_task(places.acquire())
            task.add_done_callback(getattr(places, "rele" + "ase"))
            await asyncio.create_task(other(), name="waiter")
        loop(main)
        """,
    "in_a_generator": """
        lock = threading.Lock()
        @contextmanager
        def locked():
            with lock:
                yield
        def work():
            kept.append(locked())
            kept[0].__enter__()
        def other():
            with locked():
                pass
        ends(work)
        waits(other)
        """,
    "on_an_exit_stack": """
        lock = threading.Lock()
        stack = ExitStack()
        def other():
            with lock:
                pass
        ends(stack.enter_context, lock)
        waits(other)
        """,
    "on_an_exit_stack_by_a_callback": """
        lock = threading.Lock()
        stack = ExitStack()
        def work():
            lock.acquire()
            stack.callback(lock.release)
        def other():
            with lock:
                pass
        ends(work)
        waits(other)
        """,
    "on_an_exit_stack_that_is_closed_elsewhere": """
        places = threading.Semaphore(1)
        stack = ExitStack()
        def work():
            places.acquire()
            places.release()
        ends(stack.enter_context, places)
        waits(work)
        """,
    "in_a_block_that_a_function_names": """
        locks = {1: threading.Lock()}
        def lock_of(number):
            return locks[number]
        def work():
            with lock_of(1):
                ever.wait()
        def other():
            with locks[1]:
                pass
        threading.Thread(target=work, daemon=True).start()
        while not locks[1].locked():
            pass
        waits(other)
        """,
    "a_place_to_park": """
        class Parking:
            def __init__(self):
                self.lock = threading.Lock()
                self.lock.acquire()
            def run(self):
                self.lock.acquire()
        waits(Parking().run)
        """,
    "condition": """
        lock = threading.Lock()
        condition = threading.Condition(lock)
        def other():
            with lock:
                pass
        ends(lock.acquire)
        waits(other)
        """,
    "taken_if": """
        lock = threading.Lock()
        def work(takes, slow):
            if takes:
                lock.acquire()
            if slow:
                ever.wait()
            lock.release()
        def other():
            with lock:
                pass
        ends(lock.acquire)
        waits(other)
        """,
    "agents_lock_in_a_generator": """
        lock = agent.Lock("ledger", owner_releases=True)
        @contextmanager
        def locked():
            with lock:
                yield
        def work():
            kept.append(locked())
            kept[0].__enter__()
        def other():
            with locked():
                pass
        ends(work)
        waits(other)
        """,
    "agents_lock_that_is_not_declared": """
        lock = agent.Lock("ledger")
        def other():
            with lock:
                pass
        ends(lock.acquire)
        waits(other)
        """,
}
UNDONE = {
    "by_text_that_is_run": """
        lock = threading.Lock()
        text = "lock." + "release()"
        def work(fails):
            lock.acquire()
            if fails:
                raise SystemExit
            lock.release()
        def repairs():
            while not go.wait(60):
                exec(text)
        ends(work, True)
        threading.Thread(target=repairs, daemon=True).start()
        waits(work, False)
        """,
    "by_a_plugin_that_is_loaded_later": """
        from importlib.metadata import entry_points
        lock = threading.Lock()
        def work(fails):
            lock.acquire()
            if fails:
                raise SystemExit
            lock.release()
        def repairs():
            while not go.wait(60):
                for one in entry_points(group="repairs"):
                    one.load()()
        ends(work, True)
        threading.Thread(target=repairs, daemon=True).start()
        waits(work, False)
        """,
}
"""No party that is read will release it, but one may run code that is not read."""


def main(name: str) -> None:
    """Run a program for some rounds; print the parties that its waiter is seen to wait for, if known."""
    agent = Agent("shop", instance="shop")
    names = {"agent": agent, "cut": lambda: report_when(agent, lambda report: bool(report.waits)), "__name__": name}
    exec(compile(_BEGIN + dedent((LEFT | NEAR | UNDONE | SHARED | NOT_SHARED)[name]), f"/program/{name}.py", "exec"), names)
    found: dict[str, Any] = {"among": [], "look": []}
    for _ in range(ROUNDS):
        time.sleep(PAUSE_SECONDS)
        report = report_of(agent)
        agent._observer.searchers.search(time.time())
        waits = [one for one in report.waits if one.waiter.endswith(":waiter")]
        targets = [target for wait in waits for target in wait.among]
        holders = {hold.resource: str(hold.party) for hold in report.holds}
        among = [str(getattr(one, "party", "")) or holders.get(getattr(one, "resource", ""), "") for one in targets]
        if any(among):
            seen = of(look_at(agent, report), waits[0].waiter)
            found = {
                "among": among,
                "look": [str(seen.unchanged), seen.doubt, "; ".join(way.text for way in seen.ways_out if way.party is None)],
            }
    assert agent.live.faults == 0
    print(json.dumps(found), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
