"""Forks at any moment after the agent's start: the children make their own channels and calls."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

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
