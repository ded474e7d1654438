"""What will call the application's code later, though no thread is inside that code now: for the look of termination.

Rules:

1. At the end of an executor's item its callbacks are called, and the items that are queued behind it run.
2. When a child process ends or writes, its protocol is told; asyncio's thread that waits for it was started since.
3. When a pool's processes have done an item, its callbacks are called.
4. When a channel's connectivity changes, those are told who have subscribed since.
5. When an alarm goes off that was set since, its signal's handler is called, or the event loop's.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.declared.word import Word
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.introspection.places import Place, Places
from stilltrue.runtime.look.enders.kinds.wakers import told_of_sockets
from stilltrue.runtime.seen.waits.executors import items_behind

_WAITS_FOR_CHILD = "ThreadedChildWatcher._do_waitpid"


def of_items(place: Place) -> Iterator[str]:
    """Rule 1, of the thread that runs the item."""
    item = compat.item_run_by(list(place.frames))
    if item is None:
        return
    for callback in filter(_is_own, compat.callbacks_of_item(item)):
        yield f"{compat.name_of(callback)}, which is called at the end of an executor's item"
    for queued in items_behind(place.frames):
        if _is_own(queued.fn):
            yield f"{compat.name_of(queued.fn)}, an item that is queued for an executor"


def of_children(place: Place) -> Iterator[str]:
    """Rule 2, of a thread that was started since."""
    for frame in place.frames:
        if frame.f_code.co_qualname.endswith(_WAITS_FOR_CHILD):
            for one in variables_of(frame).get("args") or ():
                told = told_of_sockets(one.get_protocol()) if issubclass(type(one), asyncio.SubprocessTransport) else []
                yield from (f"{method.__qualname__}, which is told of a child process" for method in told)


def of_results(place: Place) -> Iterator[str]:
    """Rule 3, of the thread that receives what the processes send."""
    for frame in place.frames:
        for callback in filter(_is_own, compat.called_with_results(frame)):
            yield f"{compat.name_of(callback)}, which is called at the end of an item of an executor's processes"


def of_subscribers(place: Place) -> Iterator[str]:
    """Rule 4, of gRPC's thread that was started for them since."""
    for frame in place.frames:
        for callback in filter(_is_own, compat.told_of_connectivity(frame)):
            yield f"{compat.name_of(callback)}, which is told of a channel's connectivity"


def of_alarms(places: Places, covered: Word | None) -> Iterator[str]:
    """Rule 5."""
    handlers = [compat.signal_handlers_of(loop) for loop in places.loop_threads.values()]
    for timer, seconds in compat.alarms().items():
        if covered is not None and timer in covered.alarms:
            continue
        number = compat.SIGNALS_OF_ALARMS[timer]
        by_loops = [compat.called_by(one[number])[0] for one in handlers if number in one]
        for handler in filter(_is_own, [signal.getsignal(number), *by_loops]):
            yield f"{compat.name_of(handler)}, which {number.name} calls in {seconds:.1f} s"


def _is_own(callback: Any) -> bool:
    code, _, _ = compat.called_in(callback)
    return code is not None and is_application(code)
