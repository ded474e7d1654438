"""One served call, from its arrival to its reply: the state and rules shared by the sync and aio shells.

Each method fails open: errors are counted, and the application's service goes on. A call that is dropped before its end
(cancelled while queued, refused) withdraws itself.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from stilltrue.model import WaitNumber
from stilltrue.protocol.books.ledger import ServerCall
from stilltrue.protocol.stamp import decode
from stilltrue.runtime.calls.callbacks import Callbacks
from stilltrue.runtime.calls.stamps import STAMP_KEYS, with_stamp
from stilltrue.runtime.compat import DEADLINE_SECONDS_MAX, current_task_of
from stilltrue.runtime.parties import Root
from stilltrue.runtime.recorder import LockedRecorder
from stilltrue.runtime.session import Session
from stilltrue.runtime.transport.endpoint import Endpoint

KINDS = {
    (False, False): "unary_unary",
    (False, True): "unary_stream",
    (True, False): "stream_unary",
    (True, True): "stream_stream",
}
"""The four kinds of methods, by whether requests and replies are streams."""
CLASSES_MAX = 4_096


class IncomingCall:
    """A call that has arrived and is not over. What few calls ever need has its default in the class.

    A shell's handler of one call can be this very object: then its class says whose call it is, and it is made of ``served``.
    """

    session: Session
    live: LockedRecorder
    served: ServerCall
    """Its entry in the recorder."""
    over = False
    callbacks: Callbacks | None = None
    root: Root | None = None
    """The task that serves it, where one does."""
    aborted = ""
    """Why a cure ends it with ABORTED; empty: none does."""
    seconds_max: float | None = None
    """After that gRPC ends it, whatever its deadline."""
    endpoint: Endpoint | None = None
    """Learns of its server from the call, if it does not know it yet."""

    def __init__(self, session: Session, served: ServerCall) -> None:
        """``served`` is its entry in the recorder."""
        self.session = session
        self.live = session.live
        self.served = served

    def __del__(self) -> None:
        if not self.over:
            self.withdraw()

    # -- the service ---------------------------------------------------------------------------------------------------

    def begin(self, context: Any, interruptible: bool | None = None) -> None:
        """A worker or a task took the call; ``context`` is gRPC's, and knows the deadline.

        ``interruptible``: whether the handler is cancelled when the caller gives up, if that was unknown at the arrival.
        """
        live = self.live
        try:
            served = self.served
            live.started(served, None if served.dated else self.deadline_in(context), interruptible)
            if self.endpoint is not None:
                self.endpoint.heard_from(context)
        except Exception:  # noqa: BLE001 - fail open
            live.report_failure("a call is taken")

    def enter_task(self) -> Root | None:
        """The task that runs this line is the party that serves the call from now on."""
        self.root = root = enter_task(self.session, self.served)
        return root

    def begin_in_task(self, context: Any) -> Root | None:
        """As :meth:`begin`, in the task that runs this line, which serves the call: it is returned."""
        live, served, root = self.live, self.served, self.root
        try:
            if self.endpoint is None and self.seconds_max is None and context.time_remaining() is None:
                live.started(served, None)
            else:
                self.begin(context)
            if root is not None and root.task is current_task_of(asyncio.get_running_loop()):
                return root
        except Exception:  # noqa: BLE001 - fail open
            live.report_failure("a call is taken")
        return self.enter_task()

    def leave_task(self) -> None:
        """It is not the current task that serves the call."""
        self.root = None
        self.session.parties.roots.pop(self.served.party, None)

    def deadline_in(self, context: Any) -> float | None:
        """When gRPC ends the call, as its context tells."""
        remaining = context.time_remaining()
        if self.seconds_max is not None:
            remaining = self.seconds_max if remaining is None else min(remaining, self.seconds_max)
        endless = remaining is None or remaining > DEADLINE_SECONDS_MAX
        return None if endless else self.live.clock() + remaining

    def hang_up(self) -> None:
        """The caller is gone, though the handler may go on."""
        if self.over:  # as after every call: gRPC reports the end either way
            return
        try:
            self.live.hung_up(self.served)
        except Exception:  # noqa: BLE001 - fail open
            self.live.report_failure("a caller hangs up")

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
        """The current party waits for the caller's next item. None if recording that failed."""
        session, served = self.session, self.served
        try:
            what = f"the next request of {served.method}"
            return session.live.waits(session.parties.now(), served.among, 1, None, served.deadline, True, what)
        except Exception:  # noqa: BLE001 - fail open
            session.live.report_failure("a request is awaited")
            return None

    def end_wait(self, wait: WaitNumber | None) -> None:
        """The wait is over."""
        self.session.end_wait(wait)

    def item_received(self, wait: WaitNumber | None) -> None:
        """One item of the request stream arrived, which ends the wait for it in the same step."""
        try:
            self.live.item_received(self.served, wait)
        except Exception:  # noqa: BLE001 - fail open
            self.live.report_failure("a request comes")

    def item_sent(self) -> None:
        """One item of the reply stream was sent."""
        try:
            self.live.item_sent(self.served)
        except Exception:  # noqa: BLE001 - fail open
            self.live.report_failure("an item is sent")

    # -- the end; a second one changes nothing -------------------------------------------------------------------------

    def end(self, trailing: Any, failed: bool = False) -> Any:
        """The call is answered: ``trailing`` with the reply's stamp, if it needs one, and no other.

        Without a stamp for an unstamped caller. The very same object if nothing changes.
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
            pair = self.live.replied(served, failed)
            if pair is None and not trailing:
                return trailing
            return with_stamp(trailing, None if served.caller is None else pair)  # rule 9: nothing is told to strangers
        except Exception:  # noqa: BLE001 - fail open
            self.live.withdrawn(served)
            self.live.report_failure("a call is replied to")
            return trailing

    def withdraw(self) -> None:
        """The call will not be served, or not completely. May run in a finalizer."""
        self.over = True
        self.session.parties.roots.pop(self.served.party, None)
        self.live.withdrawn(self.served)


def enter_task(session: Session, served: ServerCall) -> Root | None:
    """The task that runs this line is the party that serves the call from now on; None: no task does."""
    try:
        task = current_task_of(asyncio.get_running_loop())
        if task is None:
            return None
        parties = session.parties
        root = parties.roots[served.party] = Root(task, served)
        parties.root.set(root)
    except Exception:  # noqa: BLE001 - fail open
        session.live.report_failure("a call is taken")
        return None
    return root


def has_failed(code: Any) -> bool:
    """Whether the finished behaviour raised an exception or set ``code``, a status other than OK."""
    error = sys.exception()
    if error is not None and not isinstance(error, StopIteration | StopAsyncIteration):
        return True
    return code is not None and code not in (0, grpc.StatusCode.OK)


def receive_request(
    session: Session, metadata: Any, method: str, interruptible: bool, seconds_max: float | None
) -> ServerCall | None:
    """The entry of a request that arrived with this metadata; None if recording it failed.

    ``interruptible``: its handler is cancelled when the caller gives up. ``seconds_max``: after that gRPC ends the call.
    """
    live = session.live
    try:
        text: Any = None
        for entry in metadata or ():
            if entry[0] in STAMP_KEYS:
                if text is not None:
                    live.several_stamps()
                    text = None
                    break
                text = entry[1]
        stamp = None if text is None else decode(text) if live.keys.tags is None else live.stamp_of(text, method, reply=False)
        served = live.arrived(stamp, method, interruptible)
        if seconds_max is not None:
            live.queued(served, "", seconds_max)
    except Exception:  # noqa: BLE001 - fail open
        live.report_failure("a request arrives")
        return None
    return served
