"""Child processes that may send this process a signal, by their command lines: a watchdog that this process has started.

Rules:

1. A child counts if its command line has the process id of this process as a separate number, or has ``$PPID`` or ``getppid``
   and names ``kill``. What it does with the id is not known, so it is doubt and not a way out.
2. Ids below :data:`SMALL` are also counts and levels, so with such an id the command line must name ``kill``, too.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from stilltrue.runtime.introspection.child_processes import ChildProcess, child_processes

SMALL = 300
CHILDREN_MAX = 100
TEXT_MAX = 10_000
_KILLS = re.compile(rb"kill|send_signal|terminate")
_PARENT = re.compile(rb"\$\{?PPID\b|\bgetppid\b|\bparent_process\b")
_PROC = Path("/proc")


def signalling_child() -> str:
    """The child that may send this process a signal, as a reason for doubt; empty if none is found."""
    for child in child_processes()[:CHILDREN_MAX]:
        if may_signal(_command_line_of(child), os.getpid()):
            return f"its child process {child.pid} ({child.name}) was told its process id, and may send it a signal"
    return ""


def may_signal(command_line: bytes, own: int) -> bool:
    """Whether a child with this command line may send the process ``own`` a signal (rules 1 and 2)."""
    kills = _KILLS.search(command_line) is not None
    named = re.search(rb"(?<![\w.:-])%d(?![\w.:-])" % own, command_line) is not None
    return (named and (kills or own >= SMALL)) or (kills and _PARENT.search(command_line) is not None)


def _command_line_of(child: ChildProcess) -> bytes:
    try:
        with (_PROC / str(child.pid) / "cmdline").open("rb") as file:
            return file.read(TEXT_MAX)
    except OSError:  # it has ended
        return b""
