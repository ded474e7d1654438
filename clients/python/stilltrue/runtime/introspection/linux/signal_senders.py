"""Whether a process may send another one a signal, as its command line, script and environment show.

Rules:

1. Its command line has the other's process id as a separate number. Ids below :data:`SMALL` are also counts and levels, so with
   such an id the command line must name ``kill``, too.
2. It runs a command that sends signals (``kill``, ``pkill``, ``fuser``): the id may be in a variable, in a file or in another
   program's output, or be that of a group.
3. It runs a script whose text does so: one of a shell; of Python, by ``os.kill`` or psutil and with an id that is its parent's
   or is read from text; of another interpreter, if it mentions ``kill``.
4. A variable of its environment is the other's process id, which this process's own environment does not have.
5. It is a shell that reads its commands from another process, and is running one of them.

Rules 2 to 5 are for processes that the program has started.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection
from pathlib import Path

from stilltrue.runtime.introspection.linux.child_processes import children_of

SMALL = 300
TEXT_MAX, SCRIPT_MAX = 10_000, 64 * 1024
KILLS = re.compile(rb"kill|send_signal|terminate")
_RUNS_KILL = re.compile(rb"(?:^|[\s\0;&|(`{/'\"])(?:kill|pkill|killall|skill|fuser)(?=[\s\0;)'\"`]|$)")
_SHELL = re.compile(rb"(?:ba|da|z|k|a)?sh|busybox")
_PYTHON = re.compile(rb"(?:python|pypy)[\d.]*")
_OTHERS = re.compile(rb"(?:perl|ruby|node|lua)[\d.]*")
_GIVES_CODE = re.compile(rb"-[A-Za-z]*[cm]|-[a-z]*e")
_PYTHON_SENDS = re.compile(rb"\bos\.killp?g?\b|\bpidfd_send_signal\b|\bimport\b[^\n]*\bkill|\bpsutil\.Process\(")
_PYTHON_FINDS = re.compile(rb"\bgetppid\b|\bparent_process\b|\bint\(")
_PROC = Path("/proc")


def command_line_of(pid: int | str) -> bytes:
    """The beginning of a process's command line; empty if it has ended."""
    return _read(_PROC / str(pid) / "cmdline", TEXT_MAX)


def is_told(command_line: bytes, targets: Collection[int]) -> bool:
    """Rule 1, for a process with this command line."""
    number = re.compile(rb"(?<![\w.:-])(?:%s)(?![\w.:-])" % b"|".join(b"%d" % one for one in targets))
    return number.search(command_line) is not None and (min(targets) >= SMALL or KILLS.search(command_line) is not None)


def may_find(pid: int, command_line: bytes, targets: Collection[int]) -> bool:
    """Rules 2 to 5, for a process that the program has started."""
    if _RUNS_KILL.search(command_line) is not None:
        return True
    program, *arguments = command_line.rstrip(b"\0").split(b"\0")
    called = program.rpartition(b"/")[2].lstrip(b"-")
    script = next((one for one in arguments if not one.startswith(b"-")), b"")
    if any(map(_GIVES_CODE.fullmatch, arguments[: arguments.index(script)] if script else arguments)):
        script = b""  # its code is in the command line
    elif _SHELL.fullmatch(called) and not script and children_of(pid):
        return True
    return bool(script and _script_sends(called, _text_of(pid, script))) or _has_in_environment(pid, targets)


def _script_sends(interpreter: bytes, text: bytes) -> bool:
    """Rule 3."""
    if _SHELL.fullmatch(interpreter):
        return _RUNS_KILL.search(text) is not None
    if _PYTHON.fullmatch(interpreter):
        return _PYTHON_SENDS.search(text) is not None and _PYTHON_FINDS.search(text) is not None
    return _OTHERS.fullmatch(interpreter) is not None and b"kill" in text


def _text_of(pid: int, script: bytes) -> bytes:
    """The text of a script, whose name may be relative to where its process runs."""
    path = Path(script.decode(errors="surrogateescape"))
    there = _PROC / str(pid) / "cwd" / path
    with contextlib.suppress(OSError):  # its name is too long for a file's
        return _read(there, SCRIPT_MAX) if there.is_file() else b""
    return b""


def _has_in_environment(pid: int, targets: Collection[int]) -> bool:
    """Rule 4."""
    ids = {b"%d" % one for one in targets}
    told = [one for one in _read(_PROC / str(pid) / "environ", SCRIPT_MAX).split(b"\0") if one.partition(b"=")[2] in ids]
    own = _read(_PROC / "self/environ", SCRIPT_MAX).split(b"\0") if told else []
    names = (one.partition(b"=") for one in told if one not in own)
    return any(int(value) >= SMALL or b"PID" in name for name, _, value in names)


def _read(path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(most)
    except OSError:  # it has ended, or belongs to another user
        return b""
