"""Reads other threads' frames safely. No other module accesses frames' variables and callers, but for the one of rule 5.

Rules:

1. No collection runs during a read. Before Python 3.12 creating a frame object or its dictionary may start one; a finalizer may
   then let the thread continue, which frees the frame under its reader (a segmentation fault). Before 3.13 a finalizer that
   runs inside ``sys._current_frames()`` can deadlock the process (gh-106883).
2. Nothing is left behind. Before Python 3.13 a frame keeps the dictionary of its variables once it was requested: that would
   keep alive what the application has released, and the next read would run finalizers. So the frame is left as it was
   (:mod:`~stilltrue.runtime.introspection.frame_dictionary`). A kept frame keeps its variables.
3. The frames in which a thread reads others are left out, those of other readers, too, unless a signal's handler of the
   application runs in them. They would keep each other, and all that was read, alive until a collection.
4. Only what is suspended is asked what it awaits. Python 3.11 and 3.12 answer by the code unit after the current instruction,
   which may be a number in that instruction's cache. A coroutine that runs can then answer with an address that is no object: a
   segmentation fault. The check and the question are one expression without calls, in which the interpreter does not switch
   threads.
5. Where Python needs it, the generators of frames are kept (:mod:`~stilltrue.runtime.introspection.kept_generators`).
6. No frame is kept that refers to an object which is being freed. An event-loop server of gRPC that was not stopped logs from
   its ``__dealloc__``, with itself as an argument. References to it no longer count: a frame that is dropped after it frees it
   a second time (a segmentation fault). So a thread that is deciding whether to log is read again a little later, and the frame
   read is dropped within the same call of compiled code, in which the interpreter does not switch threads. If the thread takes
   longer, does log, or runs a collection there, its frames from that function inward are left out. They are dropped within the
   few milliseconds for which the interpreter stays with the reader.
7. A compiled coroutine makes its frame when it is first asked, and keeps it. In Python 3.10 that frame refers to the one that
   asked, whose callers have read other threads and tasks: all of this would stay alive as long as the coroutine does. So a
   generator asks. Once it is suspended, its frame refers to no caller.
"""

from __future__ import annotations

import dis
import gc
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from inspect import CO_OPTIMIZED
from itertools import chain, compress, dropwhile, repeat, starmap, tee
from operator import attrgetter, not_
from pathlib import Path
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType
from typing import Any, TypeVar

from stilltrue.runtime.introspection import frame_dictionary, kept_generators

Frames = TypeVar("Frames", bound=list[FrameType])
FRAMES_MAX = 300
_RUNTIME = str(Path(__file__).parents[1])
_READING_ROOMS = tuple(f"{_RUNTIME}{os.sep}{room}{os.sep}" for room in ("introspection", "look", "waits"))
"""The folders whose functions may have what was read in their variables."""
_READS_BY = (_RUNTIME, os.path.dirname(os.__file__) + os.sep, "<frozen ")  # noqa: PTH120 - compared with names of files
"""What these call to read: the agent, and the standard library."""
_KEEPS_DICTIONARY = sys.version_info < (3, 13)
_KEEPS_CALLERS = sys.version_info < (3, 11)
_YIELD = dis.opmap["YIELD_VALUE"]
_LOGS = logging.Logger.debug.__code__
_LOG_DEPTH_MAX = 12
_DECIDES = (logging.Logger.isEnabledFor, logging.Logger.getEffectiveLevel, vars(logging.Manager)["disable"].fget)
_MAY_BE_OF_FREED = (_LOGS, *(function.__code__ for function in _DECIDES))
_are_of_freed = partial(map, frozenset(map(id, _MAY_BE_OF_FREED)).__contains__)  # a code's hash reads all of its bytecode
_codes_of, _ids_of, _not = partial(map, attrgetter("f_code")), partial(map, id), partial(map, not_)
_DECIDING_SECONDS_MAX = 0.005
_PAUSE_SECONDS = 0.0002
LISTING_FRAMES = sys._current_frames  # noqa: SLF001 - documented
"""The function that gives the application all threads' frames."""


class _NoCollection:
    """A context manager that disables automatic collection for all reading threads and restores the application's setting."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant: a signal handler may interrupt a read and read too
        self._depth = 0
        self._collects = False
        self.is_of_child = False
        """Whether this is a child forked after this module was loaded: the parent's other threads do not exist here."""
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
        """Reset in a forked child, where the reading thread does not exist."""
        self.is_of_child = True
        self._lock = threading.RLock()
        if self._depth and self._collects:
            gc.enable()
        self._depth = 0


no_collection = _NoCollection()
_readers: set[int] = set()
"""The threads that have read others."""


