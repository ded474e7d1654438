"""Child processes that may send this process a signal: a watchdog that this process has started.

Rules:

1. A child counts if its command line has the process id of this process as a separate number, or has ``$PPID`` or ``getppid``
   and names ``kill``; or if it may find the id otherwise (:mod:`~stilltrue.runtime.introspection.linux.signal_senders`). What
   it does with the id is not known, so it is doubt and not a way out. An orphan of the program counts as well: a shell leaves
   ``(sleep 9; kill PID) &`` behind. So does any other process whose command line has the id and names ``kill``: a daemon.
2. A child that runs this program (a fork, or a process of ``multiprocessing``) has no command line of its own. It counts if the
   program's own files mention sending a signal to another process, and giving a child the process id, keeping it in a variable,
   a file or shared memory, or asking for the parent. Many programs only log their id, or send signals to their children.
"""

from __future__ import annotations

import os
import re

from stilltrue.runtime.introspection.linux.child_processes import all_processes, child_processes, orphans, process_at
from stilltrue.runtime.introspection.linux.signal_senders import KILLS, SENDS_TO_OTHERS, command_line_of, is_told, may_find
from stilltrue.runtime.waits.databases.source_search import Mentions

CHILDREN_MAX = 100
_PARENT = re.compile(rb"\$\{?PPID\b|\bgetppid\b|\bparent_process\b")
_SENDS = Mentions(SENDS_TO_OTHERS, own_only=True)
_HANDS_ON = Mentions(
    r"\bargs\s*=\s*[(\[][^\n]*\bgetpid\(|(?-i:\b[A-Z]\w*)\((os\.)?getpid\(|\bgetppid\b|\bparent_process\b"
    r"|=\s*(os\.)?getpid\(|\b(write\w*|dumps?|set|put|send)\([^\n]*\bgetpid\(|\bkill\(\s*(int\(|0\b)|\bgetpg(rp|id)\("
    r"|\bpsutil\.(process_iter|pids)\b|\.parents?\(\)|[\"']\s*(p?kill|killall)\b",
    own_only=True,
)
"""Mentions of giving a child the process id, of keeping it where one may find it, or of a child that asks for its parent."""


def signalling_child() -> str:
    """The child that may send this process a signal, as a reason for doubt; empty if none is found."""
    own, itself, children = command_line_of("self"), process_at(os.getpid()), child_processes()[:CHILDREN_MAX]
    known = {child.pid for child in children}
    orphaned = [] if itself is None else orphans(itself.started, known)[:CHILDREN_MAX]
    for child in (*children, *orphaned):
        line, text = command_line_of(child.pid), f"its child process {child.pid} ({child.name})"
        if may_signal(line, os.getpid()):
            return f"{text} was told its process id, and may send it a signal"
        if line == own or b"multiprocessing" in line:
            if _program_signals():
                return f"{text} runs the same program, and may send it a signal: {_SENDS.found or 'its files are not yet read'}"
        elif may_find(child.pid, line, (os.getpid(),)):
            return f"{text} may find its process id, and send it a signal"
    known.update((os.getpid(), *(one.pid for one in orphaned)))
    for pid in all_processes():
        line = b"" if pid in known else command_line_of(pid)
        if line and KILLS.search(line) and is_told(line, (os.getpid(),)):
            return f"process {pid} has its process id, and may send it a signal"
    return ""


def _program_signals() -> bool:
    """Whether the program's own files mention both, or are not yet all read (rule 2)."""
    complete = _SENDS.search() and _HANDS_ON.search()
    return not complete or bool(_SENDS.found and _HANDS_ON.found)


def may_signal(command_line: bytes, own: int) -> bool:
    """Whether a child with this command line may send the process ``own`` a signal, by rule 1."""
    asks = KILLS.search(command_line) is not None and _PARENT.search(command_line) is not None
    return asks or is_told(command_line, (own,))
