"""A client process of a scene: threads that call one method repeatedly, and single calls on demand."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import grpc

from detector.demo.scene import Load
from detector.demo.servers import path_of
from stilltrue import Agent

STATS_SECONDS = 0.25


class Callers:
    """Calls ``load.method`` from the number of threads that the harness sets, and prints counts four times a second."""

    port = 0

    def __init__(self, agent: Agent, load: Load) -> None:
        """Does not call before :meth:`dial`."""
        self._agent = agent
        self._load = load
        self._threads = 0
        self._wanted = load.threads
        self._channels: dict[str, grpc.Channel] = {}
        self._lock = threading.Lock()
        self._done = 0
        self._failed = 0
        self._waiting = 0
        self._at_work = 0
        agent.idle()

    def dial(self, addresses: dict[str, str]) -> None:
        """Connect to the services without calling yet."""
        self._channels = {n: self._agent.channel(grpc.insecure_channel(address)) for n, address in addresses.items()}
        threading.Thread(target=self._print_stats, daemon=True, name="stats").start()

    def obey(self, command: dict[str, Any]) -> None:
        """Obey a command of the harness.

        ``{"begin": true}``: call as the scene describes; ``{"threads": n}``: call from n threads;
        ``{"call": {"method", "count", "strength"}}``: make ``count`` calls at once.
        """
        match command:
            case {"threads": int(wanted)}:
                self._wanted = wanted
                self._start()
            case {"begin": True}:
                self._start()
            case {"call": {"method": str(method), "count": int(count), "strength": int(strength)}}:
                for index in range(count):
                    threading.Thread(target=self._call, args=(method, strength), daemon=True, name=f"{method}-{index}").start()
            case _:
                raise ValueError(f"unknown command for a caller: {command}")

    def stop(self) -> None:
        """Stop calling."""
        self._wanted = 0
        self._agent.close()

    def _start(self) -> None:
        while self._threads < self._wanted:
            self._threads += 1
            self._begin(f"caller-{self._threads}", self._call_repeatedly, self._threads)
        self._threads = min(self._threads, self._wanted)

    def _begin(self, name: str, work: Callable[..., None], *arguments: Any) -> None:
        """Run ``work`` on a thread; the process is active while such threads run, since they call spontaneously."""
        with self._lock:
            self._at_work += 1
            self._agent.active()

        def run() -> None:
            try:
                work(*arguments)
            finally:
                with self._lock:
                    self._at_work -= 1
                    if not self._at_work:
                        self._agent.idle()

        threading.Thread(target=run, daemon=True, name=name).start()

    def _call_repeatedly(self, index: int) -> None:
        while index <= self._wanted:
            self._call(self._load.method, 0)
            time.sleep(self._load.pause)

    def _call(self, method: str, strength: int) -> None:
        service, path = path_of(method)
        with self._lock:
            self._waiting += 1
        ok = True
        try:
            stub: Any = self._channels[service].unary_unary(path)
            stub(str(strength).encode(), timeout=self._load.timeout)
        except grpc.RpcError:
            ok = False
        with self._lock:
            self._waiting -= 1
            self._done += ok
            self._failed += not ok

    def _print_stats(self) -> None:
        while True:
            time.sleep(STATS_SECONDS)
            with self._lock:
                stats = {"done": self._done, "failed": self._failed, "waiting": self._waiting}
            print(json.dumps(stats), flush=True)  # noqa: T201 (the harness reads it)
