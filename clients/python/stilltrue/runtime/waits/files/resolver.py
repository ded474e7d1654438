"""Waits of threads for locks on files: each is a wait for the party that holds the lock, in whatever process it is.

Rules:

1. A thread waits in ``flock()``, ``lockf()`` or ``fcntl()`` if the system shows that it is in this call, without ``LOCK_NB``.
   The file is the one that its descriptor is open on. One that polls in ``acquire()`` of a lock of ``fasteners`` without a
   limit has its file open, too.
2. A thread waits for one of the ``filelock`` library's locks if it polls in ``acquire()`` without a limit: it opens the lock's
   path again each time. Opening a path may take long, so a cut uses what the agent's own thread has found. The second look
   opens it once more. If the file is deleted, the thread makes another: a party whose code mentions deleting files is a way
   out, whichever files they are. A child process may delete it, too, as far as its command or script shows
   (:mod:`~stilltrue.runtime.waits.files.deleters`).
3. Only an exclusive lock on the whole file, which the holder's own agent reports, makes such a wait count
   (:mod:`~stilltrue.runtime.waits.files.holders`). Whoever holds it otherwise may release it at any moment.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from types import CodeType
from typing import Any
from weakref import WeakKeyDictionary, ref

from stilltrue.protocol.report import ResourceTarget
from stilltrue.runtime import compat
from stilltrue.runtime.bytecode.qualified_names import qualname_of
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import frames_of_thread, frames_of_threads, variables_of
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.look.code.system_operations import DELETES_FILES
from stilltrue.runtime.waits.files import filelocks, kernel
from stilltrue.runtime.waits.files.deleters import child_may_delete
from stilltrue.runtime.waits.files.kernel import File
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait

_DELETING = frozenset({DELETES_FILES})
_CALLS = ("flock", "lockf", "locker", "fcntl")
_FASTENERS = (("fasteners/process_lock.py", "InterProcessLock.acquire"),)
_CLOSING = frozenset({"close", "release", "unlock"})


class _Poll:
    """One ``acquire()`` of a thread, which began at ``begun``, and the file that its path leads to (None: unknown)."""

    __slots__ = ("__weakref__", "begun", "file")

    def __init__(self, begun: float) -> None:
        self.begun = begun
        self.file: File | None = None


_polls: WeakKeyDictionary[Any, dict[int, _Poll]] = WeakKeyDictionary()
"""By lock and polling thread."""


def _read_flock(stack: CallStack, _: int, __: ProcessView) -> SeenWait | None:
    """Rule 1."""
    fcntl = sys.modules.get("fcntl")
    if fcntl is None or stack.task is not None or not calls_flock(stack.frames[0].f_code):
        return None
    thread = compat.threads().get(stack.ident)
    native = None if thread is None else thread.native_id
    awaited = None if native is None else kernel.awaited_by(native)
    if awaited is None:
        return None
    descriptor, posix = awaited
    return _wait_for(kernel.file_at(descriptor, posix=posix), kernel.path_of(descriptor), on=fcntl.__dict__.get("flock"))


@cached_by_code
def calls_flock(code: CodeType) -> bool:
    """Whether a function may call ``flock()`` or the like by itself."""
    words = (*code.co_names, *code.co_varnames, *code.co_freevars)
    return is_application(code) and any(call in word.lower() for word in words for call in _CALLS)


def _read_filelock(stack: CallStack, at: int, _: ProcessView) -> SeenWait | None:
    """Rule 2."""
    found = None if stack.task is not None else filelocks.awaited_path(stack.frames[at])
    if found is None:
        return None
    lock, path, begun = found
    poll = _poll_of(lock, stack.ident, begun)
    ident, file, code = stack.ident, poll.file, stack.frames[at].f_code

    def same() -> bool:
        frames = (one for one in frames_of_thread(ident) if one.f_code is code)
        now = next((again for one in frames if (again := filelocks.awaited_path(one)) is not None), None)
        return now is not None and now[1:] == (path, begun) and _file_at_path(path) == file and not child_may_delete()

    return _wait_for(file, path, on=poll, same=same, ending_names_anywhere=_DELETING)


def _read_fasteners(stack: CallStack, at: int, _: ProcessView) -> SeenWait | None:
    """Rule 1, of a lock of ``fasteners``."""
    frame = stack.frames[at]
    names = variables_of(frame)
    lock, watch = names.get("self"), names.get("watch")
    descriptor = _descriptor_of(attribute_of(lock, "lockfile"))
    limited = names.get("timeout") is not None or names.get("blocking") is not True
    if stack.task is not None or limited or watch is None or descriptor is None:
        return None
    weak, ident, code = ref(watch), stack.ident, frame.f_code

    def same() -> bool:
        frames = (one for one in frames_of_thread(ident) if one.f_code is code)
        return any(variables_of(one).get("watch") is weak() for one in frames)

    file, path = kernel.file_at(descriptor, posix=True), kernel.path_of(descriptor)
    return _wait_for(file, path, on=watch, same=same, ended_through=(lock,), ending_names=_CLOSING)


def _descriptor_of(file: Any) -> int | None:
    if type(file) is not io.TextIOWrapper or file.closed:
        return None
    return file.fileno()


def _wait_for(file: File | None, path: str, **of_wait: Any) -> SeenWait:
    resource = None if file is None else kernel.lock_resource(file)
    enders = None if resource is None else (ResourceTarget(resource=resource),)
    name = path.replace("{", "{{").replace("}", "}}")
    return SeenWait(enders=enders, what=f"the lock of the file {name}", **of_wait)


def _poll_of(lock: Any, ident: int, begun: float) -> _Poll:
    of_threads = _polls.setdefault(lock, {})
    known = of_threads.get(ident)
    if known is None or known.begun != begun:
        known = of_threads[ident] = _Poll(begun)
    return known


def find_polled_files() -> None:
    """Find the files that threads poll for (rule 2). May take long where a file system does."""
    if "filelock" not in sys.modules:
        return
    for ident, frames in frames_of_threads().items():
        for frame in frames:
            if _is_poll(frame.f_code) and (found := filelocks.awaited_path(frame)) is not None:
                lock, path, begun = found
                _poll_of(lock, ident, begun).file = _file_at_path(path)


@cached_by_code
def _is_poll(code: CodeType) -> bool:
    file = code.co_filename.replace("\\", "/")
    return any(file.endswith(end) and qualname_of(code) == name for end, name in filelocks.POLLS)


def _file_at_path(path: str) -> File | None:
    """The file at a path. It is not opened for use: closing it would release this process's other locks on it."""
    with suppress(OSError, AttributeError):
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            return kernel.file_at(descriptor)
        finally:
            os.close(descriptor)
    return None


RESOLVERS = (
    Resolver(filelocks.POLLS, _read_filelock),
    Resolver(_FASTENERS, _read_fasteners),
    Resolver((), _read_flock),
)
