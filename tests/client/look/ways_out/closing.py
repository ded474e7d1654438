"""Runs a holder of a channel or server beside a stuck party, and returns whether it counts as a way out."""

from __future__ import annotations

import contextlib
import sched
import selectors
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import grpc

from stilltrue import Agent
from stilltrue.runtime.introspection.frames import frames_of_threads
from tests.client.look.worlds import Stuck, holders, look_at, of, report_when, serving

FAR_SECONDS = 60.0
Holder = Callable[[Any, threading.Event], object]


class Ended(BaseException):
    """Interrupts a holder at the end of its test, as a signal would."""


_INTERRUPTION: Future[None] = Future()
_INTERRUPTION.set_exception(Ended())


def interrupted(go: threading.Event) -> None:
    """A sleep that is interrupted at the end of the test, from outside: no ``raise`` of its own."""
    if go.wait(FAR_SECONDS):
        _INTERRUPTION.result()


class Other:
    """Another object that can be closed."""

    def __enter__(self) -> Other:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Does nothing."""


def sleeps_then_calls(go: threading.Event, what: Callable[[], object]) -> None:
    """Call something long after the look."""
    go.wait(FAR_SECONDS)
    what()


def sets_after(go: threading.Event, event: threading.Event) -> None:
    """Set an event only at the end of the test."""
    go.wait()
    event.set()


def may_close_the_channel(alone: Callable[..., Agent], stuck: Stuck, holder: Holder) -> bool:
    """Whether a thread that waits for a call may be freed by ``holder``, which owns the channel."""
    front, back = alone("front"), alone("back")
    with serving(back, Get=stuck) as address:
        channel = front.channel(grpc.insecure_channel(address))
        return bool(seen_beside(front, stuck, channel.unary_unary("/s/Get"), channel, holder))


def seen_beside(
    front: Agent, stuck: Stuck, call: Any, owned: Any, holder: Holder, party: str = "front/thread:caller"
) -> list[str]:
    """The ways out of the stuck ``party`` while a thread runs ``holder``, by whether they are open."""

    def calls() -> None:
        with contextlib.suppress(grpc.RpcError):
            call(b"")

    def holds() -> None:
        with contextlib.suppress(Ended):
            holder(owned, stuck.go)

    beside = threading.Thread(target=holds, name="holder")
    caller = threading.Thread(target=calls, name="caller")
    caller.start()
    stuck.wait_for_callers()
    beside.start()
    end = time.monotonic() + FAR_SECONDS
    while not _is_at_rest(beside):
        assert time.monotonic() < end
    report = report_when(front, lambda report: any(wait.waiter.startswith(party) for wait in report.waits))
    seen = holders(of(look_at(front, report), party))
    stuck.go.set()
    caller.join()
    beside.join()
    return list(dict.fromkeys(seen))


def _is_at_rest(thread: threading.Thread) -> bool:
    """Whether a thread has reached its wait."""
    codes = [frame.f_code for frame in frames_of_threads().get(thread.ident or 0, [])]
    if threading.Thread.run.__code__ not in codes[1:] or threading.Thread.start.__code__ in codes:
        return False  # it, or a thread that it starts, is beginning
    return codes[0].co_filename in (threading.__file__, sched.__file__, selectors.__file__)
