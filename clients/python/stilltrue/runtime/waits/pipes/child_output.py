"""Waits for the end of a child process that itself waits at its standard input or output, which only this process could end.

Rules:

1. A thread waits so in ``Popen.wait()`` without a timeout (also by ``call()``) if the child and its own children stand still
   (:mod:`~stilltrue.runtime.waits.pipes.process_trees`), and one of them is blocked in ``write()`` to the pipe that is
   ``stdout`` or ``stderr`` of the ``Popen``, or in ``read()`` of the one that is ``stdin``. So the child does not end until a
   party of this process reads, writes or closes that file. A shell may be in between, and so may the programs of a pipeline.
2. All other pipes at which they wait have their other end in one of these processes.
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
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.waits.pipes.kernel import is_end, other_end_at, other_end_of, processes_at
from stilltrue.runtime.waits.pipes.process_trees import OTHER_CALL, tree_lately, tree_of
from stilltrue.runtime.waits.pipes.signallers import may_be_signalled

WHAT = "the end of its child, which waits at a pipe that only {} can use"
_PROC = Path("/proc")
CALLS_OF_CHILD = {"stdout": "write", "stderr": "write", "stdin": "read"}
"""What the child does at the other end of each of a ``Popen``'s files."""
_FRAMES_MAX = 6


@cached_by_code
def waits_for_child(code: CodeType) -> bool:
    """Whether this is the function in which a thread waits for a child of ``subprocess``."""
    return code.co_filename.replace("\\", "/").endswith("/subprocess.py") and qualname_of(code) == "Popen._try_wait"


def file_at_child(frames: Sequence[FrameType]) -> Any:
    """The file of a ``Popen`` at whose other end the child waits for whose end a thread with these frames does; else None."""
    if not frames or not waits_for_child(frames[0].f_code):
        return None
    names = variables_of(frames[0])
    outer = [variables_of(one) for one in frames[1:_FRAMES_MAX] if qualname_of(one.f_code) in ("Popen._wait", "Popen.wait")]
    if names.get("wait_flags") != 0 or any(one.get("timeout") is not None for one in outer):
        return None
    return file_of_child(names.get("self"))


def file_of_child(process: Any) -> Any:
    """The file of a ``Popen`` at whose other end its child waits; else None."""
    pid = attribute_of(process, "pid")
    if type(pid) is not int:
        return None
    for name, call in CALLS_OF_CHILD.items():
        file = attribute_of(process, name)
        descriptor = descriptor_of(file)
        end = None if descriptor is None else other_end_at(descriptor)
        if end is not None and stood_at(pid, end, call):
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


def process_of(frames: Sequence[FrameType]) -> Any:
    """The ``Popen`` for whose end a thread with these frames waits."""
    return variables_of(frames[0]).get("self")


def still_waits(process: Any) -> Callable[[], bool]:
    """A function that returns whether the child of a ``Popen`` still waits so (rules 1 to 3)."""
    pid = attribute_of(process, "pid")
    found = [(name, descriptor_of(attribute_of(process, name))) for name in CALLS_OF_CHILD]
    ends = [(CALLS_OF_CHILD[name], other_end_at(one)) for name, one in found if one is not None]

    def still() -> bool:
        return any(end is not None and stands_at(pid, end, call) and is_ours_alone(pid, end, call) for call, end in ends)

    return still


def is_ours_alone(pid: int, end: str, call: str) -> bool:
    """Rule 3. ``call``: what the child does at this ``end``."""
    tree, other = tree_of(pid), other_end_of(end)
    if tree is None or other is None or (end, call) not in tree.at or may_be_signalled(tree.processes):
        return False
    users = processes_at(other, OTHER_CALL[call])
    if (
        users is None
        or not users.issubset({*tree.processes, os.getpid()})
        or not has_single_descriptor(other, OTHER_CALL[call])
    ):
        return False
    return tree.is_closed(but={(end, call)})


def has_single_descriptor(end: str, call: str) -> bool:
    """Whether this process has one descriptor of an end at which ``call`` is possible."""
    every = os.listdir(_PROC / "self/fd")  # noqa: PTH208 - names are enough
    return sum(is_end("self", one, end, call) for one in every) == 1


def stands_at(pid: int, end: str, call: str) -> bool:
    """Whether a child stands still (rules 1 and 2), and one of its tree is in ``call`` at this end."""
    tree = tree_of(pid)
    return tree is not None and (end, call) in tree.at


def stood_at(pid: int, end: str, call: str) -> bool:
    """The same just before, which is all that a cut asks."""
    tree = tree_lately(pid)
    return tree is not None and (end, call) in tree.at


def are_of_child(found: frozenset[int] | None, pid: int) -> bool:
    """Whether these processes are of the tree of a child that stands still, and there are some."""
    tree = tree_of(pid)
    return tree is not None and tree.has_all(found)
