"""A served call, from its arrival to its reply: the state and rules shared by the sync and aio shells.

Each method fails open: it counts an error, and the application's service goes on. A call that is dropped before its end
(cancelled while queued, or refused) withdraws itself.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from stilltrue.model import WaitNumber
from stilltrue.protocol.books.ledger import NO_REPLY, ServerCall
from stilltrue.runtime.calls.callbacks import Callbacks
from stilltrue.runtime.calls.stamps import STAMP_KEYS, read_stamp, with_stamp
from stilltrue.runtime.compat import DEADLINE_SECONDS_MAX, current_task_of
from stilltrue.runtime.locked_recorder import LockedRecorder
from stilltrue.runtime.parties import Root
from stilltrue.runtime.session import Session
from stilltrue.runtime.transport.endpoint import Endpoint

KINDS = {
    (False, False): "unary_unary",
    (False, True): "unary_stream",
    (True, False): "stream_unary",
    (True, True): "stream_stream",
}
"""The four arities, by whether requests and replies are streams."""


class IncomingCall:
    """A call that has arrived and is not over. Attributes that few calls need have their defaults in the class.

    A shell may derive its handler of one call from this class and create it from ``served``; the class then has the session.
    """

    session: Session
    live: LockedRecorder
    served: ServerCall
    """Its entry in the recorder."""
    over = False
    callbacks: Callbacks | None = None
    root: Root | None = None
    """The task that serves it, if any."""
    aborted = ""
    """The reason for which a cure ends it with ABORTED; empty: no cure does."""
    seconds_max: float | None = None
    """gRPC ends the call after this time, whatever its deadline."""
    endpoint: Endpoint | None = None
    """Its server's endpoint, if that is still unknown and can be learnt from the call."""
    response_serializer: Callable[[Any], Any] | None = None
    no_reply = False
    """Whether gRPC answers with an error, since it cannot send what the behaviour returned."""

    def __init__(self, session: Session, served: ServerCall) -> None:
        """``served`` is its entry in the recorder."""
        self.session = session
        self.live = session.live
        self.served = served

    def __del__(self) -> None:
        if not self.over:
            self.withdraw()

    # -- serving -------------------------------------------------------------------------------------------------------

    def begin(self, context: Any, interruptible: bool | None = None) -> None:
        """A worker or a task took the call; gRPC's ``context`` has the deadline.

        ``interruptible``: whether the handler is cancelled when the caller cancels, if that was unknown on arrival.
        """
        live = self.live
        try:
            served = self.served
            live.started(served, None if served.deadline_known else self.deadline_in(context), interruptible)
            if self.endpoint is not None:
                self.endpoint.learn_from_call(context)
        except Exception:  # noqa: BLE001 - fail open
            live.report_failure("starting to serve a call")

    def enter_task(self) -> Root | None:
        """Make the current task the party that serves the call."""
        self.root = root = enter_task(self.session, self.served)
        return root

    def begin_in_task(self, context: Any) -> Root | None:
        """As :meth:`begin`, for a call that the current task serves; return that task's root."""
        live, served, root = self.live, self.served, self.root
        try:
            if self.endpoint is None and self.seconds_max is None and context.time_remaining() is None:
                live.started(served, None)
            else:
                self.begin(context)
            if root is not None and root.task is current_task_of(asyncio.get_running_loop()):
                return root
        except Exception:  # noqa: BLE001 - fail open
            live.report_failure("starting to serve a call")
        return self.enter_task()

    def leave_task(self) -> None:
        """The current task does not serve the call after all."""
        self.root = None
        self.session.parties.roots.pop(self.served.party, None)

    def deadline_in(self, context: Any) -> float | None:
        """When gRPC ends the call, according to its context (epoch)."""
        remaining = context.time_remaining()
        if self.seconds_max is not None:
            remaining = self.seconds_max if remaining is None else min(remaining, self.seconds_max)
        endless = remaining is None or remaining > DEADLINE_SECONDS_MAX
        return None if endless else self.live.clock() + remaining

    def hang_up(self) -> None:
        """The caller is gone, though the handler may go on."""
        if self.over:  # gRPC reports the end of every call, also of answered ones
            return
        try:
            self.live.hung_up(self.served)
        except Exception:  # noqa: BLE001 - fail open
            self.live.report_failure("recording a hang-up")

    def as_work(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a callback of the application so that it counts as work while it runs."""
        if self.callbacks is None:
            self.callbacks = Callbacks(self.live)
        return self.callbacks.as_work(callback)

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Inside the block, this thread acts as the party that serves the call."""
        here = self.session.parties.here
        before = getattr(here, "serving", None)
        here.serving = self.served
        try:
            yield
        finally:
            here.serving = before

    # -- stream items --------------------------------------------------------------------------------------------------

    def begin_wait(self) -> WaitNumber | None:
        """The current party begins to wait for the caller's next item; None if recording failed."""
        session, served = self.session, self.served
        try:
            what = f"the next request of {served.method}"
            return session.live.waits(session.parties.current(), served.among, 1, None, served.deadline, True, what)
        except Exception:  # noqa: BLE001 - fail open
            session.live.report_failure("waiting for a stream item")
            return None

    def end_wait(self, wait: WaitNumber | None) -> None:
        """End a wait, if there is one."""
        self.session.end_wait(wait)

    def item_received(self, wait: WaitNumber | None) -> None:
        """One item of the request stream arrived; the wait for it ends in the same step."""
        try:
            self.live.item_received(self.served, wait)
        except Exception:  # noqa: BLE001 - fail open
            self.live.report_failure("receiving a stream item")

    def item_sent(self) -> None:
        """One item of the reply stream was sent."""
        try:
            self.live.item_sent(self.served)
        except Exception:  # noqa: BLE001 - fail open
            self.live.report_failure("sending a stream item")

    # -- the end; a second one changes nothing -------------------------------------------------------------------------

    def returned(self, reply: Any) -> Any:
        """Return ``reply``, once it is known whether it can be sent, if a step was deferred to it."""
        if self.served.reply is not NO_REPLY and self.response_serializer is not None:
            try:
                self.response_serializer(reply)
            except Exception:  # noqa: BLE001 - the application's serializer, which gRPC calls next
                self.no_reply = True
        return reply

    def end(self, trailing: Any, failed: bool = False) -> Any:
        """The call is answered: return ``trailing`` with the reply's stamp if it needs one, and no other stamp.

        An unstamped caller gets none. Returns the same object if nothing changes.
        """
        if self.over:
            return trailing
        self.over = True
        served = self.served
        if roots := self.session.parties.roots:
            roots.pop(served.party, None)
        if self.callbacks is not None:
            self.callbacks.call_ends()
        try:
            pair = self.live.replied(served, failed or self.no_reply)
            if pair is None and not trailing:
                return trailing
            return with_stamp(trailing, None if served.caller is None else pair)  # protocol rule 9: strangers get no stamp
        except Exception:  # noqa: BLE001 - fail open
            self.live.withdrawn(served)
            self.live.report_failure("replying to a call")
            return trailing

    def withdraw(self) -> None:
        """The call will not be served to its end. May run in a finalizer."""
        self.over = True
        self.session.parties.roots.pop(self.served.party, None)
        self.live.withdrawn(self.served)


def enter_task(session: Session, served: ServerCall) -> Root | None:
    """Make the current task the party that serves the call; None if no task is running."""
    try:
        task = current_task_of(asyncio.get_running_loop())
        if task is None:
            return None
        parties = session.parties
        root = parties.roots[served.party] = Root(task, served)
        parties.root.set(root)
    except Exception:  # noqa: BLE001 - fail open
        session.live.report_failure("starting to serve a call")
        return None
    return root


def has_failed(code: Any) -> bool:
    """Whether the handler that has ended raised an exception or set ``code`` to a status other than OK."""
    error = sys.exc_info()[1]
    if error is not None and not isinstance(error, StopIteration | StopAsyncIteration):
        return True
    return code is not None and code not in (0, grpc.StatusCode.OK)


def receive_request(
    session: Session, metadata: Any, method: str, interruptible: bool, seconds_max: float | None
) -> ServerCall | None:
    """Record a request that arrived with this metadata; return its entry, or None if recording failed.

    ``interruptible``: its handler is cancelled when the caller cancels. ``seconds_max``: gRPC ends the call after this time.
    """
    live = session.live
    text: Any = None
    try:
        for entry in metadata or ():  # as read_stamp, in line: this is the path of nearly every request
            if entry[0] in STAMP_KEYS:
                text = entry[1] if text is None else ()
        served = live.arrived_again(text, method, interruptible) if type(text) is str else None
        if served is None:
            served = live.arrived(read_stamp(live, metadata, method), method, interruptible)
        if seconds_max is not None:
            live.queued(served, "", seconds_max)
    except Exception:  # noqa: BLE001 - fail open
        live.report_failure("receiving a request")
        return None
    return served
