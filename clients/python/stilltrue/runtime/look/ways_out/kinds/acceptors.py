"""Code that may accept a request which waits for a server's only thread, or close the server, which refuses it.

This concerns servers of the standard library that serve on the thread that accepts (``http.server``, ``wsgiref``, XML-RPC). The
thread of such a server is a suspect when it is blocked while it serves; another thread that calls ``handle_request`` or
``server_close`` later ends the waits for it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FrameType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_own_code, position_of
from stilltrue.runtime.introspection.threads_and_tasks import Places
from stilltrue.runtime.look.called_code.call_graph import named_ahead, named_by_callback, names_in
from stilltrue.runtime.look.code.attributes import named_values
from stilltrue.runtime.look.progress.analysis import ProgressAnalysis
from stilltrue.runtime.look.progress.progress import Progress
from stilltrue.runtime.look.progress.stack_ahead import frames_of_task, stretches
from stilltrue.runtime.look.ways_out.kinds.closing.closers import Closer, progress_to
from stilltrue.runtime.look.ways_out.kinds.wakers import frame_roots

_ACCEPTING = frozenset({"handle_request", "serve_forever", "server_close", "accept", "close", "detach", "socket", "fileno"})


def acceptors(places: Places, analysis: ProgressAnalysis) -> Iterator[Closer]:
    """Every thread, task and callback whose code may accept from a listening socket that it reaches, or close it."""
    for place in places.threads.values():
        if place.ident == threading.get_ident():
            continue
        thread = compat.threads().get(place.ident)
        who = f"thread {place.ident if thread is None else thread.name}"
        progress = functools.partial(analysis.of_thread, place.ident)
        yield from _in_frames(place.frames, who, place.ident, analysis, progress)
        if isinstance(thread, threading.Timer):
            for one in compat.thread_arguments(thread):
                yield from _in_callback(one, f"called by {who}, a timer")
    for loop in places.loops():
        for callback, arguments in map(compat.callback_of, compat.handles_of(loop) or ()):
            if not compat.is_asyncio(callback):
                for one in _in_callback(callback, "scheduled on its event loop", arguments):
                    yield Closer(text=one.text, roots=one.roots, progress=functools.partial(analysis.of_loop, loop))
        for task in compat.tasks_of(loop) or ():
            progress = functools.partial(analysis.of_task, task)
            yield from _in_frames(frames_of_task(task), f"task {task.get_name()}", task, analysis, progress)


def _in_frames(
    frames: Iterable[FrameType], who: str, owner: Any, analysis: ProgressAnalysis, own_progress: Callable[[], Progress]
) -> Iterator[Closer]:
    for stretch in stretches(frames):
        frame, ahead = stretch.frame, stretch.ahead
        if not is_own_code(frame.f_code):
            continue
        functions = list(named_ahead(ahead, frame))
        words = ahead.names if ahead.known else frozenset(frame.f_code.co_names)
        if _accepts(functions, words):
            yield Closer(
                text=f"{who}, which may accept its request or close its server: {position_of(frame)}",
                roots=(*frame_roots(frame, variables_of(frame)), *_globals_of(functions)),
                owner=owner,
                progress=functools.partial(progress_to, stretch, analysis, own_progress),
            )


def _in_callback(callback: Any, how: str, arguments: Iterable[Any] = ()) -> Iterator[Closer]:
    if not callable(callback):
        return
    code, _, _ = compat.code_behind(callback)
    functions = list(named_by_callback(callback, arguments))
    words = frozenset() if code is None else frozenset((code.co_name, *names_in(code)))
    if _accepts(functions, words):
        text = f"{compat.name_of(callback)}, {how}, which may accept its request or close its server"
        near = () if code is None else (callback, *compat.bound_to(callback), *arguments)
        yield Closer(text=text, roots=(*near, *_globals_of(functions)))


def _accepts(functions: Iterable[tuple[CodeType, dict[str, Any]]], words: frozenset[str]) -> bool:
    return not _ACCEPTING.isdisjoint(words.union(*(names_in(code) for code, _ in functions if is_own_code(code))))


def _globals_of(functions: Iterable[tuple[CodeType, dict[str, Any]]]) -> Iterator[Any]:
    for code, names in functions:
        if is_own_code(code):
            yield from named_values(code.co_names, names)
