"""Ordinary distributed jobs. ``python job_programs.py JOB ROLE``: one process; the addresses of all are in ``JOB_ADDRESSES``.

A process prints ``ready``, ``did TIME`` for each piece of work, and ``over TIME`` when it knows that the job is over; it ends
with its standard input. So the truth is known: until ``over``, some work remains.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

import stilltrue

ADDRESSES: dict[str, str] = json.loads(os.environ.get("JOB_ADDRESSES", "{}"))
ROLE = sys.argv[2] if len(sys.argv) > 2 else ""
WORK_SECONDS = 0.4
NODES = ["one", "two", "three"]
KEPT: list[Any] = []
"""Servers, tasks and pools, which end when nothing refers to them."""


def say(*words: str) -> None:
    os.write(1, (" ".join(words) + "\n").encode())


def did() -> None:
    say("did", repr(time.time()))


def over() -> None:
    say("over", repr(time.time()))


def _handlers(methods: dict[str, Callable[..., Any]]) -> Any:
    table: dict[str, Any] = {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}
    return grpc.method_handlers_generic_handler("s", table)


def serve(**methods: Callable[..., Any]) -> None:
    server = grpc.server(ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((_handlers(methods),))
    assert server.add_insecure_port(ADDRESSES[ROLE])
    server.start()
    KEPT.append(server)


async def aserve(**methods: Callable[..., Any]) -> None:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_handlers(methods),))
    assert server.add_insecure_port(ADDRESSES[ROLE])
    await server.start()
    KEPT.append(server)


def to(role: str, method: str) -> Any:
    return grpc.insecure_channel(ADDRESSES[role]).unary_unary(f"/s/{method}")


def ato(role: str, method: str) -> Any:
    return grpc.aio.insecure_channel(ADDRESSES[role]).unary_unary(f"/s/{method}")


def answer(request: bytes, context: Any) -> bytes:
    did()
    return request


def start_all(*roles: str) -> Callable[[stilltrue.Agent], None]:
    """The role of a client that starts the job, and declares that it does nothing else."""

    def starts(agent: stilltrue.Agent) -> None:
        with agent.busy():
            for role in roles:
                to(role, "Start")(b"x", wait_for_ready=True)

    return starts


# -- callbacks: each reply's callback works, then makes the next call --------------------------------------------------


def callbacks(agent: stilltrue.Agent) -> None:
    step = to("worker", "Step")

    def go(number: int) -> None:
        step.future(b"x", wait_for_ready=True).add_done_callback(lambda _: after(number))

    def after(number: int) -> None:
        time.sleep(WORK_SECONDS)
        did()
        if number:
            go(number - 1)
        else:
            over()

    def start(request: bytes, context: Any) -> bytes:
        context.add_callback(lambda: go(2))
        return request

    serve(Start=start)


async def acallbacks(agent: stilltrue.Agent) -> None:
    step = ato("worker", "Step")

    def go(number: int) -> None:
        call = step(b"x", wait_for_ready=True)
        call.add_done_callback(lambda _: asyncio.get_running_loop().call_later(WORK_SECONDS, after, number))
        KEPT.append(call)

    def after(number: int) -> None:
        did()
        if number:
            go(number - 1)
        else:
            over()

    async def start(request: bytes, context: Any) -> bytes:
        go(2)
        return request

    await aserve(Start=start)


# -- retries: a worker takes jobs from a queue and pauses between attempts ---------------------------------------------


def refuses_twice() -> Callable[[bytes, Any], bytes]:
    attempts = [0]

    def step(request: bytes, context: Any) -> bytes:
        attempts[0] += 1
        did()
        if attempts[0] % 3:
            context.abort(grpc.StatusCode.UNAVAILABLE, "busy")
        return request

    return step


def retries(agent: stilltrue.Agent) -> None:
    step, jobs = to("worker", "Step"), queue.Queue[bytes]()

    def works() -> None:
        while job := jobs.get():
            while True:
                try:
                    step(job, wait_for_ready=True)
                    break
                except grpc.RpcError:
                    time.sleep(WORK_SECONDS)
            if job == b"last":
                over()

    def start(request: bytes, context: Any) -> bytes:
        jobs.put(b"x")
        jobs.put(b"last")
        return request

    threading.Thread(target=works, daemon=True).start()
    serve(Start=start)


async def aretries(agent: stilltrue.Agent) -> None:
    step, jobs = ato("worker", "Step"), asyncio.Queue[bytes]()

    async def works() -> None:
        while job := await jobs.get():
            while True:
                try:
                    await step(job, wait_for_ready=True)
                    break
                except grpc.aio.AioRpcError:
                    await asyncio.sleep(WORK_SECONDS)
            if job == b"last":
                over()

    async def start(request: bytes, context: Any) -> bytes:
        jobs.put_nowait(b"x")
        jobs.put_nowait(b"last")
        return request

    KEPT.append(asyncio.create_task(works()))
    await asyncio.sleep(0)
    await aserve(Start=start)


# -- diffusing: work that makes work; each node's thread tells its parent once all that it has passed on is done --------


class Diffusing:
    """A node: it is engaged by the first that sends it work, and has passed on ``deficit`` pieces that are not done."""

    def __init__(self) -> None:
        self.inbox: queue.Queue[tuple[str, int]] = queue.Queue()
        self.next_ones = [NODES[(NODES.index(ROLE) + step) % len(NODES)] for step in (1, 2)]
        self.stubs = {(role, method): to(role, method) for role in NODES for method in ("Work", "Done")}
        self.engaged_by = ""
        self.deficit = 0

    def send(self, role: str, method: str, text: str = "") -> None:
        self.stubs[role, method](text.encode(), wait_for_ready=True)

    def works(self) -> None:
        while True:
            parent, depth = self.inbox.get()
            if parent:
                self.work(parent, depth)
            else:
                self.deficit -= 1
            if not self.deficit and self.engaged_by:
                done, self.engaged_by = self.engaged_by, ""
                if done == "nobody":
                    over()
                else:
                    self.send(done, "Done")

    def work(self, parent: str, depth: int) -> None:
        time.sleep(WORK_SECONDS / 2)
        did()
        is_first = not self.engaged_by
        self.engaged_by = self.engaged_by or parent
        for role in self.next_ones if depth else ():
            self.deficit += 1
            self.send(role, "Work", f"{ROLE} {depth - 1}")
        if not is_first:
            self.send(parent, "Done")

    def put(self, request: bytes, context: Any) -> bytes:
        parent, _, depth = request.decode().partition(" ")
        self.inbox.put((parent, int(depth or "0")))
        return b""


def diffusing(agent: stilltrue.Agent) -> None:
    node = Diffusing()
    threading.Thread(target=node.works, daemon=True).start()

    def start(request: bytes, context: Any) -> bytes:
        return node.put(b"nobody 3", context)

    serve(Work=node.put, Done=node.put, Start=start)


# -- processes: a worker process computes on its main thread; others only stand by --------------------------------------


def compute(jobs: Any, results: Any, address: str) -> None:
    """The worker process: a member that declares nothing of its own."""
    stilltrue.instrument(service="computes", instance="computes", reactive=True)
    step: Any = grpc.insecure_channel(address).unary_unary("/s/Step")
    while job := jobs.get():
        step(b"begun", wait_for_ready=True)
        end = time.monotonic() + 2 * WORK_SECONDS
        while time.monotonic() < end:
            sum(range(1000))
        step(b"computed")
        results.put(job)


def processes(agent: stilltrue.Agent) -> None:
    spawn: Any = multiprocessing.get_context("spawn")
    jobs, results, pool = spawn.Queue(), spawn.Queue(), spawn.Pool(1)
    pool.map(abs, range(2))
    worker = spawn.Process(target=compute, args=(jobs, results, ADDRESSES["worker"]), daemon=True)
    worker.start()
    KEPT.extend([jobs, pool])
    step = to("worker", "Step")

    def collects() -> None:
        while result := results.get():
            step(result)
            if result == b"last":
                over()

    def start(request: bytes, context: Any) -> bytes:
        jobs.put(b"x")
        jobs.put(b"last")
        return request

    for target in (collects, worker.join):
        threading.Thread(target=target, daemon=True).start()
    serve(Start=start)


# -- a ring: a token goes round, though each third hop is refused; then its holder loses it --------------------------------


class Ring:
    """A node: it works when it has the token, and passes it on until the next node takes it."""

    def __init__(self, agent: stilltrue.Agent) -> None:
        self.agent = agent
        self.hop = to(NODES[(NODES.index(ROLE) + 1) % len(NODES)], "Hop")
        self.inbox: queue.Queue[int] = queue.Queue()
        self.asked = 0
        agent.fact(token=int(NODES[0] == ROLE))

    def works(self) -> None:
        while True:
            left = self.inbox.get()
            did()
            if not left:
                over()
                self.agent.fact(token=0)  # lost
            else:
                time.sleep(WORK_SECONDS / 8)
                while not self.passes_on(left - 1):
                    pass

    def passes_on(self, left: int) -> bool:
        with self.agent.atomic() as step:
            step.fact(token=0)
            step.carries(token=1)
            try:
                self.hop(b"%d" % left, wait_for_ready=True)
            except grpc.RpcError:
                step.fact(token=1)
                return False
        return True

    def take(self, request: bytes, context: Any) -> bytes:
        self.asked += 1
        if not self.asked % 3:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "later")
        with self.agent.atomic() as step:
            step.takes()
            step.fact(token=1)
        self.inbox.put(int(request))
        return request


def ring(agent: stilltrue.Agent) -> None:
    node = Ring(agent)

    def start(request: bytes, context: Any) -> bytes:
        node.inbox.put(20)
        return request

    threading.Thread(target=node.works, daemon=True).start()
    serve(Hop=node.take, Start=start)


# ----------------------------------------------------------------------------------------------------------------------

Role = Callable[[stilltrue.Agent], Coroutine[Any, Any, None] | None]


def _worker(step: Callable[..., Any] = answer) -> Role:
    return lambda _: serve(Step=step)


_NODES_START_ONE = {"client": start_all(NODES[0])}
JOBS: dict[str, dict[str, Role]] = {
    "callbacks": {"worker": _worker(), "front": callbacks, "client": start_all("front")},
    "callbacks-aio": {"worker": _worker(), "front": acallbacks, "client": start_all("front")},
    "retries": {"worker": _worker(refuses_twice()), "front": retries, "client": start_all("front")},
    "retries-aio": {"worker": _worker(refuses_twice()), "front": aretries, "client": start_all("front")},
    "diffusing": {**dict.fromkeys(NODES, diffusing), **_NODES_START_ONE},
    "processes": {"worker": _worker(), "front": processes, "client": start_all("front")},
    "ring": {**dict.fromkeys(NODES, ring), **_NODES_START_ONE},
}


def main() -> None:
    agent = stilltrue.instrument(service=ROLE, instance=ROLE, reactive=True)
    assert agent.wait_until_joined(30)

    async def stay(begun: Coroutine[Any, Any, None]) -> None:
        await begun
        say("ready")
        await asyncio.to_thread(sys.stdin.read)

    begun = JOBS[sys.argv[1]][ROLE](agent)
    if begun is not None:
        asyncio.run(stay(begun))
    else:
        say("ready")
        sys.stdin.read()
    for pool in KEPT:
        if hasattr(pool, "terminate"):
            pool.terminate()  # or it would replace a worker that is killed
    for child in multiprocessing.active_children():
        child.kill()
    agent.close()
    os._exit(0)


if __name__ == "__main__":
    main()
