"""The agent: connects one gRPC process to the detector. All of an application's calls to it are here.

agent = stilltrue.Agent(service="orders")
channel = agent.channel(grpc.insecure_channel("stock:50051"))
server = grpc.server(agent.pool(ThreadPoolExecutor(4)), interceptors=[agent.server_interceptor()])
"""

from __future__ import annotations

import importlib
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, overload
from weakref import WeakSet

import grpc
import grpc.aio

from stilltrue.aio.channel import RecordedAioChannel
from stilltrue.aio.server import RecordedAioServer
from stilltrue.lock_factory import TaskLocks, ThreadLocks
from stilltrue.model import Fact, ProcessId
from stilltrue.protocol.names import as_process_name, check_process_name
from stilltrue.protocol.recorder import Bounds, Recorder
from stilltrue.protocol.report import Target
from stilltrue.protocol.stamp import INCARNATION_MAX
from stilltrue.protocol.stamp_tag import StampKeyError
from stilltrue.protocol.step import Step, check_facts
from stilltrue.runtime import own_threads
from stilltrue.runtime.calls.pool import record_pool
from stilltrue.runtime.calls.service_config import Options, service_config_of
from stilltrue.runtime.compat import options_of
from stilltrue.runtime.concurrent_reads import live_members
from stilltrue.runtime.declared.answering import Answering, Answers
from stilltrue.runtime.declared.atomic import atomic
from stilltrue.runtime.declared.declared_waits import holding, waiting_for
from stilltrue.runtime.introspection.coverage import Sight
from stilltrue.runtime.joining.concurrency import do_not_join
from stilltrue.runtime.joining.greenlets import would_be_held_up
from stilltrue.runtime.locked_recorder import LockedRecorder
from stilltrue.runtime.log_queue import LOG
from stilltrue.runtime.membership import process_hooks
from stilltrue.runtime.membership.stamp_keys import StampKeys
from stilltrue.runtime.own_packages import add_maker
from stilltrue.runtime.owned_shares import OwnedShares
from stilltrue.runtime.parties import Parties
from stilltrue.runtime.session import Session
from stilltrue.settings import SettingRefusedError, Settings, read_settings
from stilltrue.sync import locks
from stilltrue.sync.channel import RecordedChannel
from stilltrue.sync.server import RecordedServer

if TYPE_CHECKING:
    from stilltrue.http.asgi import ASGIMiddleware
    from stilltrue.http.replacements import Replacements
    from stilltrue.http.wsgi import WSGIMiddleware
    from stilltrue.protocol.requests.cure import Cured, CureRequest
    from stilltrue.protocol.requests.look import Look, LookRequest
    from stilltrue.protocol.requests.stacks import StacksFound
    from stilltrue.runtime.introspection.cut.observation import Observer
    from stilltrue.runtime.look.looker import Looker
    from stilltrue.runtime.membership.connection import Connection
    from stilltrue.runtime.transport.transport import Transport

_LOGGER = logging.getLogger("stilltrue")
INSTRUMENTING: list[Agent] = []
"""The agent of :func:`stilltrue.instrument`, if there is one: at most one in a process."""
FORK_SECONDS_MAX = 0.5
"""How long a fork may wait for the agent's session to end."""
Wrapped = TypeVar("Wrapped")


