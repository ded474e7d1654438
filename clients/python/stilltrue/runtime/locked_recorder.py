"""The recorder in a live process: adds a lock, a clock, and an outbox for the reports of its cuts.

One method per event, as in :mod:`stilltrue.protocol.recorder`. Each holds the lock for one step, never blocks while holding
it, and never calls the application's code. Python may run a finalizer or a signal handler in the middle of a step, in the same
thread: a step that reenters the lock is refused (:class:`ReenteredError`) or, if it ends something, deferred to the next step.
On the path of a call, a step acquires the lock by hand, in half the time that ``with`` takes: inside the ``try``, since a
signal handler may raise once the lock is acquired, or before. It also releases the lock by hand: a function for that could be
interrupted before it has done so.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable
from math import inf
from time import monotonic
from typing import Any

from stilltrue.model import CallNumber, Facts, PartyName, ProcessId, SnapshotId, WaitNumber
from stilltrue.protocol.books.call_state import ServerState
from stilltrue.protocol.books.ledger import ChannelRecord, ClientCall, ServedContext, ServerCall
from stilltrue.protocol.local_state import PoolSize
from stilltrue.protocol.recorder import Recorder
from stilltrue.protocol.report import Report, Target
from stilltrue.protocol.requests.look import Look, LookRequest
from stilltrue.protocol.stamp import METADATA_KEY, Stamp, decode, encode
from stilltrue.protocol.step import Step, StepError
from stilltrue.runtime.declared.idle_declaration import IdleDeclaration, declaration
from stilltrue.runtime.log_queue import LOG
from stilltrue.runtime.membership.stamp_keys import StampKeys
from stilltrue.runtime.steady_clock import SteadyClock

FAULT_LOG_SECONDS = 60.0
DECLARING_MAX = 10_000

Pair = tuple[str, str]


def here() -> int:
    """A key for the current task, else the current thread."""
    if asyncio._get_running_loop() is not None:  # noqa: SLF001 - the documented way that does not raise
        task = asyncio.current_task()
        if task is not None:
            return id(task)
    return threading.get_ident()


class ReenteredError(RuntimeError):
    """A thread began a step in the middle of its own previous one; the call goes unrecorded."""


class LockedRecorder:
    """A recorder that every thread of the process may use."""

    __slots__ = (
        "__weakref__",
        "_begin",
        "_clock",
        "_logged_at",
        "_offset",
        "called",
        "covered",
        "declaring",
        "deferred",
        "dropped",
        "faults",
        "keys",
        "lock",
        "pools",
        "recorder",
        "reports",
        "reports_max",
        "stamps_refused",
        "steps",
        "wake",
    )

    def __init__(
        self,
        begin: Callable[[], Recorder],
        *,
        reports_max: int = 64,
        clock: Callable[[], float] | None = None,
        keys: StampKeys | None = None,
    ) -> None:
        """``begin`` makes the recorder, and a new one after a fork; at most ``reports_max`` reports wait to be sent.

        ``keys`` sign stamps; only stamps signed with them are accepted.
        """
        self._begin = begin
        self.keys = keys or StampKeys()
        self._logged_at = 0.0
        steady = SteadyClock()
        self.clock = clock or steady.__call__  # a bound method is called twice as fast as an object
        self._offset = steady.offset if clock is None else None
        """Added to the monotonic clock on the path of a call, which saves a function call; None: use ``clock``."""
        self.reports_max = reports_max
        self.wake: Callable[[], None] = lambda: None
        self.pools: dict[str, PoolSize] = {}
        """The worker pools opened so far, including those opened before a fork: name and size."""
        self.restart()

    @property
    def clock(self) -> Callable[[], float]:
        """Returns the time in seconds since the epoch."""
        return self._clock

    @clock.setter
    def clock(self, clock: Callable[[], float]) -> None:
        self._clock, self._offset = clock, None

    def restart(self) -> None:
        """Start afresh after a fork: nothing that the parent's threads held or recorded belongs to this process."""
        self.lock: Any = threading.RLock()
        self.recorder = self._begin()
        for name, size in self.pools.items():
            self.recorder.pool_opened(name, size)
        self.reports: deque[Report] = deque()
        self.deferred: deque[Callable[[], object]] = deque()
        self.steps: dict[int, Step] = {}
        """The application's open steps, by the task or thread that runs them."""
        self.called = False
        """Whether any call was made here or has arrived."""
        self.covered: IdleDeclaration | None = None
        """What the application's idle declaration covers, as of its first call or its last ``idle``."""
        self.declaring: set[int] = set()
        """The threads and tasks, by :func:`here`, that have declared work of their own."""
        self.dropped = 0
        self.faults = 0
        self.stamps_refused = 0

    # -- markers -------------------------------------------------------------------------------------------------------

    def marked(self, snapshot: SnapshotId, settled: Iterable[CallNumber] = ()) -> Report | None:
        """A marker arrived: return the report of the cut that it causes, or None. The outbox does not get the report.

        ``settled``: calls in doubt that the detector knows to have been answered.
        """
        with self.lock:
            self._catch_up()
            self.recorder.doubts_settled(settled)
            return self.recorder.marked(snapshot, self.clock())

    def post(self, report: Report) -> None:
        """Put a report into the outbox."""
        with self.lock:
            self._put(report)

    def catch_up(self) -> None:
        """Run the steps that finalizers deferred."""
        if self.deferred:
            with self.lock:
                self._catch_up()

    def oldest_wait(self, after: WaitNumber) -> tuple[WaitNumber, float] | None:
        """As :meth:`Recorder.oldest_wait`."""
        with self.lock:
            return self.recorder.oldest_wait(after)

    def look(self, request: LookRequest) -> Look:
        """As :meth:`Recorder.look`: answers from the record alone."""
        with self.lock:
            self._catch_up()
            return self.recorder.look(request, self.clock())

    # -- calls made ----------------------------------------------------------------------------------------------------

    def sent(
        self, method: str, channel: ChannelRecord, party: PartyName | None, timeout: float | None, waiting: bool
    ) -> tuple[ClientCall, Pair]:
        """A call is made: return its record and the stamp to add to its metadata. ``timeout`` in seconds."""
        lock = self.lock
        if lock._is_owned():  # noqa: SLF001 - what threading.Condition asks of every lock
            raise ReenteredError
        now = self._clock() if self._offset is None else monotonic() + self._offset
        deadline = None if timeout is None else now + timeout
        covered = None if self.called else declaration(now, self.declaring)  # without the lock: it reads every child process
        try:
            lock.acquire()
            if covered is not None and not self.called:
                self.called, self.covered = True, covered
            if self.deferred:
                self._catch_up()
            step = self.steps.get(here()) if self.steps else None
            recorder = self.recorder
            made, stamp = recorder.sent(method, channel, now, party, deadline, waiting, step)
            sender = recorder.sender
        finally:
            try:  # noqa: SIM105
                lock.release()
            except RuntimeError:  # interrupted before it was acquired
                pass
        if self.keys.tags is not None:
            return made, self._pair(stamp, method, reply=False)
        _, _, number, colour, floor, known = stamp
        if known:  # as by encode, but no number is turned into text that is known
            digits = str(number)
            lowest = digits if floor == number else floor
            return made, (METADATA_KEY, f"{sender};{digits};{colour};{lowest};{known}")
        return made, (METADATA_KEY, encode(stamp))

    def awaits(self, made: ClientCall, timeout: float | None = None) -> None:
        """The party that made the call begins to wait for it, for at most ``timeout`` seconds."""
        lock = self.lock
        if lock._is_owned():  # noqa: SLF001
            raise ReenteredError
        now = self._clock() if self._offset is None else monotonic() + self._offset
        try:
            lock.acquire()
            self.recorder.awaits(made, now, None if timeout is None else now + timeout)
        finally:
            try:  # noqa: SIM105
                lock.release()
            except RuntimeError:  # interrupted before it was acquired
                pass

    def goes_on(self, made: ClientCall) -> None:
        """The party that made the call no longer waits for it."""
        if made.wait:
            with self._step():
                self.recorder.goes_on(made)

    def coloured(self, stamp: Stamp) -> None:
        """Part of a message with this stamp was received that neither begins nor settles a call (protocol rule 2)."""
        with self._step():
            report = self.recorder.coloured(stamp, self.clock())
            if report is not None:
                self._put(report)

    def settled(self, made: ClientCall, stamp: Stamp | None, in_doubt: bool) -> None:
        """The outcome of a call is known, or in doubt. May run in a finalizer."""
        lock = self.lock
        if lock._is_owned():  # noqa: SLF001
            self.deferred.append(lambda: self._settle(made, stamp, in_doubt))
            return
        try:
            lock.acquire()
            if stamp is None and not in_doubt:  # no cut and no doubt: the time is not needed
                self.recorder.settled(made, None, 0.0)
            else:
                self._settle(made, stamp, in_doubt)
        finally:
            try:  # noqa: SIM105
                lock.release()
            except RuntimeError:  # interrupted before it was acquired
                pass

    def facts_lost(self, made: ClientCall) -> None:
        """A request that carried facts failed. May run in a finalizer."""
        if self.lock._is_owned():  # noqa: SLF001
            self.deferred.append(lambda: self.recorder.facts_lost(made))
            return
        with self.lock:
            self.recorder.facts_lost(made)

    def _settle(self, made: ClientCall, stamp: Stamp | None, in_doubt: bool) -> None:
        report = self.recorder.settled(made, stamp, self.clock(), in_doubt)
        if report is not None:
            self._put(report)

    # -- steps of the application --------------------------------------------------------------------------------------

    def open(self, step: Step) -> int:
        """Open a step for the current party; return the key for :meth:`close`. Raises :class:`StepError`."""
        key = here()
        with self._step():
            if key in self.steps:
                raise StepError("atomic(): a step is already open here")
            self.steps[key] = step
        return key

    def close(self, key: int, step: Step) -> None:
        """Apply a step that has ended."""
        with self._step():
            if self.steps.pop(key, None) is step:  # a step during which the process forked is the parent's
                self.recorder.closed(step, self.clock())

    # -- calls served --------------------------------------------------------------------------------------------------

    def arrived(self, stamp: Stamp | None, method: str, interruptible: bool, label: str = "") -> ServerCall:
        """A request arrived; ``label`` as for :meth:`Recorder.arrived`."""
        lock = self.lock
        if lock._is_owned():  # noqa: SLF001
            raise ReenteredError
        now = self._clock() if self._offset is None else monotonic() + self._offset
        covered = None if self.called else declaration(now, self.declaring)  # as in sent
        with lock:
            if covered is not None and not self.called:
                self.called, self.covered = True, covered
            served, report = self.recorder.arrived(stamp, method, now, interruptible, label=label)
            if report is not None:
                self._put(report)
        return served

    def arrived_again(self, text: str, method: str, interruptible: bool) -> ServerCall | None:
        """As :meth:`Recorder.arrived_again`; None means that the request must be recorded by :meth:`arrived`."""
        lock = self.lock
        if self.keys.tags is not None or lock._is_owned():  # noqa: SLF001
            return None
        now = self._clock() if self._offset is None else monotonic() + self._offset
        try:
            lock.acquire()
            return self.recorder.arrived_again(text, method, now, interruptible)
        finally:
            try:  # noqa: SIM105
                lock.release()
            except RuntimeError:  # interrupted before it was acquired
                pass

    def started(
        self,
        served: ServerCall,
        deadline: float | None,
        interruptible: bool | None = None,
        context: ServedContext | None = None,
    ) -> None:
        """A worker took the call; ``deadline`` (epoch) is the call's own. Other arguments as for :meth:`Recorder.started`."""
        lock = self.lock
        if lock._is_owned():  # noqa: SLF001
            raise ReenteredError
        try:
            lock.acquire()
            self.recorder.started(served, deadline, interruptible, context)
        finally:
            try:  # noqa: SIM105
                lock.release()
            except RuntimeError:  # interrupted before it was acquired
                pass

    def queued(self, served: ServerCall, pool: str, timeout: float | None = None, deadline_known: bool = False) -> None:
        """The call waits behind a pool, for ``timeout`` more seconds at most; ``deadline_known``: no other deadline ends it."""
        deadline = None if timeout is None or timeout == inf else self.clock() + timeout
        self.recorder.queued(served, pool, deadline, deadline_known)

    def hung_up(self, served: ServerCall) -> None:
        """The caller is gone. May run in a finalizer."""
        if served.state is ServerState.OVER:  # gRPC reports the end of every call, also of answered ones
            return
        if self.lock._is_owned():  # noqa: SLF001
            self.deferred.append(lambda: self.recorder.hung_up(served))
            return
        with self.lock:
            self.recorder.hung_up(served)

    def left_unanswered(self, served: ServerCall, context: ServedContext) -> bool:
        """As :meth:`Recorder.left_unanswered`."""
        with self._step():
            return self.recorder.left_unanswered(served, context)

    def reply_begun(self, served: ServerCall) -> Pair:
        """The initial metadata of a reply is sent: return its stamp. The call is still served."""
        with self._step():
            stamp = self.recorder.reply_begun(served)
        return self._pair(stamp, served.method, reply=True)

    def replied(self, served: ServerCall, failed: bool = False, stamped: bool = False) -> Pair | None:
        """The call is answered: return the stamp for the reply's trailing metadata, or None if it needs none.

        ``failed``: answered with an error; ``stamped``: return a stamp in any case.
        """
        lock = self.lock
        if lock._is_owned():  # noqa: SLF001
            raise ReenteredError
        try:
            lock.acquire()
            stamp = self.recorder.replied(served, failed, stamped)
        finally:
            try:  # noqa: SIM105
                lock.release()
            except RuntimeError:  # interrupted before it was acquired
                pass
        if stamp is None:
            return None
        if self.keys.tags is None:
            return METADATA_KEY, encode(stamp)
        return self._pair(stamp, served.method, reply=True)

    def withdrawn(self, served: ServerCall) -> None:
        """The call will not be served to its end. May run in a finalizer, so it is deferred to the next step."""
        self.deferred.append(lambda: self.recorder.replied(served, failed=True))

    # -- waits and stream items ----------------------------------------------------------------------------------------

    def waits(
        self,
        party: PartyName,
        among: tuple[Target, ...],
        needs: int = 1,
        timeout: float | None = None,
        deadline: float | None = None,
        uncoloured: bool = False,
        what: str = "",
    ) -> WaitNumber:
        """A party begins to wait, for at most ``timeout`` seconds and until ``deadline`` (epoch) at the latest."""
        lock = self.lock
        if lock._is_owned():  # noqa: SLF001
            raise ReenteredError
        now = self._clock() if self._offset is None else monotonic() + self._offset
        with lock:
            return self.recorder.waits(party, among, now, needs, timeout, deadline, uncoloured, what)

    def resumes(self, number: WaitNumber) -> None:
        """The wait is over. May run in a finalizer."""
        lock = self.lock
        if lock._is_owned():  # noqa: SLF001
            self.deferred.append(lambda: self.recorder.resumes(number))
            return
        with lock:
            self.recorder.resumes(number)

    def pool_opened(self, name: str, size: PoolSize) -> None:
        """As :meth:`Recorder.pool_opened`."""
        with self._step():
            self.pools[name] = size
            self.recorder.pool_opened(name, size)

    def item_sent(self, call: ClientCall | ServerCall) -> None:
        """One item of a stream was handed to gRPC."""
        lock = self.lock
        if lock._is_owned():  # noqa: SLF001
            raise ReenteredError
        with lock:
            self.recorder.item_sent(call)

    def item_received(self, call: ClientCall | ServerCall, wait: WaitNumber | None = None) -> None:
        """One item of a stream arrived; the wait for it ends in the same step."""
        lock = self.lock
        if lock._is_owned():  # noqa: SLF001
            raise ReenteredError
        with lock:
            self.recorder.item_received(call, wait)

    def holds(self, party: PartyName, resource: str, capacity: int = 1, wait: WaitNumber | None = None) -> None:
        """A party holds one (more) share of a resource; the wait for it ends in the same step."""
        with self._step():
            self.recorder.holds(party, resource, capacity, wait)

    def releases(self, party: PartyName, resource: str) -> bool:
        """A party releases one share; False if it held none."""
        with self._step():
            return self.recorder.releases(party, resource)

    def idle(self, party: PartyName) -> None:
        """A party no longer acts spontaneously."""
        covered = declaration(self.clock(), self.declaring, here())  # as in sent
        with self._step():
            self.recorder.idle(party)
            self.covered = covered

    def active(self, party: PartyName) -> None:
        """A party may act spontaneously."""
        with self._step():
            self._declares()
            self.recorder.active(party)

    def busy(self) -> None:
        """A block of work begins."""
        with self._step():
            self._declares()
            self.recorder.busy()

    def done(self) -> None:
        """A block of work ends. May run in a finalizer (of a generator dropped inside the block)."""
        if self.lock._is_owned():  # noqa: SLF001
            self.deferred.append(self.recorder.done)
            return
        with self.lock:
            self.recorder.done()

    def _declares(self) -> None:
        if len(self.declaring) >= DECLARING_MAX:
            self.declaring.clear()
        self.declaring.add(here())

    def fact(self, changes: Facts) -> None:
        """Facts of the application change."""
        with self._step():
            self.recorder.fact(changes)

    def renamed(self, process: ProcessId) -> None:
        """The process gets another name; reports under the old one are dropped."""
        with self._step():
            self.recorder.renamed(process)
            self.reports.clear()

    # -- failures ------------------------------------------------------------------------------------------------------

    def report_failure(self, action: str) -> None:
        """Count an internal failure of ``action`` (a gerund); logged at most once a minute, never raised."""
        self.faults += 1
        now = monotonic()
        if now - self._logged_at >= FAULT_LOG_SECONDS or not self._logged_at:
            self._logged_at = now
            LOG.exception("stilltrue failed open: while=%s faults=%d", action, self.faults)

    def several_stamps(self) -> None:
        """Count a message with several stamps, whose sender is therefore unknown; warn once."""
        self.stamps_refused += 1
        if self.stamps_refused == 1:
            LOG.warning("several stamps in one message, so its caller is unknown: a program without an agent forwards stamps")

    def stamp_of(self, text: str | bytes, method: str | bytes, *, reply: bool) -> Stamp | None:
        """The stamp of a call of ``method``, or of its reply; None if it is malformed or lacks the fleet's tag."""
        tags = self.keys.tags
        if tags is None:
            return decode(text)
        known = tags.verify(_text(text), _text(method), reply=reply)
        if known is None:
            self.stamps_refused += 1
            if self.stamps_refused == 1:
                LOG.warning("ignored a stamp that is not signed with our keys (STILLTRUE_STAMP_KEY)")
            return None
        return decode(known)

    def _pair(self, stamp: Stamp, method: str | bytes, *, reply: bool) -> Pair:
        tags = self.keys.tags
        if tags is None:
            return METADATA_KEY, encode(stamp)
        # the tag proves the sender of each reply; an agent without keys can read what precedes one tag, but not more
        return METADATA_KEY, tags.sign(encode(stamp._replace(known="")), _text(method), reply=reply)

    # -- internals -----------------------------------------------------------------------------------------------------

    def _step(self) -> Any:
        if self.lock._is_owned():  # noqa: SLF001
            raise ReenteredError
        return self.lock

    def _put(self, report: Report) -> None:
        if len(self.reports) >= self.reports_max:
            self.reports.popleft()
            self.dropped += 1
        self.reports.append(report)
        self.wake()

    def _catch_up(self) -> None:
        """Run the deferred steps. Never logs: the lock is held, and a log handler may make calls."""
        while self.deferred:
            try:
                self.deferred.popleft()()
            except Exception:  # noqa: BLE001 - a failure must not stop the other steps, nor the current one
                self.faults += 1


def _text(text: str | bytes) -> str:
    return text if isinstance(text, str) else text.decode("utf-8", "replace")
