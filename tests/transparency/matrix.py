"""The transparency matrix: every story runs in a plain process and in one with the agent, and the records are compared.

``python -m tests.transparency.matrix`` runs all of it in each interpreter that ``--python`` names, and writes
docs/transparency.md; ``--check`` fails when that differs.
Each neighbour has its own processes, since its changes to a process cannot be undone.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from typing import Any, NamedTuple

import grpc
import grpc.aio

import stilltrue
from stilltrue.model import SnapshotId
from tests.transparency.neighbours import NEIGHBOURS, Neighbour
from tests.transparency.server import ARITIES, PATIENCE_SECONDS, STYLES, handlers
from tests.transparency.stories import OUTCOMES, WAYS, aio_story, make_callable, story

Results = dict[str, tuple[dict[str, Any], int]]
"""By neighbour: the stories that differ, and how many were told."""
ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "transparency.md"
TRIES = 8
"""A story that varies by itself (who is first, at a deadline) is told plain so many times; attached it must be one of them."""


class Cell(NamedTuple):
    """One story."""

    style: str  # of the handlers
    client: str  # threads or loop
    arity: str
    outcome: str
    way: str

    @property
    def key(self) -> str:
        """Its name."""
        return "/".join(self).replace(" ", "-").replace(",", "")


def cells(styles: Iterable[str] = STYLES, outcomes: Iterable[str] = OUTCOMES) -> list[Cell]:
    """All stories."""
    return [
        Cell(style, client, arity, outcome, way)
        for style in styles
        for client in ("threads", "loop")
        for arity in ARITIES
        for outcome in outcomes
        for way in (WAYS[arity] if client == "threads" else ("task",))
        if not _leaves_worker(style, arity, outcome)
    ]


def cells_beside(name: str) -> list[Cell]:
    """All stories that can run with this neighbour."""
    writers = NEIGHBOURS[name].writers
    return [cell for cell in cells() if writers or cell.style != "loop, read and write" or not cell.arity.endswith("stream")]


_STUCK = frozenset({"abort", "raise", "deadline", "cancel", "never read", "bad reply"})


def _leaves_worker(style: str, arity: str, outcome: str) -> bool:
    """Whether plain ``grpc.aio`` leaves a worker or a caller waiting forever: it never resumes a generator that ends early."""
    return style == "loop, sync handlers" and arity.endswith("stream") and outcome in _STUCK


# -- one process -------------------------------------------------------------------------------------------------------


class Loop:
    """An event loop in its own thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def run(self, coroutine: Any) -> Any:
        """Run a coroutine there and wait for its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(2 * PATIENCE_SECONDS)


@contextmanager
def serving(style: str, neighbour: Neighbour, loop: Loop) -> Iterator[str]:
    """Run a server with handlers of this style; yields its address."""
    if style == "threads":
        server: Any = grpc.server(ThreadPoolExecutor(16), handlers=handlers(style), interceptors=neighbour.server())
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield f"127.0.0.1:{port}"
        server.stop(None).wait()
        return

    async def start() -> tuple[Any, int]:
        made: Any = grpc.aio.server(ThreadPoolExecutor(16), handlers=handlers(style))
        port = made.add_insecure_port("127.0.0.1:0")
        await made.start()
        return made, port

    server, port = loop.run(start())
    yield f"127.0.0.1:{port}"
    loop.run(server.stop(None))


def tell_all(neighbour: Neighbour, told: Iterable[Cell]) -> dict[str, Any]:
    """Run all these stories in this process."""
    loop, found = Loop(), {}
    wanted = list(told)
    for style in STYLES:
        of_style = [cell for cell in wanted if cell.style == style]
        if not of_style:
            continue
        with serving(style, neighbour, loop) as address:
            plain = neighbour.channel(grpc.insecure_channel(address))
            nowhere = neighbour.channel(grpc.insecure_channel("127.0.0.1:1"))

            async def on_loop(where: str) -> Any:
                return grpc.aio.insecure_channel(where, interceptors=neighbour.aio_channel())

            aio, aio_nowhere = loop.run(on_loop(address)), loop.run(on_loop("127.0.0.1:1"))
            for cell in of_style:
                _, client, arity, outcome, way = cell
                away = outcome == "unreachable"
                if client == "threads":
                    callable_ = neighbour.callable_(make_callable(nowhere if away else plain, arity, outcome))
                    found[cell.key] = _in_time_on_thread(functools.partial(story, callable_, arity, outcome, way, cell.key))
                else:
                    callable_ = neighbour.aio_callable(make_callable(aio_nowhere if away else aio, arity, outcome))
                    found[cell.key] = loop.run(_in_time(aio_story(callable_, arity, outcome, cell.key)))
            for channel in (plain, nowhere):
                channel.close()
            for channel in (aio, aio_nowhere):
                loop.run(channel.close())
    return found


def _in_time_on_thread(tell: Callable[[], Any]) -> Any:
    told: Queue[Any] = Queue()
    threading.Thread(target=lambda: told.put(tell()), daemon=True).start()
    try:
        return told.get(timeout=2 * PATIENCE_SECONDS)
    except Empty:
        return "does not end"


async def _in_time(told: Any) -> Any:
    try:
        return await asyncio.wait_for(told, PATIENCE_SECONDS)
    except TimeoutError:
        return "does not end"


def attached(neighbour: Neighbour, told: Iterable[Cell]) -> dict[str, Any]:
    """Run the stories with the agent; also returns what remains in its records afterwards."""
    neighbour.before()
    agent = stilltrue.instrument("matrix", detector="127.0.0.1:1")
    neighbour.after()
    found = tell_all(neighbour, told)
    return {**found, "left": _left(agent), "faults": agent.live.faults}


def plain(neighbour: Neighbour, told: Iterable[Cell]) -> dict[str, Any]:
    """Run the stories without the agent."""
    neighbour.before()
    neighbour.after()
    return tell_all(neighbour, told)


def _left(agent: stilltrue.Agent) -> list[str]:
    """The calls, services and waits that remain in the agent's records after it had time to settle them."""
    end = time.monotonic() + PATIENCE_SECONDS
    for number in range(1, 10_000):
        gc.collect()  # an error caught by a neighbour may keep the call alive in a cycle
        agent.live.catch_up()
        report = agent.live.marked(SnapshotId(number))
        assert report is not None
        left = [f"made {made.method}" for made in report.made if not made.doubtful]
        left += [f"served {served.method}" for served in report.served] + [f"waits {wait.what}" for wait in report.waits]
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.02)
    return left


