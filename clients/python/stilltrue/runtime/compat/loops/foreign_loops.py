"""Reads event loops other than asyncio's: those of trio and Twisted, and says where greenlets are.

Their timers are not read one by one, only how many are pending, and which descriptors are waited for. Of trio's tasks the
coroutines are read.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import FrameType
from typing import Any, NamedTuple

from stilltrue.runtime.introspection.frames import variables_of

_POLLS = frozenset({"get_events", "doPoll", "doSelect", "doKEvent"})
"""The functions in which they wait."""


class ForeignLoop(NamedTuple):
    """A loop of ``library``. ``waits``: it runs no task now; ``timers``: those pending; ``descriptors``: those it waits for."""

    library: str
    waits: bool
    timers: int
    descriptors: int

    def is_at_work(self, before: ForeignLoop | None) -> bool:
        """Whether it runs a task, or has more timers or waits for more descriptors than ``before``."""
        if before is None or not self.waits:
            return True
        return self.timers > before.timers or self.descriptors > before.descriptors


def foreign_loop(frames: Iterable[FrameType]) -> ForeignLoop | None:
    """The loop that a thread with these frames, innermost first, runs; None if it runs none."""
    waits = False
    for frame in frames:
        code = frame.f_code
        file = code.co_filename.replace("\\", "/")
        if _runs_trio(frame):
            return _of_trio(variables_of(frame).get("runner"), waits=waits)
        if code.co_name == "mainLoop" and file.endswith("twisted/internet/base.py"):
            return _of_twisted(variables_of(frame).get("self"), waits=waits)
        waits = code.co_name in _POLLS
    return None


def trio_coroutines(frames: Iterable[FrameType]) -> list[Any]:
    """The coroutines of the tasks of trio's loop that a thread with these frames runs."""
    for frame in frames:
        if _runs_trio(frame):
            tasks = getattr(variables_of(frame).get("runner"), "tasks", ())
            return [one for task in tuple(tasks) if (one := getattr(task, "coro", None)) is not None]
    return []


def runs_gevent(frame: FrameType) -> bool:
    """Whether this is a frame of gevent's loop."""
    return frame.f_code.co_filename.replace("\\", "/").endswith("gevent/hub.py")


def has_suspended_greenlet(frame: FrameType) -> bool:
    """Whether a variable of this frame is a greenlet that may go on."""
    kind: Any = getattr(sys.modules.get("greenlet"), "greenlet", None)
    if kind is None:
        return False
    return any(issubclass(type(one), kind) and one.gr_frame is not None for one in variables_of(frame).values())


def _runs_trio(frame: FrameType) -> bool:
    return frame.f_code.co_name == "run" and frame.f_code.co_filename.replace("\\", "/").endswith("trio/_core/_run.py")


def _of_trio(runner: Any, *, waits: bool) -> ForeignLoop:
    registered = getattr(getattr(runner, "io_manager", None), "_registered", ())
    timers = getattr(getattr(runner, "deadlines", None), "_active", 0)
    return ForeignLoop("trio", waits, int(timers), len(registered))


def _of_twisted(reactor: Any, *, waits: bool) -> ForeignLoop:
    timers = sum(len(getattr(reactor, name, ())) for name in ("_pendingTimedCalls", "_newTimedCalls"))
    descriptors = sum(len(getattr(reactor, name, ())) for name in ("_reads", "_writes"))
    return ForeignLoop("Twisted", waits, timers, descriptors)
