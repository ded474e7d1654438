"""Child processes that may send this process a signal: a watchdog that this process has started.

Rules:

1. A child counts if its command line has the process id of this process as a separate number, or has ``$PPID`` or ``getppid``
   and names ``kill``. What it does with the id is not known, so it is doubt and not a way out. An orphan of the program counts
   as well: a shell leaves ``(sleep 9; kill PID) &`` behind.
2. A child that runs this program (a fork, or a process of ``multiprocessing``) has no command line of its own. It counts if the
   program's own files mention sending a signal, and giving a child the process id or asking for the parent. Many programs only
   log their process id, or send signals to their children.
3. Ids below :data:`SMALL` are also counts and levels, so with such an id the command line must name ``kill``, too.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from stilltrue.runtime.introspection.linux.child_processes import child_processes, orphans, process_at
from stilltrue.runtime.waits.databases.source_search import Mentions

SMALL = 300
CHILDREN_MAX = 100
TEXT_MAX = 10_000
_KILLS = re.compile(rb"kill|send_signal|terminate")
_PARENT = re.compile(rb"\$\{?PPID\b|\bgetppid\b|\bparent_process\b")
_PROC = Path("/proc")
_SENDS = Mentions(
    r"\bos\.kill(pg)?\b|\bpidfd_send_signal\b|from os import[^\n]*\bkill"
    r"|psutil\.Process\([^)\n]*\)\.(kill|terminate|send_signal)",
    own_only=True,
)
_HANDS_ON = Mentions(
    r"\bargs\s*=\s*[(\[][^\n]*\bgetpid\(|(?-i:\b[A-Z]\w*)\((os\.)?getpid\(|\bgetppid\b|\bparent_process\b", own_only=True
)
"""Mentions of giving a child the process id, or of a child that asks for its parent."""


def signalling_child() -> str:
    """The child that may send this process a signal, as a reason for doubt; empty if none is found."""
    own = _command_line_of("self")
    itself, children = process_at(os.getpid()), child_processes()[:CHILDREN_MAX]
    known = {child.pid for child in children}
    orphaned = [] if itself is None else orphans(itself.started, known)[:CHILDREN_MAX]
    for child in (*children, *orphaned):
        line, text = _command_line_of(str(child.pid)), f"its child process {child.pid} ({child.name})"
        if may_signal(line, os.getpid()):
            return f"{text} was told its process id, and may send it a signal"
        if (line == own or b"multiprocessing" in line) and _program_signals():
            return f"{text} runs the same program, and may send it a signal: {_SENDS.found or 'its files are not yet read'}"
    return ""


def _program_signals() -> bool:
    """Whether the program's own files mention both, or are not yet all read (rule 2)."""
    complete = _SENDS.search() and _HANDS_ON.search()
    return not complete or bool(_SENDS.found and _HANDS_ON.found)


def may_signal(command_line: bytes, own: int) -> bool:
    """Whether a child with this command line may send the process ``own`` a signal (rules 1 and 3)."""
    kills = _KILLS.search(command_line) is not None
    named = re.search(rb"(?<![\w.:-])%d(?![\w.:-])" % own, command_line) is not None
    return (named and (kills or own >= SMALL)) or (kills and _PARENT.search(command_line) is not None)


def _command_line_of(pid: str) -> bytes:
    try:
        with (_PROC / pid / "cmdline").open("rb") as file:
            return file.read(TEXT_MAX)
    except OSError:  # it has ended
        return b""