# -- both, compared ----------------------------------------------------------------------------------------------------


def differences(name: str, told: list[Cell], python: str = sys.executable) -> tuple[dict[str, Any], int]:
    """The differences with the agent and this neighbour, by story, and the number of stories."""
    with_agent = in_process(name, "attached", told, python)
    different: dict[str, Any] = {rest: with_agent[rest] for rest in ("left", "faults") if with_agent[rest]}
    left = told
    versions: dict[str, list[Any]] = {}
    for _ in range(TRIES):
        without = in_process(name, "plain", left, python)
        for key, words in without.items():
            versions.setdefault(key, []).append(words)
        left = [cell for cell in left if with_agent[cell.key] not in versions[cell.key]]
        if not left:
            break
        again = in_process(name, "attached", left, python)
        left = [cell for cell in left if again[cell.key] not in versions[cell.key]]
        if not left:
            break
    for cell in left:
        different[cell.key] = {"plain": versions[cell.key], "attached": with_agent[cell.key]}
    return different, len(told)


def first_difference(plain_words: Any, attached_words: Any) -> str:
    """The first difference of two transcripts."""
    if isinstance(plain_words, list) and isinstance(attached_words, list) and len(plain_words) == len(attached_words):
        for mine, other in zip(plain_words, attached_words, strict=True):
            if mine != other:
                return first_difference(mine, other)
    return f"plain {json.dumps(plain_words)} | attached {json.dumps(attached_words)}"


def in_process(name: str, kind: str, told: list[Cell], python: str) -> dict[str, Any]:
    """Run the stories in a new process."""
    with tempfile.NamedTemporaryFile("w+", suffix=".json") as answer:
        command = [python, "-m", "tests.transparency.matrix", "--tell", name, "--kind", kind, "--into", answer.name]
        subprocess.run(command, input=json.dumps(told), text=True, check=True, cwd=ROOT, timeout=900)
        found: dict[str, Any] = json.loads(Path(answer.name).read_text())
        return found