class InnermostFrames(dict[int, FrameType]):
    """The innermost frame of each thread, by identity, and the generators to which they belong (rule 5)."""

    def __init__(self, stacks: dict[int, kept_generators.Frames], own: FrameType) -> None:
        super().__init__((ident, frames[0]) for ident, frames in stacks.items())
        self[threading.get_ident()] = own
        self._stacks = stacks


def innermost_frames() -> dict[int, FrameType]:
    """The innermost frame of each thread, by identity."""
    _readers.add(threading.get_ident())
    with no_collection:
        if kept_generators.IS_NEEDED:
            return InnermostFrames(_frames_with_generators(_LOG_DEPTH_MAX), sys._getframe())  # noqa: SLF001 - documented
        return _innermost_with(sys._getframe())  # noqa: SLF001 - as above


def _innermost_with(own: FrameType) -> dict[int, FrameType]:
    """The same, with ``own`` for this thread: a frame that does not have the result in a variable (rule 3)."""
    found = _current_frames()
    for ident in [one for one, frame in found.items() if frame.f_code.co_filename == _LOGS.co_filename or one in _readers]:
        found.update((ident, frame) for frame in _without_reading(ident, _frames_from(found.pop(ident)))[:1])
    found[threading.get_ident()] = own
    return found


def innermost_frames_of_others() -> dict[int, FrameType]:
    """The innermost frame of every other thread (rule 3)."""
    found = innermost_frames()
    found.pop(threading.get_ident(), None)
    return found


def frames_of_threads() -> dict[int, list[FrameType]]:
    """The frames of each thread, innermost first, by identity (rule 3)."""
    _readers.add(threading.get_ident())
    with no_collection:
        found: dict[int, list[FrameType]]
        if kept_generators.IS_NEEDED:
            found = {**_frames_with_generators(FRAMES_MAX)}
        else:
            every = ((ident, _without_reading(ident, _frames_from(frame))) for ident, frame in _current_frames().items())
            found = {ident: frames for ident, frames in every if frames}
        outer = list(dropwhile(_is_reading, _frames_from(sys._getframe())))  # noqa: SLF001 - as above
    return found | {threading.get_ident(): outer} if outer else found


def frames_of_thread(ident: int) -> list[FrameType]:
    """The frames of another thread, innermost first; empty if there is no such thread. Costs little if there are many."""
    with no_collection:
        if kept_generators.IS_NEEDED:
            return _frames_with_generators(FRAMES_MAX).get(ident) or []
        return _frames_from(_current_frame(ident))


def frames_of_this_thread() -> list[FrameType]:
    """The frames of the current thread, innermost first."""
    return _frames_from(sys._getframe(1))  # noqa: SLF001 - documented


def first_caller_outside(names: frozenset[str]) -> FrameType | None:
    """The innermost calling frame whose function is not one of ``names``."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - documented; of this thread, so it does not move
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
        if type(coroutine) is CoroutineType:
            return coroutine.cr_frame
        for name in ("cr_frame", "gi_frame", "ag_frame"):
            frame: FrameType | None = next(_ask([coroutine], name)) if _KEEPS_CALLERS else getattr(coroutine, name, None)
            if frame is not None:
                return frame
    return None


def _ask(coroutines: list[Any], name: str) -> Iterator[Any]:
    """Yields the attribute of the only one, which is taken from the list (rule 7)."""
    yield getattr(coroutines.pop(), name, None)


def awaited_by(paused: Any) -> Any:
    """What a suspended coroutine, generator or asynchronous generator awaits (rule 4).

    None if it awaits nothing, runs, has not begun or has ended.
    """
    read = _AWAITED_BY.get(type(paused))
    if read is not None:
        return read(paused)
    # compiled coroutines keep it in a field
    values = (getattr(paused, name, None) for name in ("cr_await", "gi_yieldfrom", "ag_await"))
    return next((one for one in values if one is not None), None)


def _awaited_by_async_generator(paused: Any) -> Any:
    """For Python 3.11, where ``ag_running`` is also true while it awaits within ``__anext__``: its instruction decides."""
    frame = frame_of(paused)
    at = -1 if frame is None else frame.f_lasti
    if frame is None or at < 0 or frame.f_code.co_code[at] != _YIELD:
        return None
    return paused.ag_await if frame.f_lasti == at else None


_AWAITED_BY: dict[type, Callable[[Any], Any]] = (
    {
        CoroutineType: lambda one: one.cr_await if one.cr_suspended else None,
        GeneratorType: lambda one: one.gi_yieldfrom if one.gi_suspended else None,
    }
    if sys.version_info >= (3, 11)
    else {
        CoroutineType: lambda one: None if one.cr_running else one.cr_await,
        GeneratorType: lambda one: None if one.gi_running else one.gi_yieldfrom,
        AsyncGeneratorType: lambda one: one.ag_await,  # Python 3.10 has no caches, and does not switch before an await
    }
)
if sys.version_info >= (3, 12):
    _AWAITED_BY[AsyncGeneratorType] = lambda one: one.ag_await if one.ag_suspended else None
elif sys.version_info >= (3, 11):
    _AWAITED_BY[AsyncGeneratorType] = _awaited_by_async_generator


def frames_of_coroutines(coroutines: Iterable[Any]) -> list[tuple[FrameType, Any]]:
    """The frames of the coroutines that have one, each with its coroutine."""
    with no_collection:
        return [(frame, one) for one in coroutines if (frame := frame_of(one)) is not None]


def variables_of(frame: FrameType) -> dict[str, Any]:
    """A copy of a frame's variables by name; for module code, its globals."""
    with no_collection:
        if _KEEPS_DICTIONARY and type(frame) is FrameType and frame.f_code.co_flags & CO_OPTIMIZED:
            return frame_dictionary.variables_left_as_they_were(frame)
        return dict(frame.f_locals)


