"""The agent's connection to the detector: a bidirectional stream on its own threads, with markers down and reports up.

The application never waits for this module. If the detector is absent, the agent retries with growing pauses; if it does not
answer, the agent disconnects after ``welcome_seconds_max``; if it reads slowly, the outbox drops its oldest reports.
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
from stilltrue.runtime import compat, own_threads
from stilltrue.runtime.locked_recorder import LockedRecorder
from stilltrue.runtime.log_queue import LOG
from stilltrue.runtime.membership.backoff import Backoff
from stilltrue.runtime.membership.credentials import Security, SecurityRefusedError
from stilltrue.runtime.membership.detector_requests import DetectorRequests
from stilltrue.runtime.membership.differences import Differences
from stilltrue.runtime.membership.leases import Leases
from stilltrue.runtime.membership.member_mark import MemberMark
from stilltrue.runtime.membership.triggers import SnapshotRequests
from stilltrue.runtime.transport.transport import Transport
from stilltrue.settings import Settings
from stilltrue.v1 import agent_pb2 as pb
from stilltrue.v1 import snapshot_pb2
from stilltrue.v1.agent_pb2_grpc import AgentServiceStub
from stilltrue.version import __version__

TICK_SECONDS = 0.05
QUIET_TICK_SECONDS = 0.25
KEYS_CHECK_SECONDS = 1.0
"""Time between two checks of the file of stamp keys."""
GOODBYE_SECONDS_MAX = 2.0
"""The thread that sends may be searching, for a quarter of a second of processor time: much longer on a busy machine."""
HASTY_GOODBYE_SECONDS_MAX = 0.25
"""For a process that ends within a second of its start, before the detector's welcome."""
_USERS_OF_GRPC: list[grpc.Channel] = []
"""A channel that never connects: it keeps gRPC's core and its event engine from ending between two sessions.

The core ends on a separate thread, which holds the lock of ``grpc_init``. A child forked at that moment would wait for that
lock forever when it makes its first channel. The event engine ends with the last channel, and gRPC's fork handlers stop its
threads: both at once abort the process (``Check failed: queue_.Empty()``, grpc/grpc 40741), or hang.
"""
_NOWHERE = "unix:/nonexistent"
ABSENT_SECONDS_MAX = 10.0
"""Absence of the detector after which a warning is logged."""
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
        reports_sent: Callable[[], bool] = lambda: False,
        kind: str = "python",
    ) -> None:
        """``live`` receives markers and returns reports; ``look`` answers verification rounds.

        ``rename`` gives the process another name; called if another connected program keeps using this one.
        ``sight`` returns what the agent sees of the process; ``transport`` adds the connections of calls to reports.
        ``cure`` aborts calls at an operator's request; None: this process does not allow it.
        ``stacks`` returns the stacks of parties that have long been without progress; it may be slow.
        ``reports_sent`` is called after each report, and again at the next ticks as long as it returns True. ``kind``: the
        first part of the agent's name and version in the hello.
        """
        self._live = live
        self._detector_requests = DetectorRequests(live, self._wake_sender, look, cure, stacks)
        self._rename = rename
        self._sight = sight
        self._transport = transport
        self._reports_sent = reports_sent
        self._has_more_to_do = False
        self._kind = kind
        self._name_taken_since: float | None = None
        self._settings = settings
        self._triggers = SnapshotRequests(settings.block_seconds_max)
        self._started_at = 0.0
        self._closing = threading.Event()
        self._goodbye_sent = threading.Event()
        self._snapshot_reasons: list[str] = []
        self._wakeups: SimpleQueue[None] = SimpleQueue()
        self._wake_pending = False
        self._happenings = -1
        self._refused: grpc.StatusCode | None = None
        self._unusable = ""
        self._absent_since: float | None = time.monotonic()  # None: it is there, or its absence has been logged
        self._lease_seconds = 3.0
        self._leases = Leases(pb.Hello(), 0.0)
        self._keys_checked_at = 0.0
        self._addresses = deque(address.strip() for address in settings.detector.split(","))
        self._report_bytes_max = 0
        self._logged_bytes_max = 0
        self._takes_differences = False
        self._session_lock = threading.Lock()
        """Held from the creation of a session's channel until that is closed and dropped, and by a thread that forks."""
        self._forking: set[int] = set()
        """Threads that are about to fork."""
        self._call: grpc.Call | None = None
        self.welcomed = threading.Event()
        self.mark = MemberMark()
        """Set while a detector has accepted this process."""
        self._thread = threading.Thread(target=self._run, name="stilltrue-agent", daemon=True)

    def start(self) -> None:
        """Start connecting."""
        self._started_at = time.monotonic()
        if not _USERS_OF_GRPC:
            _USERS_OF_GRPC.append(Security().channel(_NOWHERE, OPTIONS))
            compat.mark_own(_USERS_OF_GRPC[0])
        self._live.wake = self._wake_sender
        LOG.begin()
        self._thread.start()

    def close(self) -> None:
        """Say goodbye if connected or about to be, and stop. Takes at most ``GOODBYE_SECONDS_MAX``."""
        self._closing.set()
        self._live.wake = lambda: None
        self._wake_sender()
        if self.welcomed.is_set():
            self._goodbye_sent.wait(GOODBYE_SECONDS_MAX)
        elif time.monotonic() - self._started_at < 1.0:  # after a hello without a goodbye it would be a missing member
            self._goodbye_sent.wait(HASTY_GOODBYE_SECONDS_MAX)
        self.mark.clear()
        LOG.end()

    def pause(self, seconds_max: float) -> list[threading.Lock]:
        """Before a fork: end the session and the current look, and begin no other until :meth:`resume`.

        Returns the locks that prevent it: not all if something did not end in time.

        A child that inherits an open gRPC connection crashes in about one in fifty of its first calls, and one that inherits
        held locks of gRPC's core hangs.
        """
        self._forking.add(threading.get_ident())
        call = self._call
        if call is not None:
            call.cancel()
        end = time.monotonic() + seconds_max
        locks = (self._session_lock, self._detector_requests.looking)
        return [lock for lock in locks if lock.acquire(timeout=max(0.0, end - time.monotonic()))]

    def resume(self, locks: list[threading.Lock]) -> None:
        """After the fork, in the parent; ``locks`` is the result of :meth:`pause`."""
        self._forking.discard(threading.get_ident())
        for lock in locks:
            lock.release()

    def request_snapshot(self, reason: str) -> None:
        """Ask for a snapshot now, or once connected."""
        if len(self._snapshot_reasons) < 10:
            self._snapshot_reasons.append(reason)
        self._wake_sender()

    def _wake_sender(self) -> None:
        """Wake the sender. Safe anywhere, even in a finalizer or a signal handler."""
        if not self._wake_pending:
            self._wake_pending = True
            self._wakeups.put(None)

    # -- sessions ------------------------------------------------------------------------------------------------------

    @property
    def _address(self) -> str:
        """The detector address to dial; the next one is dialled after a failure."""
        return self._addresses[0]

    def _run(self) -> None:
        backoff = Backoff(self._settings.backoff_seconds_max)
        while not self._closing.is_set():
            self._reload_keys()
            begun = time.monotonic()
            with self._session_lock:
                interrupted = self._run_session()
            if self.welcomed.is_set():
                self._absent_since = time.monotonic()
                self.welcomed.clear()
            pause = backoff.pause(time.monotonic() - begun, interrupted=interrupted)
            if not interrupted:
                self._addresses.rotate(-1)
            self._closing.wait(pause)
            self._live.catch_up()
        self._goodbye_sent.set()  # no session is left to send it on

    def _run_session(self) -> bool:
        """Run a session to its end; return whether a fork interrupted it."""
        try:
            self._session()
        except grpc.RpcError as error:
            if self._forking:
                return True
            code = error.code() if isinstance(error, grpc.Call) else None
            self._log_disconnect(code, error)
            self._rename_if_taken(code)
        except SecurityRefusedError as error:
            self._log_unusable(str(error))
        except Exception:  # noqa: BLE001 - the thread must outlive any failure of a session
            self._live.report_failure("running a session with the detector")
        return False

    def _log_disconnect(self, code: grpc.StatusCode | None, error: grpc.RpcError) -> None:
        """Log a long absence of the detector once, and each reason for a refusal once."""
        details = error.details() if isinstance(error, grpc.Call) else ""
        if code in _REFUSALS and code is not self._refused:
            self._refused = code
            LOG.warning("the detector at %s refused this process: %s: %s", self._settings.detector, code.name, details)
        elif self._absent_since is not None and time.monotonic() - self._absent_since > ABSENT_SECONDS_MAX:
            self._absent_since = None
            text = (
                "no detector at %s (%s: %s); this process runs unwatched and keeps trying "
                "(check STILLTRUE_DETECTOR; if the detector uses TLS, STILLTRUE_TLS_CA_FILE, and if it requires a client "
                "certificate or a token, STILLTRUE_TLS_CERT_FILE and STILLTRUE_TLS_KEY_FILE, or STILLTRUE_TOKEN_FILE)"
            )
            LOG.warning(text, self._settings.detector, "unknown" if code is None else code.name, details)
        else:
            LOG.debug("the detector at %s has gone: %s", self._settings.detector, code)

    def _log_unusable(self, reason: str) -> None:
        """Log each reason why the certificates or the token cannot be used once."""
        if reason != self._unusable:
            self._unusable = reason
            LOG.warning("no detector: %s; this process runs unwatched and keeps trying", reason)

    def _rename_if_taken(self, code: grpc.StatusCode | None) -> None:
        """Rename the process if its name stays taken for two leases: a dead program would have lost the name by then."""
        now = time.monotonic()
        if code is not grpc.StatusCode.ALREADY_EXISTS:
            self._name_taken_since = None
        elif self._name_taken_since is None:
            self._name_taken_since = now
        elif now - self._name_taken_since > 2 * self._lease_seconds:
            self._name_taken_since = None
            self._rename()

    def _session(self) -> None:
        over = threading.Event()
        channel = self._dial()
        compat.mark_own(channel)
        stub = AgentServiceStub(channel)  # type: ignore[no-untyped-call]  # generated code
        with own_threads.starting():
            self._call = call = stub.Connect(self._requests(over))
        if self._forking:  # pause() came before the call could be cancelled
            call.cancel()
        answered = threading.Event()
        try:
            arguments = (call, answered)
            threading.Thread(target=self._await_welcome, args=arguments, name="stilltrue-agent-welcome", daemon=True).start()
            for response in call:
                self._handle(response, answered)
        finally:
            answered.set()
            over.set()
            self._wake_sender()
            self._call = None
            call.cancel()
            channel.close()

    def _await_welcome(self, call: Any, answered: threading.Event) -> None:
        """Cancel a call without a welcome in time. A ``threading.Timer`` would look like one that the application has set."""
        if not answered.wait(self._settings.welcome_seconds_max):
            call.cancel()

    def _dial(self) -> grpc.Channel:
        settings = self._settings
        security = Security(
            ca=settings.tls_ca_file,
            certificate=settings.tls_cert_file,
            key=settings.tls_key_file,
            token_file=settings.token_file,
        )
        return security.channel(self._address, OPTIONS)

    def _handle(self, response: pb.ConnectResponse, answered: threading.Event) -> None:
        kind = response.WhichOneof("message")
        if kind == "mark":
            report = self._live.marked(SnapshotId(response.mark.snapshot), map(CallNumber, response.mark.settled))
            if report is None:
                self._leases.demanded = True  # the process has already cut for it: a lease reports its colour
                self._wake_sender()
            else:
                self._live.post(report)
        elif kind == "welcome":
            answered.set()
            self._lease_seconds = max(0.1, response.welcome.lease_seconds)
            self._report_bytes_max = response.welcome.report_bytes_max
            self._takes_differences = response.welcome.differences
            self._refused = self._absent_since = self._name_taken_since = None
            self._unusable = ""
            self.welcomed.set()
            self.mark.set()
            if self._closing.is_set():  # it may have cleared the mark just before
                self.mark.clear()
            LOG.info("joined the detector at %s (%s)", self._address, response.welcome.detector)
        else:
            self._detector_requests.handle(response)

    def _tick_seconds(self) -> float:
        """Seconds until the next check for parties that have been blocked for long.

        Longer if nothing has happened since the last check and no party waits: a wait that begins now is not long until then.
        """
        live, before = self._live, self._happenings
        self._happenings = live.recorder.happenings
        if self._happenings != before or live.deferred or live.oldest_wait(WaitNumber(0)) is not None:
            return TICK_SECONDS
        return max(TICK_SECONDS, min(QUIET_TICK_SECONDS, self._settings.block_seconds_max))

    def _reload_keys(self) -> None:
        now = time.monotonic()
        if now - self._keys_checked_at >= KEYS_CHECK_SECONDS:
            self._keys_checked_at = now
            self._live.keys.reload()

    # -- sending; runs on gRPC's own thread for the stream -------------------------------------------------------------

    def _requests(self, over: threading.Event) -> Iterator[pb.ConnectRequest]:
        live = self._live
        hello = pb.Hello(
            process=process_to_wire(live.recorder.process),
            labels=self._settings.labels,
            colour=live.recorder.colour,
            agent=f"{self._kind}/{__version__}",
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
            self._reload_keys()
            try:
                self._wakeups.get(timeout=self._tick_seconds())
            except Empty:
                live.catch_up()
                if self._has_more_to_do and not self._closing.is_set():
                    self._has_more_to_do = self._reports_sent()
            self._wake_pending = False
            for report in self._reports():
                leases.reported()
                yield differences.request(report) if self._takes_differences else pb.ConnectRequest(report=report)
            yield from self._detector_requests.answers()
            if self._closing.is_set():
                yield pb.ConnectRequest(goodbye=pb.Goodbye())
                self._goodbye_sent.set()
                return
            now = time.monotonic()
            if leases.due(now, self._lease_seconds) and leases.must_send(lease := self._lease(), now):
                yield pb.ConnectRequest(lease=lease)
            yield from self._snapshot_requests(now)

    def _reports(self) -> Iterator[snapshot_pb2.Report]:
        live = self._live
        while live.reports:
            report = live.reports.popleft()
            message = report_to_wire(report if self._transport is None else self._transport.with_connections(report))
            if self._report_bytes_max and (size := message.ByteSize()) > self._report_bytes_max:
                live.dropped += 1
                self._log_too_large(size)
                continue
            yield message
            if not self._closing.is_set():
                self._has_more_to_do = self._reports_sent()

    def _log_too_large(self, size: int) -> None:
        """Log the first report that exceeds the detector's bound: without its reports this process is a missing member."""
        if self._logged_bytes_max != self._report_bytes_max:
            self._logged_bytes_max = self._report_bytes_max
            text = "report dropped: bytes=%d bytes_max=%d (raise --report-bytes-max of the detector, or look for leaked calls)"
            LOG.warning(text, size, self._report_bytes_max)

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

    def _snapshot_requests(self, now: float) -> Iterator[pb.ConnectRequest]:
        while self._snapshot_reasons:
            yield pb.ConnectRequest(wish=pb.Wish(reason=self._snapshot_reasons.pop(0)))
        request = self._triggers.poll(self._live, now)
        if request is not None:
            yield pb.ConnectRequest(wish=pb.Wish(reason=request.reason, covered_seconds=request.covered_seconds))
