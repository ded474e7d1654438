"""The agent's connection to the detector: one bidirectional stream on its own threads; markers come down, all else goes up.

The application never waits for anything here. An absent detector is retried with growing pauses; one that does not answer is
left after ``welcome_seconds_max``; one that reads slowly makes the outbox drop its oldest reports.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Any

import grpc

from stilltrue.model import CallNumber, SnapshotId, WaitNumber
from stilltrue.protocol.requests.cure import Cured, CureRequest
from stilltrue.protocol.requests.look import Look, LookRequest
from stilltrue.protocol.requests.stacks import StacksFound
from stilltrue.protocol.wire.report import report_to_wire
from stilltrue.protocol.wire.values import process_to_wire
from stilltrue.runtime.lines import LINES
from stilltrue.runtime.membership.backoff import Backoff
from stilltrue.runtime.membership.credentials import Security
from stilltrue.runtime.membership.detector_requests import DetectorRequests
from stilltrue.runtime.membership.differences import Differences
from stilltrue.runtime.membership.leases import Leases
from stilltrue.runtime.membership.triggers import SnapshotRequests
from stilltrue.runtime.recorder import LockedRecorder
from stilltrue.runtime.transport.transport import Transport
from stilltrue.settings import Settings
from stilltrue.v1 import agent_pb2 as pb
from stilltrue.v1 import snapshot_pb2
from stilltrue.v1.agent_pb2_grpc import AgentServiceStub
from stilltrue.version import __version__

TICK_SECONDS = 0.05
QUIET_TICK_SECONDS = 0.25
FOLLOW_SECONDS = 1.0
"""Time between two checks of the file of stamp keys."""
GOODBYE_SECONDS_MAX = 0.5
HASTY_GOODBYE_SECONDS_MAX = 0.25
"""For a process that ends before its first session could be welcomed, in the session's first second."""
_USERS_OF_GRPC: list[grpc.ServerCredentials] = []
"""Keeps gRPC's core from shutting down between two sessions, until the process ends.

It would shut down on a separate thread, holding the lock of ``grpc_init``: the child of a fork at that moment would wait
for that lock when it makes its first channel.
"""
ABSENT_SECONDS_MAX = 10.0
"""How long a detector may be absent before a warning."""
OPTIONS = (
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", 4 * 1024 * 1024),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),
)

_REFUSALS = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)