def _frames_with_generators(frames_max: int) -> dict[int, kept_generators.Frames]:
    """The frames of other threads (rules 5 and 6)."""
    end = time.monotonic() + _DECIDING_SECONDS_MAX
    found = kept_generators.frames_with_generators(frames_max, _MAY_BE_OF_FREED)
    while None in found.values() and time.monotonic() < end:
        time.sleep(_PAUSE_SECONDS)
        found = kept_generators.frames_with_generators(frames_max, _MAY_BE_OF_FREED)
    left = kept_generators.frames_with_generators(frames_max, ()) if None in found.values() else {}
    whole = {ident: left.get(ident) if frames is None else frames for ident, frames in found.items()}
    for frames in whole.values():
        for index in reversed(range(len(frames or ()))):
            if frames is not None and frames[index].f_code is _LOGS and _is_about_freed(frames[index]):
                del frames[: index + 1]
                break
    return {ident: frames for ident, every in whole.items() if every and (frames := _without_reading(ident, every))}


def _current_frames() -> dict[int, FrameType]:
    """The innermost frame of each other thread (rules 3 and 6)."""
    end = time.monotonic() + _DECIDING_SECONDS_MAX
    while True:
        read = tee(starmap(sys._current_frames, repeat((), 1)), 4)  # noqa: SLF001 - documented
        codes = _codes_of(chain.from_iterable(map(dict.values, read[0])))
        kept = compress(chain.from_iterable(map(dict.items, read[1])), _not(_are_of_freed(_ids_of(codes))))
        number = zip(repeat(None, 1), map(len, read[2]), strict=True)
        found: dict[Any, Any] = dict(chain(kept, number, filter(None, map(dict.clear, read[3]))))
        if found.pop(None) == len(found):
            break
        if time.monotonic() >= end:
            found = sys._current_frames()  # noqa: SLF001 - as above
            break
        time.sleep(_PAUSE_SECONDS)
    found.pop(threading.get_ident(), None)
    return found


def _current_frame(ident: int) -> FrameType | None:
    """The innermost frame of one thread (rule 6)."""
    end = time.monotonic() + _DECIDING_SECONDS_MAX
    while True:
        for frame in map(dict.get, starmap(sys._current_frames, repeat((), 1)), (ident,)):  # noqa: SLF001 - documented
            if frame is None or frame.f_code not in _MAY_BE_OF_FREED:
                return frame
            frame = None  # noqa: PLW2901 - before the next call
        if time.monotonic() >= end:
            return sys._current_frames().get(ident)  # noqa: SLF001 - as above
        time.sleep(_PAUSE_SECONDS)


def _frames_from(frame: FrameType | None) -> list[FrameType]:
    """A frame and those that called it; only the callers of one that logs about an object which is being freed (rule 6)."""
    frames: list[FrameType] = []
    for _ in range(FRAMES_MAX):
        if frame is None:
            break
        frames.append(frame)
        if frame.f_code is _LOGS and _is_about_freed(frame):
            frames.clear()
        frame = frame.f_back
    return frames


def _without_reading(ident: int, frames: Frames) -> Frames:
    """The same frames of a thread, without those in which it reads others (rule 3)."""
    if ident in _readers:
        files = [frame.f_code.co_filename for frame in frames]
        outermost = max((index for index, file in enumerate(files) if file.startswith(_READING_ROOMS)), default=-1)
        if all(file.startswith(_READS_BY) for file in files[: outermost + 1]):  # else a signal's handler has interrupted it
            del frames[: outermost + 1]
    return frames


def _is_about_freed(frame: FrameType) -> bool:
    """Whether a frame that logs has a message about an object that is being freed."""
    message = variables_of(frame).get("msg")
    return type(message) is str and message.startswith("__dealloc__")


def _is_reading(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_RUNTIME)