class Agent:
    """One process's agent. It may lose a snapshot, never a request: if it fails, the application goes on.

    Use one per process. Its methods may be called from any thread or task. Arguments that are not given come from the
    environment (``STILLTRUE_SERVICE`` ...); ``further`` are the other settings of docs/agent.md, by name.
    """

    def __init__(
        self,
        service: str | None = None,
        *,
        instance: str | None = None,
        detector: str | None = None,
        labels: Mapping[str, str] | None = None,
        reactive: bool | None = None,
        block_seconds_max: float | None = None,
        **further: object,
    ) -> None:
        """Raises :class:`stilltrue.SettingRefusedError` for an invalid value, and ``TypeError`` for an unknown name."""
        given = {
            "service": service,
            "instance": instance,
            "detector": detector,
            "labels": labels,
            "reactive": reactive,
            "block_seconds_max": block_seconds_max,
            **further,
        }
        add_maker()
        do_not_join()
        own_threads.hide()
        self.settings, keys = _with_keys(_without_greenlets(read_settings(given)), given)
        self._connect = _load("stilltrue.runtime.membership.connection").Connection
        self._make_looker = _load("stilltrue.runtime.look.looker").Looker
        self._make_stacks = _load("stilltrue.runtime.look.standing.stacks").Stacks
        self._make_aborter = _load("stilltrue.runtime.cure.aborter").Aborter
        self._make_observer = _load("stilltrue.runtime.introspection.cut.observation").Observer
        self._lifecycle = threading.Lock()
        self._pid = os.getpid()
        self._connection: Connection | None = None
        self._paused: dict[int, tuple[Connection, list[threading.Lock]]] = {}
        """By forking thread: the connection, and the locks of it that are held during the fork."""
        self._closed = False
        self._process = self._identify(self.settings.instance)
        self.parties = Parties(self._process.instance)
        self._answers = Answers(self.parties)
        self._owned = OwnedShares(self.parties)
        self.live = LockedRecorder(self._new_recorder, reports_max=self.settings.reports_max, keys=keys)
        excluded = self.settings.excluded_methods
        self._session = Session(self.live, self.parties, self.settings.enabled, excluded, self._owned)
        self.sight = Sight(self.live)
        self.transport: Transport = _load("stilltrue.runtime.transport.transport").Transport(self._session, self.sight)
        self._look: Callable[[LookRequest], Look] | None = None
        self._counts: Callable[[], dict[str, Any]] | None = None
        self._kind = "python"
        self._for_threads = ThreadLocks(self._session)
        self.aio = TaskLocks(self._session)
        """Makes locks, semaphores and queues for tasks: ``agent.aio.Lock()``."""
        process_hooks.register(
            at_exit=self.close,
            before_fork=self._before_fork,
            after_fork_in_parent=self._after_fork_in_parent,
            after_fork_in_child=self._after_fork_in_child,
        )

    # -- lifecycle -----------------------------------------------------------------------------------------------------

    @property
    def process(self) -> ProcessId:
        """The identity of this process; it changes after a fork, and if another process uses the same name."""
        return self._process

    def start(self) -> Agent:
        """Connect to the detector in the background; returns at once. Making a channel or server does so, too. Idempotent."""
        with self._lifecycle:
            # again: gevent may have replaced the threads since the agent was made
            self._closed = self._closed or (self.settings.enabled and would_be_held_up())
            if self._connection is None and not self._closed and self.settings.enabled:
                look, sight = self._look or self.looker().look, self._counts if self._look else self.sight.counts
                cure, live, settings = self._make_cure(), self.live, self.settings
                stacks = None if self._look else self._find_stacks(settings.block_seconds_max)
                search = self._search
                self._connection = self._connect(
                    live, settings, look, self._rename, sight, self.transport, cure, stacks, search, self._kind
                )
                self._connection.start()
                self._warn_if_second()
                process_hooks.say_goodbye_in_children(self.close)
        return self

    def _warn_if_second(self) -> None:
        text = (
            "this process is a member already, as %s (stilltrue run, instrument()); it joins again as %s, and neither sees all "
            "of it: use the agent that stilltrue.instrument() returns, or start the program without stilltrue run"
        )
        for first in INSTRUMENTING:
            if first is not self:
                LOG.warning(text, first.live.recorder.process.instance, self._process.instance)

    def close(self) -> None:
        """Say goodbye to the detector and disconnect: the process is no longer a member. Idempotent."""
        with self._lifecycle:
            self._closed = True
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    stop = close

    def __enter__(self) -> Agent:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def wait_until_joined(self, timeout_seconds: float) -> bool:
        """Wait up to ``timeout_seconds`` for a detector to accept this process. Returns whether one did."""
        self.start()
        connection = self._connection
        return connection is not None and connection.welcomed.wait(timeout_seconds)

    # -- joining -------------------------------------------------------------------------------------------------------

    @overload
    def channel(self, channel: grpc.Channel, target: str = "", *, options: Options | None = None) -> grpc.Channel: ...
    @overload
    def channel(self, channel: grpc.aio.Channel, target: str = "", *, options: Options | None = None) -> grpc.aio.Channel: ...
    def channel(self, channel: Any, target: str = "", *, options: Options | None = None) -> Any:
        """Wrap ``channel`` (of grpc or grpc.aio) so that its calls are recorded; ``target`` is its address in reports.

        ``options``: the options that the channel was made with, if they contain a service config. A call that may be retried
        is reported as deadlocked only once two verification rounds have seen its waits.
        """
        if not self.settings.enabled or isinstance(channel, RecordedChannel | RecordedAioChannel):
            return channel
        config = service_config_of(options_of(channel) if options is None else options)
        if isinstance(channel, grpc.aio.Channel):
            recorded: Any = RecordedAioChannel(channel, self._session, target, config)
        else:
            recorded = RecordedChannel(channel, self._session, target or str(getattr(channel, "_target", "")), config)
        self._register(self.sight.channels, recorded._methods)  # noqa: SLF001 - public names belong to gRPC's channel
        return recorded

    def server_interceptor(self) -> grpc.ServerInterceptor:
        """Return a new interceptor for one ``grpc.server``; put it first."""
        return self._register(self.sight.servers, RecordedServer(self._session))

    def aio_server_interceptor(self) -> grpc.aio.ServerInterceptor:
        """Return a new interceptor for one ``grpc.aio.server``; put it first."""
        return self._register(self.sight.servers, RecordedAioServer(self._session, self._misplaced))

    def pool(self, executor: ThreadPoolExecutor, name: str = "") -> ThreadPoolExecutor:
        """Record the size and queue of ``executor`` and return it; a pool that is not recorded never counts as full.

        The pool of a server with the agent's interceptor is recorded with its first call, in any case.
        """
        if not hasattr(executor, "submit"):
            raise TypeError(f"pool: {executor!r} is not an executor: make it first, agent.pool(ThreadPoolExecutor(8))")
        if not self.settings.enabled:
            return executor
        record_pool(executor, self.live, name)
        return executor

    def wsgi(self, app: Callable[..., Any]) -> WSGIMiddleware:
        """Wrap a WSGI application so that its requests are recorded; put it outside of all other middleware."""
        from stilltrue.http.wsgi import WSGIMiddleware  # noqa: PLC0415 - few gRPC programs serve HTTP

        self.start()
        return WSGIMiddleware(app, self._session)

    def asgi(self, app: Callable[..., Any]) -> ASGIMiddleware:
        """Wrap an ASGI application so that its requests are recorded; put it outside of all other middleware."""
        from stilltrue.http.asgi import ASGIMiddleware  # noqa: PLC0415 - few gRPC programs serve HTTP

        self.start()
        return ASGIMiddleware(app, self._session)

    # -- recorded locks ------------------------------------------------------------------------------------------------

    def Lock(self, name: str = "", *, owner_releases: bool = False) -> locks.Lock:  # noqa: N802 - as threading's
        """A ``threading.Lock`` whose waits are recorded, and whose holder is recorded if acquired by ``with``.

        After a bare ``acquire()`` any thread may release it, so waits for it count as able to end; ``owner_releases`` declares
        that the holder always releases it. ``name`` appears in verdicts.
        """
        return self._for_threads.lock(name, owner_releases)

    def RLock(self, name: str = "") -> locks.RLock:  # noqa: N802
        """A ``threading.RLock`` whose waits and holder are recorded; also works in a ``threading.Condition``."""
        return self._for_threads.rlock(name)

    def Semaphore(self, value: int = 1, name: str = "", *, owner_releases: bool = False) -> locks.Semaphore:  # noqa: N802
        """A ``threading.Semaphore`` whose waits are recorded, and whose holders are recorded as for :meth:`Lock`."""
        return self._for_threads.semaphore(value, name, owner_releases)

    def Queue(  # noqa: N802
        self, maxsize: int = 0, name: str = "", *, producers: Iterable[str] = (), consumers: Iterable[str] = ()
    ) -> locks.Queue:
        """A ``queue.Queue``. A wait is recorded if all parties (``process/name``) at the other end are declared.

        ``producers`` are declared for waits to get, ``consumers`` for waits to put.
        """
        return self._for_threads.queue(maxsize, name, producers, consumers)

    # -- declarations --------------------------------------------------------------------------------------------------

    def waiting_for(
        self,
        *things: str | Target,
        needs: int | None = None,
        what: str = "",
        timeout: float | None = None,
        until: float | None = None,
    ) -> AbstractContextManager[None]:
        """Inside the block, the current party waits for ``needs`` (None: all) of ``things``: global names of resources.

        The wait ends by itself after ``timeout`` seconds or at ``until`` (seconds since the epoch), whichever is earlier; by
        default it does not. ``what`` describes it to people. Raises ``ValueError`` unless 1 <= ``needs`` <= the number of
        ``things``.
        """
        return waiting_for(self._session, things, needs, what, timeout, until)

    def holding(self, resource: str, capacity: int = 1) -> AbstractContextManager[None]:
        """Inside the block, the current party holds one of the ``capacity`` shares of ``resource``, a global name."""
        return holding(self._session, resource, capacity)

    def answers(self, *names: str) -> Answering:
        """Declare that the current party answers these names: to wait for one (:meth:`waiting_for`) is to wait for this party.

        The names are global (mailboxes, keys). In force until the block (``with agent.answers("inbox"):``) or the party ends,
        or until ``stop()``. If several parties answer a name, a wait needs one of them; a name that no party answers may be
        answered by any.
        """
        try:
            return self._answers.begin(names)
        except Exception:  # noqa: BLE001 - fail open
            self.live.report_failure("declaring an answering party")
            return Answering(None)

    def atomic(self) -> AbstractContextManager[Step]:
        """A step in which facts change together with one message (protocol rule 7): see :mod:`stilltrue.protocol.step`.

        Sending a second message inside the block raises :class:`stilltrue.StepError`.
        """
        return atomic(self.live, self.parties.serving())

    def fact(self, **changes: Fact) -> None:
        """Change facts of this process, in a step of their own. Values are ``bool``, ``int``, ``float`` or ``str``.

        Raises ``TypeError`` for a value of another type, and ``ValueError`` for an integer that does not fit in 64 bits.
        """
        self.live.fact(check_facts(changes))
        self._start()

    def idle(self) -> None:
        """Declare that the application acts only when a message comes, until :meth:`active` is called.

        Ends the activity of the current thread or task; others that have called :meth:`active` stay active.
        """
        self.live.idle(self.parties.current())
        self._start()

    def active(self) -> None:
        """Declare that the application may act spontaneously until the same thread or task calls :meth:`idle`."""
        self.live.active(self.parties.current())
        self._start()

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Inside the block the application may act spontaneously. Blocks nest and are counted across all threads."""
        self.live.busy()
        self._start()
        try:
            yield
        finally:
            self.live.done()

    def ask_for_snapshot(self, reason: str = "the application asked") -> None:
        """Ask the detector for a snapshot now, and return at once. ``reason`` is recorded as its trigger."""
        self.start()
        connection = self._connection
        if connection is not None:
            connection.request_snapshot(reason)

    def answer_looks_with(
        self, look: Callable[[LookRequest], Look], counts: Callable[[], dict[str, Any]] | None = None, kind: str = "python"
    ) -> None:
        """Let ``look`` answer verification rounds; call it before :meth:`start`. For an agent of another process's parties.

        ``counts`` returns what the agent covers, as :meth:`.Sight.counts` does; None: unknown. ``kind`` is shown to readers.
        """
        self._look, self._counts, self._kind = look, counts, kind

    # -- internals -----------------------------------------------------------------------------------------------------

    def _misplaced(self, interceptor: RecordedAioServer) -> None:
        self.sight.servers.discard(interceptor)
        self.sight.add_unrecorded("server of grpc with an interceptor of grpc.aio", interceptor)
        LOG.warning("not recorded: a grpc.server that has agent.aio_server_interceptor(); give it agent.server_interceptor()")

    def _register(self, recorded: WeakSet[Any], one: Wrapped) -> Wrapped:
        recorded.add(one)
        self.start()  # only now, since the hello reports what is recorded
        return one

    def _start(self) -> None:
        if self._connection is None:
            self.start()

    def _search(self) -> bool:
        """Do the work that takes too long for a cut, in the agent's own thread. Never raises.

        Returns whether some of it is to be tried again before long.
        """
        try:
            self.parties.unanswered.search(self.live)
        except Exception:  # noqa: BLE001 - fail open
            self.live.report_failure("searching for unanswered calls")
        return self._observer.searchers.search(self.live.clock(), lambda: self._closed)  # a forked child has another observer

    def http_replacements(self) -> Replacements:
        """The replacements for methods of HTTP libraries while the process is instrumented."""
        from stilltrue.http.replacements import Replacements  # noqa: PLC0415 - only instrument() needs it

        return Replacements(self._session, self._start, self.sight.add_unrecorded, self.close)

    def looker(self) -> Looker:
        """Make a looker, which takes the second look at this process's parties."""
        looker: Looker = self._make_looker(self.live, self.parties, self._observer, self.transport)
        return looker

    def _find_stacks(self, stand_seconds: float) -> Callable[[int], StacksFound]:
        """Make a function that finds parties that have not moved for ``stand_seconds``; sight counts the unexplained ones."""
        stacks = self._make_stacks(self.live, self.parties, stand_seconds, lambda: self._observer.newest)
        unexplained = _load("stilltrue.runtime.look.standing.unexplained").Unexplained(
            stacks, stand_seconds, self.live.report_failure
        )
        self.sight.unexplained, self.sight.unexplained_calls = unexplained.count, unexplained.calls
        self.sight.unexplained_waits = unexplained.waits
        find: Callable[[int], StacksFound] = stacks.find
        return find

    def _make_cure(self) -> Callable[[CureRequest], Cured] | None:
        """Make the function that aborts calls at an operator's request; None if the process does not allow that."""
        if not self.settings.allow_cure or self._look is not None:
            return None
        cure: Callable[[CureRequest], Cured] = self._make_aborter(self.live, self.parties, self.looker().waits_in_force).cure
        return cure

    def _identify(self, instance: str) -> ProcessId:
        return ProcessId(
            service=self.settings.service,
            instance=check_process_name(instance),
            incarnation=int.from_bytes(os.urandom(8), "big") % INCARNATION_MAX + 1,
        )

    def _new_recorder(self) -> Recorder:
        settings = self.settings
        is_stopping = lambda: any(server.is_stopping() for server in live_members(self.sight.servers))  # noqa: E731 - read at each cut
        self._observer: Observer = self._make_observer(self.parties, is_stopping, self._answers.holds, self._owned)
        return Recorder(
            process=self._process,
            reactive=settings.reactive,
            labels=settings.labels,
            bounds=Bounds(story_max=0),  # the log is not read here, and would keep calls alive until they leave the cache
            observe=self._observer,
        )

    def _rename(self) -> None:
        """Choose another name, because another connected process uses this one."""
        taken = self._process.instance
        self._process = self._identify(as_process_name(f"{taken[:240]}-{os.urandom(3).hex()}"))
        text = "name taken: another connected process uses instance=%s; this process is now %s (set STILLTRUE_INSTANCE)"
        LOG.warning(text, taken, self._process.instance)
        self.parties.restart(self._process.instance)
        self._answers.restart()
        self._owned.restart()
        self.live.renamed(self._process)

    def _before_fork(self) -> None:
        """End the agent's session before a fork, so that the child inherits nothing of gRPC from it."""
        connection = self._connection
        if connection is not None:
            self._paused[threading.get_ident()] = connection, connection.pause(FORK_SECONDS_MAX)
            process_hooks.await_engine()

    def _after_fork_in_parent(self) -> None:
        """Begin a new session in the parent."""
        connection, locks = self._paused.pop(threading.get_ident(), (None, []))
        if connection is not None:
            connection.resume(locks)

    def _after_fork_in_child(self) -> None:
        """Start anew in the child: another process, with nothing recorded, which connects at its first event."""
        name = self.settings.instance.replace(f"-{self._pid}", f"-{os.getpid()}")
        if name == self.settings.instance:
            name = as_process_name(f"{name[:240]}-{os.getpid()}")
        self._pid = os.getpid()
        self._lifecycle = threading.Lock()
        self._process = self._identify(name)
        if self._connection is not None:
            self._connection.mark.clear()
        self._connection = None
        self._paused = {}
        self.parties.restart(self._process.instance)
        self._answers.restart()
        self._owned.restart()
        self.live.restart()
        if not self._closed:
            self.live.deferred.append(self.start)


def _load(module: str) -> Any:
    """Import a module that only an agent object needs; protobuf alone takes as long to import as all other modules.

    Modules are loaded when an agent is created, not later: a failure then comes before anything is recorded.
    """
    return importlib.import_module(module)


def _without_greenlets(settings: Settings) -> Settings:
    """The settings, with the agent disabled if gevent or eventlet has replaced the threads: it would block all greenlets."""
    return replace(settings, enabled=False) if settings.enabled and would_be_held_up() else settings


def _with_keys(settings: Settings, given: Mapping[str, object]) -> tuple[Settings, StampKeys]:
    """The settings and the stamp keys. Invalid keys from the environment disable the agent; others raise."""
    try:
        return settings, StampKeys(text=settings.stamp_key, file=settings.stamp_key_file)
    except StampKeyError as refusal:
        if given.get("stamp_key") or given.get("stamp_key_file"):
            raise SettingRefusedError(f"stamp_key: {refusal}", "stamp_key") from None
        _LOGGER.warning("setting refused: stamp_key: %s; this process is not watched", refusal)
        return replace(settings, enabled=False), StampKeys()