class Connection:
    """Keeps the agent connected, from :meth:`start` to :meth:`close`."""

    def __init__(
        self,
        live: LockedRecorder,
        settings: Settings,
        look: Callable[[LookRequest], Look] | None = None,
        rename: Callable[[], None] = lambda: None,
        sight: Callable[[], dict[str, Any]] | None = None,
        transport: Transport | None = None,
        cure: Callable[[CureRequest], Cured] | None = None,
        stacks: Callable[[int], StacksFound] | None = None,
        afterwards: Callable[[], None] = lambda: None,
    ) -> None:
        """``live`` takes markers and gives reports; ``look`` answers verification rounds.

        ``rename`` gives the process another name: it is called if another connected program keeps this one.
        ``sight`` says what the agent sees of the process; ``transport`` what gRPC's core knows of its connections.
        ``cure`` aborts calls when an operator asks for it; None: this process does not allow that.
        ``stacks`` finds what the parties stand in that have not moved for long; it may take its time. ``afterwards`` is called
        when reports have been sent.
        """
        self._live = live
        self._detector_requests = DetectorRequests(live, self._ring, look, cure, stacks)
        self._rename = rename
        self._sight = sight
        self._transport = transport
        self._afterwards = afterwards
        self._taken_since: float | None = None
        self._settings = settings
        self._triggers = SnapshotRequests(settings.block_seconds_max)
        self._begun = 0.0
        self._closing = threading.Event()
        self._said_goodbye = threading.Event()
        self._asked: list[str] = []
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._rung = False
        self._happenings = -1
        self._refused: grpc.StatusCode | None = None
        self._absent_since: float | None = time.monotonic()  # None: it has been logged
        self._lease_seconds = 3.0
        self._leases = Leases(pb.Hello(), 0.0)
        self._followed_at = 0.0
        self._addresses = deque(address.strip() for address in settings.detector.split(","))
        self._report_bytes_max = 0
        self._takes_differences = False
        self._in_session = threading.Lock()
        """Held from the making of a session's channel until that is closed and dropped, and by a thread that forks."""
        self._forking: set[int] = set()
        """The threads that are about to fork."""
        self._call: grpc.Call | None = None
        self.welcomed = threading.Event()
        """Set while a detector has accepted this process."""
        self._thread = threading.Thread(target=self._run, name="stilltrue-agent", daemon=True)

    def start(self) -> None:
        """Start connecting."""
        self._begun = time.monotonic()
        if not _USERS_OF_GRPC:
            _USERS_OF_GRPC.append(grpc.local_server_credentials())
        self._live.wake = self._ring
        LINES.begin()
        self._thread.start()

    def close(self) -> None:
        """Say goodbye, if connected or about to be, and stop; takes at most ``GOODBYE_SECONDS_MAX``."""
        self._closing.set()
        self._live.wake = lambda: None
        self._ring()
        if self.welcomed.is_set():
            self._said_goodbye.wait(GOODBYE_SECONDS_MAX)
        elif time.monotonic() - self._begun < 1.0:  # its hello may be on the way: it would be missed
            self._said_goodbye.wait(HASTY_GOODBYE_SECONDS_MAX)
        LINES.end()

    def pause(self, seconds_max: float) -> bool:
        """Before a fork: end the session, and let none begin until :meth:`resume`. Return whether it has ended in time.

        A child that inherits an open connection of gRPC's crashes in about one in fifty of its first calls, and one
        that inherits locks of gRPC's core hangs.
        """
        self._forking.add(threading.get_ident())
        call = self._call
        if call is not None:
            call.cancel()
        return self._in_session.acquire(timeout=seconds_max)

    def resume(self, *, paused: bool) -> None:
        """After the fork, in the parent; ``paused`` is what :meth:`pause` has returned."""
        self._forking.discard(threading.get_ident())
        if paused:
            self._in_session.release()

    def request_snapshot(self, reason: str) -> None:
        """Ask for a snapshot, now, or when connected."""
        if len(self._asked) < 10:
            self._asked.append(reason)
        self._ring()

    def _ring(self) -> None:
        """Wake the sender; safe anywhere, also in a finalizer or a signal handler."""
        if not self._rung:
            self._rung = True
            self._bell.put(None)

    # -- one session after the other -----------------------------------------------------------------------------------

    @property
    def _address(self) -> str:
        """Which of the detector's addresses is dialled now; the next one is when that fails."""
        return self._addresses[0]

    def _run(self) -> None:
        backoff = Backoff(self._settings.backoff_seconds_max)
        while not self._closing.is_set():
            self._follow_keys()
            begun = time.monotonic()
            with self._in_session:
                interrupted = self._one_session()
            if self.welcomed.is_set():
                self._absent_since = time.monotonic()
                self.welcomed.clear()
            pause = backoff.pause(time.monotonic() - begun, interrupted=interrupted)
            if not interrupted:
                self._addresses.rotate(-1)
            self._closing.wait(pause)
            self._live.catch_up()
        self._said_goodbye.set()  # nobody is left to say it to

    def _one_session(self) -> bool:
        """Run a session to its end; return whether a fork has ended it."""
        try:
            self._session()
        except grpc.RpcError as error:
            if self._forking:
                return True
            code = error.code() if isinstance(error, grpc.Call) else None
            self._log_left(code, error)
            self._heed_name(code)
        except Exception:  # noqa: BLE001 - the thread must outlive whatever happens in a session
            self._live.report_failure("a session with the detector")
        return False

    def _log_left(self, code: grpc.StatusCode | None, error: grpc.RpcError) -> None:
        """Log a long absence of the detector once, and a refusal once for each reason."""
        if code in _REFUSALS and code is not self._refused:
            self._refused = code
            details = error.details() if isinstance(error, grpc.Call) else ""
            LINES.warning("detector refused: address=%s code=%s reason=%s", self._settings.detector, code.name, details)
        elif self._absent_since is not None and time.monotonic() - self._absent_since > ABSENT_SECONDS_MAX:
            self._absent_since = None
            text = "no detector: address=%s code=%s; this process runs unwatched and keeps trying (STILLTRUE_DETECTOR)"
            LINES.warning(text, self._settings.detector, "" if code is None else code.name)
        else:
            LINES.debug("detector left: address=%s code=%s", self._settings.detector, code)

    def _heed_name(self, code: grpc.StatusCode | None) -> None:
        """A name that stays taken for two leases belongs to another live program: a dead one would have left by then."""
        now = time.monotonic()
        if code is not grpc.StatusCode.ALREADY_EXISTS:
            self._taken_since = None
        elif self._taken_since is None:
            self._taken_since = now
        elif now - self._taken_since > 2 * self._lease_seconds:
            self._taken_since = None
            self._rename()

    def _session(self) -> None:
        over = threading.Event()
        channel = self._dial()
        stub = AgentServiceStub(channel)  # type: ignore[no-untyped-call]  # generated code
        self._call = call = stub.Connect(self._requests(over))
        if self._forking:  # since before the call was there to be cancelled
            call.cancel()
        try:
            patience = threading.Timer(self._settings.welcome_seconds_max, call.cancel)
            patience.daemon = True
            patience.start()
            try:
                for response in call:
                    self._hear(response, patience)
            finally:
                patience.cancel()
        finally:
            over.set()
            self._ring()
            self._call = None
            call.cancel()
            channel.close()

    def _dial(self) -> grpc.Channel:
        settings = self._settings
        security = Security(
            ca=settings.tls_ca_file,
            certificate=settings.tls_cert_file,
            key=settings.tls_key_file,
            token_file=settings.token_file,
        )
        return security.channel(self._address, OPTIONS)

    def _hear(self, response: pb.ConnectResponse, patience: threading.Timer) -> None:
        kind = response.WhichOneof("message")
        if kind == "mark":
            report = self._live.marked(SnapshotId(response.mark.snapshot), map(CallNumber, response.mark.settled))
            if report is None:
                self._leases.demanded = True  # it has been cut for: the lease says so
                self._ring()
            else:
                self._live.post(report)
        elif kind == "welcome":
            patience.cancel()
            self._lease_seconds = max(0.1, response.welcome.lease_seconds)
            self._report_bytes_max = response.welcome.report_bytes_max
            self._takes_differences = response.welcome.differences
            self._refused = None
            self._taken_since = None
            self.welcomed.set()
            LINES.info("detector joined: address=%s name=%s", self._address, response.welcome.detector)
        else:
            self._detector_requests.handle(response)

    def _tick_seconds(self) -> float:
        """When to look for parties that are blocked for long again.

        Later where nothing has happened since the last time and nobody waits: a wait that begins now is not long before then.
        """
        live, before = self._live, self._happenings
        self._happenings = live.recorder.happenings
        if self._happenings != before or live.deferred or live.oldest_wait(WaitNumber(0)) is not None:
            return TICK_SECONDS
        return max(TICK_SECONDS, min(QUIET_TICK_SECONDS, self._settings.block_seconds_max))

    def _follow_keys(self) -> None:
        now = time.monotonic()
        if now - self._followed_at >= FOLLOW_SECONDS:
            self._followed_at = now
            self._live.keys.follow()

    # -- what goes up; run by gRPC's own thread for the stream ---------------------------------------------------------

    def _requests(self, over: threading.Event) -> Iterator[pb.ConnectRequest]:
        live = self._live
        hello = pb.Hello(
            process=process_to_wire(live.recorder.process),
            labels=self._settings.labels,
            colour=live.recorder.colour,
            agent=f"python/{__version__}",
            reactive=self._settings.reactive,
            looks=True,
            cures=self._detector_requests.cures,
            stacks=self._detector_requests.stacks,
            sight=None if self._sight is None else pb.Sight(**self._sight()),
        )
        self._leases = leases = Leases(hello, time.monotonic())
        self._takes_differences, differences = False, Differences()
        yield pb.ConnectRequest(hello=hello)
        while not over.is_set():
            self._follow_keys()
            try:
                self._bell.get(timeout=self._tick_seconds())
            except Empty:
                live.catch_up()
            self._rung = False
            for report in self._reports():
                leases.reported()
                yield differences.request(report) if self._takes_differences else pb.ConnectRequest(report=report)
            yield from self._detector_requests.answers()
            if self._closing.is_set():
                yield pb.ConnectRequest(goodbye=pb.Goodbye())
                self._said_goodbye.set()
                return
            now = time.monotonic()
            if leases.due(now, self._lease_seconds) and leases.must_send(lease := self._lease(), now):
                yield pb.ConnectRequest(lease=lease)
            yield from self._pleas(now)

    def _reports(self) -> Iterator[snapshot_pb2.Report]:
        live = self._live
        while live.reports:
            report = live.reports.popleft()
            message = report_to_wire(report if self._transport is None else self._transport.with_connections(report))
            if self._report_bytes_max and message.ByteSize() > self._report_bytes_max:
                live.dropped += 1
                continue
            yield message
            self._afterwards()

    def _lease(self) -> pb.Lease:
        live = self._live
        if self._transport is not None:
            self._transport.learn()
        return pb.Lease(
            colour=live.recorder.colour,
            reports_dropped=live.dropped,
            stamps_refused=live.recorder.refused + live.stamps_refused,
            sight=None if self._sight is None else pb.Sight(**self._sight()),
        )

    def _pleas(self, now: float) -> Iterator[pb.ConnectRequest]:
        while self._asked:
            yield pb.ConnectRequest(wish=pb.Wish(reason=self._asked.pop(0)))
        request = self._triggers.poll(self._live, now)
        if request is not None:
            yield pb.ConnectRequest(wish=pb.Wish(reason=request.reason, covered_seconds=request.covered_seconds))
