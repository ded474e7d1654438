"""A call made here, from begin to end: the state and rules shared by the sync and aio shells.

Each method fails open: it counts an error, and the application's call goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from weakref import ref

import grpc

from stilltrue.model import PartyName, WaitNumber
from stilltrue.protocol.books.ledger import ChannelRecord, ClientCall
from stilltrue.protocol.stamp import Stamp
from stilltrue.protocol.step import StepError
from stilltrue.runtime.calls.callbacks import Callbacks
from stilltrue.runtime.calls.service_config import MethodPolicy, ServiceConfig
from stilltrue.runtime.calls.stamps import read_stamp, with_stamp
from stilltrue.runtime.compat import target_of
from stilltrue.runtime.session import Session

Now = Callable[[], PartyName | None]

ANSWERS = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.DATA_LOSS,
    }
)
"""Failures with these codes come from the server's application; any other, without a stamp, leaves the call in doubt."""


class OutgoingCall:
    """A call that has been sent and is not settled yet."""

    settled = False
    callbacks: Callbacks | None = None

    def __init__(self, session: Session, made: ClientCall) -> None:
        """``made`` is its entry in the recorder."""
        self.session = session
        self.live = session.live
        self.made = made

    # -- waits ---------------------------------------------------------------------------------------------------------

    def begin_wait(self, timeout: float | None = None, *, item: bool = False) -> WaitNumber | None:
        """The current party begins to wait for the call (``item``: for its next item); None if recording failed."""
        return self.session.begin_wait(self.made, timeout, item=item)

    def end_wait(self, wait: WaitNumber | None) -> None:
        """End a wait, if there is one."""
        self.session.end_wait(wait)

    def begin_await(self) -> WaitNumber | None:
        """The current task begins to await the call; return the wait's number if another task made the call."""
        made = self.made
        try:
            party = self.session.parties.of_running_task()
            if party is None:
                return None
            if party == made.party:
                self.live.awaits(made)
                return None
            return self.live.waits(party, made.among, deadline=made.deadline, what=f"the reply to {made.method}")
        except Exception:  # noqa: BLE001 - fail open
            self.live.report_failure("waiting for a call")
            return None

    def end_await(self, wait: WaitNumber | None) -> None:
        """The task no longer awaits the call; ``wait`` is the result of :meth:`begin_await`."""
        try:
            if wait is None:
                self.live.goes_on(self.made)
            else:
                self.live.resumes(wait)
        except Exception:  # noqa: BLE001 - fail open
            self.live.report_failure("ending a wait for a call")

    # -- stream items --------------------------------------------------------------------------------------------------

    def item_sent(self) -> None:
        """One item of the request stream was handed to gRPC."""
        try:
            self.live.item_sent(self.made)
        except Exception:  # noqa: BLE001 - fail open
            self.live.report_failure("sending a stream item")

    def item_received(self, wait: WaitNumber | None) -> None:
        """One item of the reply stream arrived; the wait for it ends in the same step."""
        try:
            self.live.item_received(self.made, wait)
        except Exception:  # noqa: BLE001 - fail open
            self.live.report_failure("receiving a stream item")

    def as_work(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a callback of the application so that it counts as work while it runs."""
        if self.callbacks is None:
            self.callbacks = Callbacks(self.live)
        return self.callbacks.as_work(callback)

    # -- the end; settling twice changes nothing -----------------------------------------------------------------------

    def answered(self, trailing: Any) -> None:
        """The reply arrived with this trailing metadata."""
        try:
            if trailing or self.callbacks is not None:
                self._settle(read_stamp(self.live, trailing, self.made.method, reply=True), in_doubt=False)
            else:
                self.live.settled(self.made, None, False)
                self.settled = True
        except Exception:  # noqa: BLE001 - fail open
            self.live.report_failure("ending a call")

    def ended(self, trailing: Any, code: Any) -> None:
        """The call ended with this trailing metadata and status code."""
        try:
            if code is grpc.StatusCode.OK:
                self.answered(trailing)
                return
            stamp = read_stamp(self.live, trailing, self.made.method, reply=True)
            in_doubt = stamp is None and code not in ANSWERS
            if self.made.facts and not in_doubt:
                self.live.facts_lost(self.made)
            self._settle(stamp, in_doubt=in_doubt)
        except Exception:  # noqa: BLE001 - fail open
            self.live.report_failure("ending a call")

    def failed(self, error: BaseException) -> None:
        """Making the call, or waiting for it inside gRPC, raised ``error``."""
        trailing, code = None, None
        try:
            if isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call):
                trailing, code = error.trailing_metadata(), error.code()
        except Exception:  # noqa: BLE001 - fail open: it is in doubt
            self.live.report_failure("recording a failed call")
        self.ended(trailing, code)

    def dropped(self) -> None:
        """The call ended without a known outcome: it is in doubt (protocol rule 8). May run in a finalizer."""
        try:
            self._settle(None, in_doubt=True)
        except Exception:  # noqa: BLE001 - fail open
            self.live.report_failure("dropping a call")

    def _settle(self, stamp: Stamp | None, *, in_doubt: bool) -> None:
        """Record the end before the application can observe it."""
        if self.callbacks is not None:
            self.callbacks.call_ends()
        self.live.settled(self.made, stamp, in_doubt)
        self.settled = True


class RecordedMethod:
    """One method of one channel; begins its calls."""

    __slots__ = ("_beside", "_sent", "channel", "name", "session", "timeout")

    def __init__(
        self, session: Session, name: str, channel: ChannelRecord, timeout: float | None, beside: RecordedMethods
    ) -> None:
        """``timeout``: seconds, from the channel's service config; ``beside``: all methods of the channel, kept alive."""
        self._beside = beside
        self.session = session
        self.name = name
        self.channel = channel
        self.timeout = timeout
        self._sent = session.live.sent

    def dialled(self) -> object:
        """gRPC's own channel for the method's calls, or None if that channel is gone."""
        return None if self.channel.dialled is None else self.channel.dialled()

    def begin(self, now: Now | None, timeout: float | None, metadata: Any) -> tuple[OutgoingCall | None, Any]:
        """Begin a call; return its state and ``metadata`` with its stamp, or (None, unchanged metadata) if recording failed.

        ``now`` returns the calling party (None: unknown); ``timeout`` in seconds.
        Raises :class:`~stilltrue.protocol.step.StepError`, the application's own error.
        """
        made, metadata = self.send(now, timeout, metadata, False)
        return None if made is None else OutgoingCall(self.session, made), metadata

    def send(self, now: Now | None, timeout: float | None, metadata: Any, waiting: bool) -> tuple[ClientCall | None, Any]:
        """As :meth:`begin`, but return the call's entry in the recorder; ``waiting``: the party begins to wait for it."""
        try:
            if self.timeout is not None:
                timeout = self.timeout if timeout is None else min(timeout, self.timeout)
            made, pair = self._sent(self.name, self.channel, None if now is None else now(), timeout, waiting)
        except StepError:
            raise
        except Exception:  # noqa: BLE001 - fail open: the call goes on unrecorded
            self.session.live.report_failure("starting a call")
            return None, metadata
        return made, with_stamp(metadata, pair) if metadata else (pair,)


def outgoing_in(variables: Mapping[str, Any]) -> OutgoingCall | None:
    """The call that a shell's frame with these variables is making."""
    made, method = variables.get("made"), variables.get("method")
    if type(made) is ClientCall and type(method) is RecordedMethod:
        return OutgoingCall(method.session, made)
    for call in (variables.get("call"), getattr(variables.get("self"), "_call", None)):
        if isinstance(call, OutgoingCall):
            return call
    return None


def weakly(thing: object) -> Callable[[], object] | None:
    """A weak reference; None if the object does not support one."""
    try:
        return ref(thing)
    except TypeError:
        return None


class RecordedMethods:
    """The methods of one channel. Alive while the channel or one of its stubs is: until then calls can be made."""

    __slots__ = ("__weakref__", "_channels", "_config", "_core_target", "_inner", "_session", "_target")

    def __init__(self, session: Session, target: str, config: ServiceConfig, inner: object) -> None:
        """``target``: the address as dialled; ``config``: how gRPC treats calls; ``inner``: gRPC's own channel."""
        self._session = session
        self._target = target
        self._core_target = target_of(inner) if config.known else None
        self._config = config
        self._inner = weakly(inner)
        self._channels: dict[MethodPolicy, ChannelRecord] = {}

    def recorded(self, kind: Callable[[Any, RecordedMethod], Any], name: str, inner: Any) -> Any:
        """``inner`` (gRPC's multi-callable for method ``name``) wrapped in ``kind``, or itself if its calls go unrecorded."""
        if self._session.leaves_out(name):
            return inner
        policy = self._config.of(name)
        record = ChannelRecord(self._target, copies_max=policy.copies_max, hedged=policy.hedged, core_target=self._core_target)
        record.dialled = self._inner
        kept = self._channels.setdefault(policy, record)
        return kind(inner, RecordedMethod(self._session, name, kept, policy.timeout, self))

    def inner(self) -> object:
        """gRPC's own channel; None if it is gone."""
        return None if self._inner is None else self._inner()
