"""Reads other threads' frames safely: the only module that accesses frames' variables and callers.

Rules:

1. No collection runs meanwhile. Before Python 3.12 making a frame object or its dictionary may start one; a finalizer may then
   let the thread go on, and the frame that is being read is freed under its reader (a segmentation fault). Before 3.13 a
   finalizer that runs inside ``sys._current_frames()`` can stop the process for good (gh-106883).
2. Nothing is left behind. Before Python 3.13 a frame keeps the dictionary of its variables once somebody has asked for it: it
   would keep alive what the application has let go of, and the next read would run finalizers. It is emptied again, unless
   the application has it too (``locals()``) or a debugger may write it back. A frame that is kept keeps its variables.
3. The frames of the reader itself are left out: they would keep one another, and all that has been read, until a collection.
"""

from __future__ import annotations

import dis
import gc
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from inspect import CO_OPTIMIZED
from itertools import dropwhile
from pathlib import Path
from types import FrameType
from typing import Any

FRAMES_MAX = 300
_RUNTIME = str(Path(__file__).parents[1])
_KEEPS_DICTIONARY = sys.version_info < (3, 13)
_BEGIN = bytes([dis.opmap["RESUME"]])
_REFERENCES_OF_OURS = 3
"""References to a frame's dictionary that only we have: the frame's, the reader's, and ``getrefcount``'s own."""


class _NoCollection:
    """``with`` it no automatic collection begins, whichever of the agent's threads reads; the application's setting stays."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal's handler may come in between, and read too
        self._depth = 0
        self._collects = False
        self.is_of_child = False
        """Whether this is the child of a fork that came after this was loaded: its parent's other threads are not there."""
        os.register_at_fork(after_in_child=self._forked)

    def __enter__(self) -> None:
        self._lock.acquire()
        if not self._depth:
            self._collects = gc.isenabled()
            gc.disable()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth and self._collects:
            gc.enable()
        self._lock.release()

    def _forked(self) -> None:
        """In a forked child: the reading thread does not exist there."""
        self.is_of_child = True
        self._lock = threading.RLock()
        if self._depth and self._collects:
            gc.enable()
        self._depth = 0


no_collection = _NoCollection()


def innermost_frames() -> dict[int, FrameType]:
    """By its identity, the innermost frame of each thread."""
    with no_collection:
        return sys._current_frames()  # noqa: SLF001 - documented


def frames_of_threads() -> dict[int, list[FrameType]]:
    """By its identity, where each thread stands: its frames, innermost first (rule 3)."""
    with no_collection:
        found = {ident: list(_outwards(frame)) for ident, frame in sys._current_frames().items()}  # noqa: SLF001
        outer = list(dropwhile(_is_reading, _outwards(sys._getframe())))  # noqa: SLF001 - as above
    found.pop(threading.get_ident(), None)
    return found | {threading.get_ident(): outer} if outer else found


def frames_of_this_thread() -> list[FrameType]:
    """The frames of the current thread, innermost first."""
    return list(_outwards(sys._getframe(1)))  # noqa: SLF001 - documented


def caller_beyond(names: frozenset[str]) -> FrameType | None:
    """The frame that called the function which asks for its caller: the first that is of no function with one of ``names``."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - documented; of this very thread, so it stands still
    while frame is not None and frame.f_code.co_name in names:
        frame = frame.f_back
    return frame


def caller_of(frame: FrameType) -> FrameType | None:
    """The frame that called ``frame``."""
    with no_collection:
        return frame.f_back


def frame_of(coroutine: Any) -> FrameType | None:
    """The frame of a coroutine, generator or asynchronous generator; None for compiled ones."""
    with no_collection:
        for name in ("cr_frame", "gi_frame", "ag_frame"):
            frame: FrameType | None = getattr(coroutine, name, None)
            if frame is not None:
                return frame
    return None


def frames_along(coroutines: Iterable[Any]) -> list[tuple[FrameType, Any]]:
    """The frames of some coroutines, those that have one, and whose they are."""
    with no_collection:
        return [(frame, one) for one in coroutines if (frame := frame_of(one)) is not None]


def variables_of(frame: FrameType) -> dict[str, Any]:
    """A copy of a frame's variables by name; a module's are its globals."""
    with no_collection:
        names = frame.f_locals
        found = dict(names)
        if _KEEPS_DICTIONARY and _is_ours_to_empty(frame) and sys.getrefcount(names) == _REFERENCES_OF_OURS:
            names.clear()
    return found


def _is_reading(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_RUNTIME)


def _is_ours_to_empty(frame: FrameType) -> bool:
    """Whether the dictionary is a copy of a function's variables, and no debugger or profiler will write it back into them.

    One that is told of a call holds the frame at its first instruction.
    """
    code, at = frame.f_code, frame.f_lasti
    if not code.co_flags & CO_OPTIMIZED or frame.f_trace is not None:
        return False
    is_traced = threading.gettrace() is not None or threading.getprofile() is not None
    return not is_traced and (at < 0 or code.co_code[at : at + 1] != _BEGIN)  # compiled code has no instructions


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    for _ in range(FRAMES_MAX):
        if frame is None:
            return
        yield frame
        frame = frame.f_back
