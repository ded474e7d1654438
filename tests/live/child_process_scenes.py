"""A service whose handler starts a child process and answers; later the child calls the service.

``python child_process_scenes.py HOW``: ``subprocess``, ``system``, ``background`` (a shell's child that has lost its parent),
``daemon`` (one in a session of its own), ``spawn``, ``forkserver``, or ``fed``: the child is there from the start, and the
handler gives it work through a pipe. Each line of input goes one step on: a first call; a call whose handler starts the
child; the child's call; the child's end. A line of output tells that the step is done.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from stilltrue import Agent

HOW = sys.argv[1]
FOLDER = Path(os.environ["CHILD_FOLDER"])
"""Files in it tell the child what to do."""
CHILD_SECONDS_MAX = 120.0
"""A child outlives a test that fails by this much at most."""
STARTED: list[subprocess.Popen[bytes]] = []


def wait_for(name: str) -> None:
    end = time.monotonic() + CHILD_SECONDS_MAX
    while not (FOLDER / name).exists() and time.monotonic() < end:
        time.sleep(0.01)


def work(address: str) -> None:
    """The child, which has nothing to do with gRPC until it calls."""
    wait_for("call")
    agent = Agent(service="worker", instance="worker", reactive=True)
    agent.start()
    with grpc.insecure_channel(address) as channel:
        done: Any = agent.channel(channel, address).unary_unary("/s/Done")
        done(b"")
        wait_for("end")
    agent.close()


def child_command(address: str) -> list[str]:
    return [sys.executable, __file__, "child", address]


def start_child(address: str) -> None:
    command = child_command(address)
    if HOW == "fed":
        pipe: Any = STARTED[0].stdin
        pipe.write(b"work\n")
        pipe.flush()
    elif HOW == "subprocess":
        STARTED.append(subprocess.Popen(command))
    elif HOW in ("background", "daemon"):
        os.system(f"{'setsid' if HOW == 'daemon' else ''} {' '.join(command)} & true")
    elif HOW == "system":
        threading.Thread(target=os.system, args=(" ".join(command),), daemon=True).start()
    else:
        context: Any = multiprocessing.get_context(HOW)
        context.Process(target=work, args=(address,)).start()


@contextmanager
def serving(agent: Agent) -> Iterator[str]:
    def place(request: bytes, _: Any) -> bytes:
        start_child(address)
        return request

    def done(request: bytes, _: Any) -> bytes:
        print("worked", flush=True)
        return request

    server = grpc.server(agent.pool(ThreadPoolExecutor(4)), interceptors=[agent.server_interceptor()])
    methods: dict[str, Any] = {"Ping": lambda request, _: request, "Place": place, "Done": done}
    handlers: Any = {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", handlers),))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield address
    server.stop(0).wait()


def main() -> None:
    agent = Agent(service="front", instance="front", reactive=True)
    agent.start()
    with serving(agent) as address, grpc.insecure_channel(address) as client:  # the client has no agent
        if HOW == "fed":
            STARTED.append(subprocess.Popen([*child_command(address), "fed"], stdin=subprocess.PIPE))
        for method in ("/s/Ping", "/s/Place"):
            sys.stdin.readline()
            call: Any = client.unary_unary(method)
            call(b"")
            print("called", flush=True)
        for name in ("call", "end"):
            sys.stdin.readline()
            (FOLDER / name).touch()
        sys.stdin.readline()


if __name__ == "__main__":
    if HOW == "child":
        if sys.argv[3:] == ["fed"]:
            sys.stdin.readline()
        work(sys.argv[2])
    else:
        main()
