"""Waits for the end of a child process that itself waits at its standard input or output, which only this process could end.

Rules:

1. A thread waits so in ``Popen.wait()`` without a timeout (also by ``call()``) if the child has one thread, no children, and is
   blocked in ``write()`` to the pipe that is ``stdout`` or ``stderr`` of the ``Popen``, or in ``read()`` of the one that is
   ``stdin``. So it neither ends nor closes anything, until a party of this process reads, writes or closes that file. A shell
   that waits for such a child, its only one, does not go on either.
2. The child must not be about to be interrupted: it has no timer that Linux shows, and no handler for those that it does not
   show. An alarm without a handler in a child that has no agent is not seen: an assumption.
3. No other process may have the pipe's other end open, and this one has a single descriptor of it. This is asked at the second
   look, as it reads the descriptors of all processes, and so is whether one of them may send the child a signal
   (:mod:`~stilltrue.runtime.waits.pipes.signallers`).
4. Whoever can reach the file, by whatever leads to it, may use it. Others are known by name: those that send signals.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.bytecode.qualified_names import qualname_of
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.linux.child_processes import all_processes, parent_of
from stilltrue.runtime.introspection.linux.child_threads import may_be_interrupted
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.waits.pipes.kernel import other_end_at, own_end_at, processes_at
from stilltrue.runtime.waits.pipes.signallers import may_be_signalled

WHAT = "the end of its child, which waits at a pipe that only {} can use"
_PROC = Path("/proc")
CALLS_OF_CHILD = {"stdout": "write", "stderr": "write", "stdin": "read"}
"""What the child does at the other end of each of a ``Popen``'s files."""
OTHER_CALL = {"read": "write", "write": "read"}
_CALLS = {
    ("x86_64", "read"): (0, 19),
    ("x86_64", "write"): (1, 20),
    ("aarch64", "read"): (63, 65),
    ("aarch64", "write"): (64, 66),
}
"""Also ``readv()`` and ``writev()``."""
WAIT4 = {"x86_64": 61, "aarch64": 260}
_FRAMES_MAX, _CHAIN_MAX = 6, 4


@cached_by_code
def waits_for_child(code: CodeType) -> bool:
    """Whether this is the function in which a thread waits for a child of ``subprocess``."""
    return code.co_filename.replace("\\", "/").endswith("/subprocess.py") and qualname_of(code) == "Popen._try_wait"


def file_at_child(frames: Sequence[FrameType]) -> Any:
    """The file of a ``Popen`` at whose other end the child waits for whose end a thread with these frames does; else None."""
    if not frames or not waits_for_child(frames[0].f_code):
        return None
    names = variables_of(frames[0])
    process = names.get("self")
    pid = attribute_of(process, "pid")
    outer = [variables_of(one) for one in frames[1:_FRAMES_MAX] if qualname_of(one.f_code) in ("Popen._wait", "Popen.wait")]
    if names.get("wait_flags") != 0 or type(pid) is not int or any(one.get("timeout") is not None for one in outer):
        return None
    for name, call in CALLS_OF_CHILD.items():
        file = attribute_of(process, name)
        descriptor = descriptor_of(file)
        end = None if descriptor is None else other_end_at(descriptor)
        if end is not None and stands_at(pid, end, call):
            return file
    return None


def descriptor_of(file: Any) -> int | None:
    """The descriptor of an open file of ``io``'s own classes."""
    if compat.module_of(type(file)) != "_io":
        return None
    try:
        return int(file.fileno())
    except (OSError, ValueError):  # closed, or detached
        return None


def parts_of(file: Any) -> list[Any]:
    """The file and the files within it, any of which may be used."""
    found = [file] if compat.module_of(type(file)) == "_io" else []
    for name in ("buffer", "raw"):
        inner = getattr(found[-1], name, None) if found else None
        found += [inner] if inner is not None and compat.module_of(type(inner)) == "_io" else []
    return found


def still_waits(frames: Sequence[FrameType]) -> Callable[[], bool]:
    """A function that returns whether the child of a thread with these frames still waits so (rules 1 to 3)."""
    process = variables_of(frames[0]).get("self")
    pid = attribute_of(process, "pid")
    found = [(name, descriptor_of(attribute_of(process, name))) for name in CALLS_OF_CHILD]
    ends = [(CALLS_OF_CHILD[name], other_end_at(one)) for name, one in found if one is not None]

    def still() -> bool:
        return any(end is not None and stands_at(pid, end, call) and is_ours_alone(pid, end, call) for call, end in ends)

    return still


def is_ours_alone(pid: int, end: str, call: str) -> bool:
    """Rule 3, and that the child has no other children. ``call``: what it does at this ``end``."""
    every = [int(one) for one in os.listdir(_PROC / "self/fd")]  # noqa: PTH208 - names are enough
    own = [one for one in every if other_end_at(one) == end]
    chain = chain_of(pid)
    parents = [parent for one in all_processes() if (parent := parent_of(one)) in chain]
    if len(own) != 1 or sorted(parents) != sorted(chain[:-1]) or may_be_signalled(chain):
        return False
    name = own_end_at(own[0])
    return name is not None and processes_at(name, OTHER_CALL[call]) == frozenset({os.getpid()})


def stands_at(pid: int, end: str, call: str) -> bool:
    """Whether a child with one thread is blocked in ``call`` at this ``end``, and will not be interrupted (rules 1 and 2)."""
    *shells, last = chain_of(pid)
    try:
        number, descriptor, *_ = _system_call_of(last)
        if not is_call(number, call) or str((_PROC / str(last) / "fd" / str(descriptor)).readlink()) != end:
            return False
        return all(map(_is_not_interrupted, (*shells, last)))
    except (OSError, ValueError):  # it has ended, it runs, or the system does not show it
        return False


def are_of_child(found: frozenset[int] | None, pid: int) -> bool:
    """Whether these processes are the child and what it waits for, and nobody else."""
    return bool(found) and frozenset(chain_of(pid)).issuperset(found or ())


def chain_of(pid: int) -> tuple[int, ...]:
    """A child and, if it is a shell that waits for its only child, that one, and so on (rule 1)."""
    chain = [pid]
    try:
        while len(chain) < _CHAIN_MAX and _waits_for_any_child(chain[-1]):
            (only,) = (_PROC / str(chain[-1]) / "task" / str(chain[-1]) / "children").read_text().split()
            chain.append(int(only))
    except (OSError, ValueError):  # as above, or it has several
        pass
    return tuple(chain)


def _waits_for_any_child(pid: int) -> bool:
    number, _, _, options, *_ = _system_call_of(pid)
    return number == WAIT4.get(os.uname().machine) and options == 0


def _system_call_of(pid: int) -> tuple[int, ...]:
    number, *arguments = (_PROC / str(pid) / "syscall").read_text().split()
    return (int(number), *(int(one, 16) for one in arguments))


def _is_not_interrupted(pid: int) -> bool:
    return [one.name for one in (_PROC / str(pid) / "task").iterdir()] == [str(pid)] and not may_be_interrupted(pid)


def is_call(number: int, call: str) -> bool:
    """Whether a system call of this number is one to ``call``: to read, or to write."""
    return number in _CALLS.get((os.uname().machine, call), ())