def runtime_of(python: str) -> str:
    """An interpreter's versions of the packages that the agent needs."""
    asked = "import grpc, google.protobuf as p; print(f'grpcio {grpc.__version__}, protobuf {p.__version__}')"
    return subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True).stdout.strip()


def table(by_runtime: dict[str, Results]) -> str:
    """The published page: a column for each runtime."""
    first = next(iter(by_runtime.values()))
    lines = [
        "# Transparency",
        "",
        "A program must not be able to tell whether the agent is attached. The table compares what a program sees of its",
        "calls with and without the agent, alone and together with other libraries that wrap gRPC (*neighbours*).",
        "",
        "Generated by `make matrix`; do not edit. Each *story* is one call with one arity, way of calling, handler style and",
        "outcome. It records the result of every method of the call object and of the handler's context, and every exception.",
        "It runs in a plain process and in one with the agent, and the two records are compared word for word. Afterwards the",
        "agent must have no open call, service or wait in its records, and no failure of its own. All of this runs with the",
        "oldest grpcio and protobuf that the agent supports, and with the newest.",
        "",
        f"Outcomes: {', '.join(OUTCOMES)}.",
        f"Callers: threads (calls, `with_call`, futures, streams) and tasks. Handlers: {'; '.join(STYLES)}.",
        "Not compared: addresses, times, tracebacks, class names in messages, and the metadata of neighbours. Some",
        "neighbours never end certain calls, or make them fail; both processes must then show the same. With Sentry,",
        "handlers that write to streams on a loop always fail, so these stories are left out.",
        "",
        f"| neighbour | stories | {' | '.join(f'differences, {runtime}' for runtime in by_runtime)} |",
        "|---|---|" + "---|" * len(by_runtime),
    ]
    for name, (_, count) in first.items():
        found = [str(len(results[name][0]) or "none") for results in by_runtime.values()]
        lines.append(f"| {name} | {count} | {' | '.join(found)} |")
    for runtime, results in by_runtime.items():
        for name, (different, _) in results.items():
            lines += [f"- {runtime}, {name}: {key}" for key in sorted(different)]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the matrix as the arguments say; returns 1 if there are differences or the page is stale."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tell", choices=NEIGHBOURS)
    parser.add_argument("--kind", choices=("plain", "attached"))
    parser.add_argument("--into", type=Path)
    parser.add_argument("--python", action="append")
    parser.add_argument("--only", choices=NEIGHBOURS, action="append")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    if given.tell:
        tell: Callable[..., dict[str, Any]] = attached if given.kind == "attached" else plain
        given.into.write_text(json.dumps(tell(NEIGHBOURS[given.tell], [Cell(*one) for one in json.load(sys.stdin)])))
        os._exit(0)  # a worker kept by gRPC must not keep the process alive
    names = given.only or list(NEIGHBOURS)
    by_runtime: dict[str, Results] = {}
    for python in given.python or [sys.executable]:
        runtime = runtime_of(python)
        with ThreadPoolExecutor(given.processes) as pool:
            told = pool.map(lambda name, python=python: differences(name, cells_beside(name), python), names)
            by_runtime[runtime] = results = dict(zip(names, told, strict=True))
        _say(runtime, results)
    if not given.only:
        found = table(by_runtime)
        if given.check and DOCUMENT.read_text() != found:
            print("docs/transparency.md is stale: run 'make matrix'", file=sys.stderr)
            return 1
        DOCUMENT.write_text(found)
    return int(any(different for results in by_runtime.values() for different, _ in results.values()))


def _say(runtime: str, results: Results) -> None:
    for name, (different, count) in results.items():
        print(f"{runtime}, {name}: {len(different)} of {count} stories differ", flush=True)
        for key, words in different.items():
            print(f"  {key}: {first_difference(words['plain'][-1], words['attached']) if isinstance(words, dict) else words}")


if __name__ == "__main__":
    sys.exit(main())
