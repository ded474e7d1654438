"""An application under uvicorn that asks itself with a lock in hand, and looks at its stuck requests: one process."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import stilltrue
from stilltrue import Agent
from stilltrue.model import PartyName, SnapshotId, WaitNumber
from stilltrue.protocol.report import Report
from stilltrue.protocol.requests.look import LookRequest, Suspect
from stilltrue.runtime.look.budget import SECONDS_MAX

agent = stilltrue.instrument(service="bench", instance="bench", enabled=True, detector="127.0.0.1:1")

import uvicorn  # noqa: E402

PROGRAMS = Path(__file__).parents[1] / "http" / "programs"
PATIENCE_SECONDS = 120.0
STUCK = 3
LOOKS = 7


def report_of(agent: Agent) -> Report:
    """A cut, once all requests are stuck."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        report = agent.live.marked(SnapshotId(agent.live.recorder.colour + 1))
        if report is not None and len({wait.waiter for wait in report.waits}) >= STUCK:
            return report
        time.sleep(0.05)
    raise TimeoutError("the requests are not stuck")


def measure(url: str) -> None:
    """Have requests stuck, and look at them."""
    whole = f"{url}/hold?next={quote(f'{url}/pass?next=' + quote(f'{url}/take', safe=''), safe='')}"
    threading.Thread(target=ask, args=(whole,), daemon=True).start()
    report = report_of(agent)
    waits: dict[PartyName, list[WaitNumber]] = {}
    for wait in report.waits:
        waits.setdefault(wait.waiter, []).append(wait.number)
    suspects = tuple(Suspect(party=party, waits=tuple(numbers)) for party, numbers in waits.items())
    took: list[float] = []
    for _ in range(LOOKS):
        begun = time.thread_time()
        look = agent.looker().look(LookRequest(snapshot=report.snapshot, suspects=suspects))
        took.append(time.thread_time() - begun)
    later = sorted(took[1:])[len(took) // 2]
    doubts = [one.doubt for one in look.parties if one.doubt]
    print(f"the first look: {took[0] * 1e3:.0f} ms of processor time, a later one: {later * 1e3:.0f} ms")
    print(f"of the bound on a look: {took[0] / SECONDS_MAX:.2f} and {later / SECONDS_MAX:.2f}")
    print(f"{len(look.parties)} parties; {doubts or 'nothing in doubt'}", flush=True)
    os._exit(0)


def ask(url: str) -> None:
    """Ask, and be left waiting."""
    with suppress(OSError):
        urllib.request.urlopen(url, timeout=PATIENCE_SECONDS).read()


if __name__ == "__main__":
    sys.path.insert(0, str(PROGRAMS))
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config("cycle_asgi:app", log_level="error"))
    threading.Thread(target=measure, args=(f"http://127.0.0.1:{listener.getsockname()[1]}",), daemon=True).start()
    server.run([listener])
