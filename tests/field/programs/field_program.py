"""What every program of the field catalogue uses: it joins the detector, meets its other processes, and says when it is set up.

``python PROGRAM.py MODE [PROCESS]``: ``stuck`` is the published deadlock; every other mode is a near miss. The environment
names the detector, the servers, and the folder in which the processes of one run meet.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import stilltrue

MODE = sys.argv[1]
PROCESS = sys.argv[2] if len(sys.argv) > 2 else ""
POSTGRES = os.environ.get("FIELD_POSTGRES", "")
"""A database of this run's own: ``postgresql://...``."""
REDIS = os.environ.get("FIELD_REDIS", "")
"""An empty database of a Redis server: ``redis://...``."""
MEETING = Path(os.environ.get("FIELD_MEETING", "."))
MEET_SECONDS_MAX = 60.0
FAR_SECONDS = 600.0
"""When what would help a near miss comes: long after the test."""


def service(name: str) -> str:
    """The name of a service in this mode: a near miss runs beside the published program, under the same detector."""
    return name if MODE == "stuck" else f"{name}-{MODE.replace('_', '-')}"


def join(name: str, **settings: Any) -> Any:
    """Join as the only process of service ``name``: what a program does in its first line. Returns the agent."""
    joined = stilltrue.instrument(service(name), instance=service(name), **settings)
    joined.start()
    return joined


def agent(name: str, **settings: Any) -> stilltrue.Agent:
    """One more agent in this process, for a process that is played by its threads."""
    joined = stilltrue.Agent(service(name), instance=service(name), **settings)
    joined.start()
    return joined


def publish(name: str, value: str) -> None:
    """Tell the other processes of this run ``value``, an address mostly."""
    MEETING.mkdir(parents=True, exist_ok=True)
    new = MEETING / f".{name}.{os.getpid()}.{threading.get_ident()}"  # several threads of a process may be first
    new.write_text(value)
    new.replace(MEETING / name)


def published(name: str) -> str:
    """What another process of this run has published; waits for it."""
    end = time.monotonic() + MEET_SECONDS_MAX
    while not (MEETING / name).exists():
        if time.monotonic() > end:
            raise TimeoutError(f"nobody published {name}")
        time.sleep(0.01)
    return (MEETING / name).read_text()


def meet(*names: str, at: str = "start") -> None:
    """Wait until all these processes of the run have come here."""
    publish(f"{at}.{PROCESS}", "")
    for name in names:
        published(f"{at}.{name}")


def begin(run: Callable[..., Any], *arguments: Any, name: str = "") -> threading.Thread:
    """Start a thread that does not keep the program alive."""
    thread = threading.Thread(target=run, args=arguments, daemon=True, name=name or None)
    thread.start()
    return thread


def end_with_parent() -> None:
    """Let the system kill this process, which the program has started itself, once its parent has ended."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def ready() -> None:
    """Say that the scene is set: nothing more happens by the program's own doing but what its mode has yet to come."""
    print("ready", flush=True)


def stay() -> None:
    """Stay until the test is over: it closes our standard input, or kills us."""
    ready()
    sys.stdin.read()
