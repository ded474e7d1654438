"""Forks at any moment after the agent's start: the children make their own channels and calls."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from stilltrue.runtime.membership import process_hooks

FORKS = """
import os, signal, sys, time
import stilltrue
detector, target, forks, gap_seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
agent = stilltrue.Agent("parent", detector=detector, backoff_seconds_max=0.05).start()
CHILD_SECONDS_MAX = 30
children, ends = {}, {"worked": 0, "failed": 0, "hang": 0}
def wait(few):
    while len(children) > few:
        for pid, since in list(children.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                ends["failed" if status else "worked"] += 1
            elif time.monotonic() - since > CHILD_SECONDS_MAX:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                ends["hang"] += 1
            else:
                continue
            del children[pid]
        time.sleep(0.002)
for n in range(forks):
    wait(6)
    time.sleep(gap_seconds * (n % 11) / 10)
    pid = os.fork()
    if pid == 0:
        import grpc
        reply = grpc.insecure_channel(target).unary_unary("/echo.Echo/Echo")(b"a", timeout=25)
        os._exit(reply != b"a")
    children[pid] = time.monotonic()
wait(0)
print(ends, flush=True)
os._exit(0)
"""


class Echo(grpc.GenericRpcHandler):
    def service(self, handler_call_details: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(lambda request, _context: request)


@pytest.fixture
def echo() -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(4), handlers=[Echo()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(0)


def _ends(detector: str, target: str, forks: int, gap_seconds: float) -> str:
    command = [sys.executable, "-c", FORKS, detector, target, str(forks), str(gap_seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        return f"ended with {done.returncode}: {done.stderr[-3000:]}"
    return done.stdout.strip() or done.stderr


@pytest.mark.longer
def test_forked_children_can_call_while_no_detector_answers(echo: str) -> None:
    assert _ends("127.0.0.1:1", echo, 200, 0.02) == str({"worked": 200, "failed": 0, "hang": 0})


@pytest.mark.longer
def test_forked_children_can_call_while_the_agent_joins(echo: str, detector: Any) -> None:
    assert _ends(detector.address, echo, 200, 0.1) == str({"worked": 200, "failed": 0, "hang": 0})


def test_the_child_of_a_fork_right_after_the_start_can_call(echo: str) -> None:
    assert _ends("127.0.0.1:1", echo, 30, 0.004) == str({"worked": 30, "failed": 0, "hang": 0})


PARENT = """
import os, random, sys, time
import stilltrue
stilltrue.Agent("parent", detector="127.0.0.1:1", backoff_seconds_max=0.02).start()
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    time.sleep(random.random() * 0.02)
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
os._exit(0)
"""


@pytest.mark.longer
@pytest.mark.not_in_ci
def test_a_program_that_forks_often_is_not_aborted_by_the_end_of_a_session() -> None:
    """It was, once in some thousand forks, by gRPC's core: on a busy machine more often."""
    every = [subprocess.Popen([sys.executable, "-c", PARENT, "25"], stderr=subprocess.PIPE) for _ in range(4)]
    ended = [(one.communicate(timeout=120)[1][-300:], one.returncode) for one in every]
    assert [(text, code) for text, code in ended if code] == []


class Tasks:
    """Stands for ``/proc/self/task``, with other threads at each look."""

    def __init__(self, room: Path, looks: list[dict[int, str]]) -> None:
        self.room, self.looks, self.seen = room, looks, 0

    def iterdir(self) -> list[Path]:
        now = self.looks[min(self.seen, len(self.looks) - 1)]
        self.seen += 1
        for task, stat in now.items():
            (self.room / str(task)).mkdir(exist_ok=True)
            (self.room / str(task) / "stat").write_text(f"{task} {stat} 1 1", "ascii")
        return [self.room / str(task) for task in (*now, 99)]  # 99 has just ended


MAIN = {1: "(py (S) x) R"}
ENDING = {**MAIN, 2: "(event_engine) R", 3: "(lifeguard) S"}
ASLEEP = {**MAIN, 2: "(event_engine) S", 3: "(lifeguard) S"}
OTHER = {**MAIN, 4: "(event_engine) S"}


@pytest.mark.parametrize(
    ("version", "looks", "seen"),
    [
        ("1.62.3", [ENDING, ENDING, ENDING, MAIN], 5),
        ("1.62.3", [MAIN], 2),
        ("1.65.5", [ENDING, ASLEEP], 3),
        ("1.62.3", [ASLEEP, OTHER], 3),
        ("1.66.0", [ENDING], 0),
        ("1.100.0", [ENDING], 0),
        ("unknown", [ENDING], 0),
    ],
)
def test_a_fork_waits_for_the_end_of_an_old_event_engine(
    version: str, looks: list[dict[int, str]], seen: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = Tasks(tmp_path, looks)
    monkeypatch.setattr(grpc, "__version__", version)
    monkeypatch.setattr(process_hooks, "_TASKS", tasks)
    monkeypatch.setattr(process_hooks, "ENGINE_SECONDS_MAX", 60.0)
    process_hooks.await_engine()
    assert tasks.seen == seen


@pytest.mark.parametrize("tasks", ["busy", "none"])
def test_a_fork_does_not_wait_long_for_an_engine_that_stays_busy(
    tasks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc, "__version__", "1.62.3")
    monkeypatch.setattr(process_hooks, "_TASKS", Tasks(tmp_path, [ENDING]) if tasks == "busy" else tmp_path / "none")
    process_hooks.await_engine()
