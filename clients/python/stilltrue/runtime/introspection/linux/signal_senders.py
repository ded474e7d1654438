"""Whether a process may send another one a signal, as its command line, script and environment show.

Rules:

1. Its command line has the other's process id as a separate number. Ids below :data:`SMALL` are also counts and levels, so with
   such an id the command line must name ``kill``, too.
2. It runs a command that sends signals (``kill``, ``pkill``, ``fuser``): the id may be in a variable, in a file or in another
   program's output, or be that of a group.
3. What it runs is a text that does so (:mod:`~stilltrue.runtime.introspection.linux.script_files`): one of a shell; one in
   Python, by such a command, by psutil, or by ``os.kill`` and an id that is its parent's or is read, not the one of what it
   has started (``child.pid``), nor its own group, unless that is the other's; one of another interpreter, if it mentions
   ``kill``.
4. A variable of its environment is the other's process id, which this process's own environment does not have.
5. It is a shell that reads its commands from another process, and is running one of them.

Rules 2 to 5 are for processes that the program has started.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from stilltrue.runtime.introspection.linux.child_processes import children_of
from stilltrue.runtime.introspection.linux.script_files import has_code, read_text, texts_run_by

SMALL = 300
TEXT_MAX = 10_000
KILLS = re.compile(rb"kill|send_signal|terminate")
_RUNS_KILL = re.compile(rb"(?:^|[\s\0;&|(`{/'\"])(?:kill|pkill|killall|skill|fuser)(?=[\s\0;)'\"`]|$)")
_SHELL = re.compile(rb"(?:ba|da|z|k|a)?sh|busybox")
_PYTHON = re.compile(rb"(?:python|pypy)[\d.]*")
_OTHERS = re.compile(rb"(?:perl|ruby|node|lua)[\d.]*")
_BY_ID = r"\bos\.kill(?:pg)?\b(?!\s*\(\s*os\.getpid\(\))|\bpidfd_send_signal\b|\bimport\b[^\n]*\bkill"
_BY_NAME = (
    r"\bpsutil\.(?:process_iter|pids)\b|\bpsutil\.Process\((?!os\.getpid\(\))(?!\)(?!\.(?:children|parents?)\b))"
    r"|\bfrom psutil\b|[\"';&|]\s*(?:\S*/)?(?:p?kill|killall|skill|fuser)(?=[\s\"'])"
)
SENDS_TO_OTHERS = f"{_BY_ID}|{_BY_NAME}"
"""What a program in Python mentions that sends a signal to another process than itself."""
_OWN = r"os\.getpid\(\)"
_PYTHON_SENDS = re.compile(_BY_ID.replace(_OWN, rf"(?:{_OWN}|[\w.]+\.pid\b)").encode())
_PYTHON_SENDS_BY_NAME = re.compile(_BY_NAME.encode())
_PYTHON_FINDS = re.compile(
    rb"\bgetppid\b|\bparent_process\b|\bint\(|\b(?:load|read|recv|get(?!pid|Logger|attr|_ident)|decode)\w*\("
)
_TO_OWN_GROUP = re.compile(rb"\bos\.kill(?:pg)?\(\s*(?:0|os\.getpgrp\(\)|os\.getpgid\(0\))\s*,")
_PROC = Path("/proc")


def command_line_of(pid: int | str) -> bytes:
    """The beginning of a process's command line; empty if it has ended."""
    return read_text(_PROC / str(pid) / "cmdline")[:TEXT_MAX]


def is_told(command_line: bytes, targets: Collection[int]) -> bool:
    """Rule 1, for a process with this command line."""
    number = re.compile(rb"(?<![\w.:-])(?:%s)(?![\w.:-])" % b"|".join(b"%d" % one for one in targets))
    return number.search(command_line) is not None and (min(targets) >= SMALL or KILLS.search(command_line) is not None)


def may_find(pid: int, command_line: bytes, targets: Collection[int]) -> bool:
    """Rules 2 to 5, for a process that the program has started."""
    if _RUNS_KILL.search(command_line) is not None:
        return True
    called, arguments = _program_of(command_line)
    if _SHELL.fullmatch(called) and not has_code(arguments) and children_of(pid):
        return True
    texts = texts_of(pid, command_line)
    if _PYTHON.fullmatch(called) and not _shares_group(pid, targets):
        texts = (_TO_OWN_GROUP.sub(b"", one) for one in texts)
    return any(_text_sends(called, one) for one in texts) or _has_in_environment(pid, targets)


def _shares_group(pid: int, targets: Collection[int]) -> bool:
    """Whether a process is in the process group of one of the others: a signal to its own group reaches that one."""
    try:
        own = os.getpgid(pid)
        return any(os.getpgid(one) == own for one in targets)
    except OSError:  # one of them has ended
        return True


def texts_of(pid: int, command_line: bytes) -> Iterator[bytes]:
    """The texts that a process runs, if it is an interpreter."""
    called, arguments = _program_of(command_line)
    python = _PYTHON.fullmatch(called) is not None
    if python or _SHELL.fullmatch(called) or _OTHERS.fullmatch(called):
        yield from texts_run_by(pid, arguments, python=python)


def _program_of(command_line: bytes) -> tuple[bytes, list[bytes]]:
    """The name of the program, and its arguments."""
    program, *arguments = command_line.rstrip(b"\0").split(b"\0")
    return program.rpartition(b"/")[2].lstrip(b"-"), arguments


def _text_sends(interpreter: bytes, text: bytes) -> bool:
    """Rule 3."""
    if _SHELL.fullmatch(interpreter):
        return _RUNS_KILL.search(text) is not None
    if _PYTHON.fullmatch(interpreter):
        by_id = _PYTHON_SENDS.search(text) is not None and _PYTHON_FINDS.search(text) is not None
        return by_id or _PYTHON_SENDS_BY_NAME.search(text) is not None
    return b"kill" in text


def _has_in_environment(pid: int, targets: Collection[int]) -> bool:
    """Rule 4."""
    ids = {b"%d" % one for one in targets}
    told = [one for one in read_text(_PROC / str(pid) / "environ").split(b"\0") if one.partition(b"=")[2] in ids]
    own = read_text(_PROC / "self/environ").split(b"\0") if told else []
    names = (one.partition(b"=") for one in told if one not in own)
    return any(int(value) >= SMALL or b"PID" in name for name, _, value in names)
