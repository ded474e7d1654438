"""The agent: joins one gRPC process to the detector. Everything an application calls is here.

agent = stilltrue.Agent(service="orders")
channel = agent.channel(grpc.insecure_channel("stock:50051"))
server = grpc.server(agent.pool(ThreadPoolExecutor(4)), interceptors=[agent.server_interceptor()])
"""

from __future__ import annotations

import importlib
import logging
import os
import secrets
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
from stilltrue.http.asgi import ASGIMiddleware
from stilltrue.http.makers import Makers
from stilltrue.http.wsgi import WSGIMiddleware
from stilltrue.lock_factory import ForTasks, ForThreads
from stilltrue.model import Fact, ProcessId
from stilltrue.protocol.names import as_process_name, check_process_name
from stilltrue.protocol.recorder import Bounds, Recorder
from stilltrue.protocol.report import Target
from stilltrue.protocol.requests.cure import Cured, CureRequest
from stilltrue.protocol.requests.look import Look, LookRequest
from stilltrue.protocol.stamp import INCARNATION_MAX
from stilltrue.protocol.stamp_tag import StampKeyError
from stilltrue.protocol.step import Step, checked
from stilltrue.runtime.calls.pool import record_pool
from stilltrue.runtime.calls.service_config import Options, service_config_of
from stilltrue.runtime.changing import alive_in
from stilltrue.runtime.compat import options_of
from stilltrue.runtime.declared.answering import Answering, Answers
from stilltrue.runtime.declared.atomic import atomic
from stilltrue.runtime.declared.declared_waits import holding, waiting_for
from stilltrue.runtime.greenlets import would_be_held_up
from stilltrue.runtime.introspection.sight import Sight
from stilltrue.runtime.lines import LINES
from stilltrue.runtime.membership import hooks
from stilltrue.runtime.membership.goodbye import say_goodbye_in_children
from stilltrue.runtime.membership.stamp_keys import StampKeys
from stilltrue.runtime.owned_shares import OwnedShares
from stilltrue.runtime.parties import Parties
from stilltrue.runtime.recorder import LockedRecorder
from stilltrue.runtime.session import Session
from stilltrue.settings import SettingRefusedError, Settings, read_settings
from stilltrue.sync import locks
from stilltrue.sync.channel import RecordedChannel
from stilltrue.sync.server import RecordedServer

if TYPE_CHECKING:
    from stilltrue.protocol.requests.stacks import StacksFound
    from stilltrue.runtime.introspection.observation import Observer
    from stilltrue.runtime.look.looker import Looker
    from stilltrue.runtime.membership.connection import Connection
    from stilltrue.runtime.transport.transport import Transport

_LOGGER = logging.getLogger("stilltrue")
FORK_SECONDS_MAX = 0.5
"""How long a fork may wait for the end of the agent's session."""
Seen = TypeVar("Seen")


class Agent:
    """One process's agent. It may lose a snapshot, never a request: if it fails, the application continues."""

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
        """See :class:`stilltrue.settings.Settings`; anything not given is read from the environment (``STILLTRUE_...``).

        Raises :class:`stilltrue.settings.SettingRefusedError`.
        """
        given = {
            "service": service,
            "instance": instance,
            "detector": detector,
            "labels": labels,
            "reactive": reactive,
            "block_seconds_max": block_seconds_max,
            **further,
        }
        self.settings, keys = _with_keys(_without_greenlets(read_settings(given)), given)
        self._connect = _loaded("stilltrue.runtime.membership.connection").Connection
        self._make_looker = _loaded("stilltrue.runtime.look.looker").Looker
        self._make_stacks = _loaded("stilltrue.runtime.look.stacks").Stacks
        self._make_aborter = _loaded("stilltrue.runtime.cure.aborter").Aborter
        self._make_observer = _loaded("stilltrue.runtime.introspection.observation").Observer
        self._lifecycle = threading.Lock()
        self._pid = os.getpid()
        self._connection: Connection | None = None
        self._paused: dict[int, tuple[Connection, bool]] = {}
        """By the thread that forks: the connection, and whether its session has ended."""
        self._closed = False
        self._process = self._identify(self.settings.instance)
        self.parties = Parties(self._process.instance)
        self._answers = Answers(self.parties)
        self._owned = OwnedShares(self.parties)
        self.live = LockedRecorder(self._begin, reports_max=self.settings.reports_max, keys=keys)
        excluded = self.settings.excluded_methods
        self._session = Session(self.live, self.parties, self.settings.enabled, excluded, self._owned)
        self.sight = Sight(self.live)
        self.transport: Transport = _loaded("stilltrue.runtime.transport.transport").Transport(self._session, self.sight)
        self._pools = 0
        self._look: Callable[[LookRequest], Look] | None = None
        self._for_threads = ForThreads(self._session)
        self.aio = ForTasks(self._session)
        """Locks, semaphores and queues for tasks: ``agent.aio.Lock()``."""
        hooks.register(
            at_exit=self.close,
            before_fork=self._before_fork,
            after_fork_in_parent=self._after_fork_in_parent,
            after_fork_in_child=self._after_fork_in_child,
        )

    # -- life ----------------------------------------------------------------------------------------------------------

    @property
    def process(self) -> ProcessId:
        """The identity of this process."""
        return self._process

    def start(self) -> Agent:
        """Start connecting to the detector; the first channel, pool or server does it too. Idempotent."""
        with self._lifecycle:
            self._closed = self._closed or (self.settings.enabled and would_be_held_up())  # since the agent was made
            if self._connection is None and not self._closed and self.settings.enabled:
                look, sight = self._look or self.looker().look, None if self._look else self.sight.counts
                cure, live, settings = self._curer(), self.live, self.settings
                stacks = None if self._look else self._find_stacks(settings.block_seconds_max)
                prove = lambda: self._observer.search(live.clock())  # noqa: E731 - a forked child has another observer
                self._connection = self._connect(live, settings, look, self._rename, sight, self.transport, cure, stacks, prove)
                self._connection.start()
                say_goodbye_in_children(self.close)
        return self

    def close(self) -> None:
        """Say goodbye to the detector: the process is no longer a member. Idempotent."""
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
        """Wait until a detector has accepted this process; return whether one has. For tests and demonstrations."""
        self.start()
        connection = self._connection
        return connection is not None and connection.welcomed.wait(timeout_seconds)

    # -- joining -------------------------------------------------------------------------------------------------------

    @overload
    def channel(self, channel: grpc.Channel, target: str = "", *, options: Options | None = None) -> grpc.Channel: ...
    @overload
    def channel(self, channel: grpc.aio.Channel, target: str = "", *, options: Options | None = None) -> grpc.aio.Channel: ...
    def channel(self, channel: Any, target: str = "", *, options: Options | None = None) -> Any:
        """Wrap ``channel`` (of grpc or grpc.aio) so that its calls are recorded; ``target`` names the address in reports.

        ``options``: those that the channel was made with, if they contain a service config with retries: a call that may be
        sent again is reported as deadlocked only once two verification rounds have seen its waits.
        """
        if not self.settings.enabled or isinstance(channel, RecordedChannel | RecordedAioChannel):
            return channel
        config = service_config_of(options_of(channel) if options is None else options)
        if isinstance(channel, grpc.aio.Channel):
            return self._seen(self.sight.channels, RecordedAioChannel(channel, self._session, target, config))
        address = target or str(getattr(channel, "_target", ""))
        return self._seen(self.sight.channels, RecordedChannel(channel, self._session, address, config))

    def server_interceptor(self) -> grpc.ServerInterceptor:
        """The interceptor for ``grpc.server``; put it first."""
        return self._seen(self.sight.servers, RecordedServer(self._session))

    def aio_server_interceptor(self) -> grpc.aio.ServerInterceptor:
        """The interceptor for ``grpc.aio.server``; put it first."""
        return self._seen(self.sight.servers, RecordedAioServer(self._session))

    def pool(self, executor: ThreadPoolExecutor, name: str = "") -> ThreadPoolExecutor:
        """Record the size and queue of ``executor``; without this no pool ever counts as full."""
        if not self.settings.enabled:
            return executor
        self._pools += 1
        record_pool(executor, self.live, name or f"pool-{self._pools}")
        return executor

    def wsgi(self, app: Callable[..., Any]) -> WSGIMiddleware:
        """Wrap a WSGI application so that its requests are recorded; put it outside of all other middleware."""
        self.start()
        return WSGIMiddleware(app, self._session)

    def asgi(self, app: Callable[..., Any]) -> ASGIMiddleware:
        """Wrap an ASGI application so that its requests are recorded; put it outside of all other middleware."""
        self.start()
        return ASGIMiddleware(app, self._session)

    # -- locks, whose waits are seen -----------------------------------------------------------------------------------

    def Lock(self, name: str = "", *, owner_releases: bool = False) -> locks.Lock:  # noqa: N802 - as threading's
        """A ``threading.Lock`` whose waits are recorded, and whose holder is recorded when it is acquired by ``with``.

        After a bare ``acquire()`` anybody may release it, so a wait for it then counts as one that can end;
        ``owner_releases`` declares that its holder always releases it. ``name`` appears in verdicts.
        """
        return self._for_threads.lock(name, owner_releases)

    def RLock(self, name: str = "") -> locks.RLock:  # noqa: N802
        """A ``threading.RLock`` whose waits and holder are recorded; also works in a ``threading.Condition``."""
        return self._for_threads.rlock(name)

    def Semaphore(self, value: int = 1, name: str = "", *, owner_releases: bool = False) -> locks.Semaphore:  # noqa: N802
        """A ``threading.Semaphore`` whose waits are recorded, and its holders as for :meth:`Lock`."""
        return self._for_threads.semaphore(value, name, owner_releases)

    def Queue(  # noqa: N802
        self, maxsize: int = 0, name: str = "", *, producers: Iterable[str] = (), consumers: Iterable[str] = ()
    ) -> locks.Queue:
        """A ``queue.Queue``; its waits are recorded if all the parties (full names) at its other end are declared."""
        return self._for_threads.queue(maxsize, name, producers, consumers)

    # -- what the agent is told ----------------------------------------------------------------------------------------

    def waiting_for(
        self,
        *things: str | Target,
        needs: int | None = None,
        what: str = "",
        timeout: float | None = None,
        until: float | None = None,
    ) -> AbstractContextManager[None]:
        """Inside the block, the current party waits for ``needs`` (None: all) of ``things``: resources by their global names.

        ``timeout`` (seconds) or ``until`` (epoch) says when the wait ends by itself. ``what`` is shown to people.
        Raises ``ValueError`` when ``needs`` cannot be met.
        """
        return waiting_for(self._session, things, needs, what, timeout, until)

    def holding(self, resource: str, capacity: int = 1) -> AbstractContextManager[None]:
        """Inside the block, the current party holds one of the ``capacity`` shares of ``resource``, a global name."""
        return holding(self._session, resource, capacity)

    def answers(self, *names: str) -> Answering:
        """The current party answers these mailboxes or keys (global names): :meth:`waiting_for` one is to wait for this party.

        It lasts until the block ends (``with agent.answers("inbox"):``), until ``stop()``, or until the party ends. Several may
        answer one name, and a wait then needs one of them; what nobody answers may be answered by anybody.
        """
        try:
            return self._answers.begin(names)
        except Exception:  # noqa: BLE001 - fail open
            self.live.report_failure("a name is answered")
            return Answering(None)

    def atomic(self) -> AbstractContextManager[Step]:
        """A step in which facts change together with one message (rule 7): see :mod:`stilltrue.protocol.step`."""
        return atomic(self.live, self.parties.serving())

    def fact(self, **changes: Fact) -> None:
        """Change facts of this process, in a step of their own. Raises ``TypeError`` for values that are not facts."""
        self.live.fact(checked(changes))
        self._start()

    def idle(self) -> None:
        """Declare that the application acts again only when a message comes, or after :meth:`active`.

        It ends what the same thread or task began with :meth:`active`; other threads and tasks that did so stay active.
        """
        self.live.idle(self.parties.now())
        self._start()

    def active(self) -> None:
        """Declare that the application may act spontaneously until this same thread or task calls :meth:`idle`."""
        self.live.active(self.parties.now())
        self._start()

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Inside the block the application may act spontaneously. Blocks nest, and are counted over all threads."""
        self.live.busy()
        self._start()
        try:
            yield
        finally:
            self.live.done()

    def ask_for_snapshot(self, reason: str = "the application asked") -> None:
        """Ask the detector for a snapshot now."""
        self.start()
        connection = self._connection
        if connection is not None:
            connection.request_snapshot(reason)

    def answer_looks_with(self, look: Callable[[LookRequest], Look]) -> None:
        """Let ``look`` answer verification rounds, before :meth:`start`: for an agent whose parties live in another process."""
        self._look = look

    # -- inside --------------------------------------------------------------------------------------------------------

    def _seen(self, among: WeakSet[Any], one: Seen) -> Seen:
        among.add(one)
        self.start()  # not before: its hello says what is seen
        return one

    def _start(self) -> None:
        if self._connection is None:
            self.start()

    def http_makers(self) -> Makers:
        """What stands in the place of the methods of HTTP libraries while the process is instrumented."""
        return Makers(self._session, self._start, self.sight.not_recorded)

    def looker(self) -> Looker:
        """Takes the second look at this process's parties."""
        looker: Looker = self._make_looker(self.live, self.parties, self._observer, self.transport)
        return looker

    def _find_stacks(self, stand_seconds: float) -> Callable[[int], StacksFound]:
        """Finds and counts the parties that have not moved for a long time."""
        stacks = self._make_stacks(self.live, self.parties, stand_seconds)
        unexplained = _loaded("stilltrue.runtime.look.unexplained").Unexplained
        self.sight.unexplained = unexplained(stacks, stand_seconds, self.live.report_failure).count
        find: Callable[[int], StacksFound] = stacks.find
        return find

    def _curer(self) -> Callable[[CureRequest], Cured] | None:
        """Aborts calls when an operator asks for it; None where the process does not allow that."""
        if not self.settings.allow_cure or self._look is not None:
            return None
        cure: Callable[[CureRequest], Cured] = self._make_aborter(self.live, self.parties, self.looker().in_force).cure
        return cure

    def _identify(self, instance: str) -> ProcessId:
        return ProcessId(
            service=self.settings.service,
            instance=check_process_name(instance),
            incarnation=secrets.randbelow(INCARNATION_MAX) + 1,
        )

    def _begin(self) -> Recorder:
        settings = self.settings
        is_stopping = lambda: any(server.is_stopping() for server in alive_in(self.sight.servers))  # noqa: E731 - read at each cut
        self._observer: Observer = self._make_observer(self.parties, is_stopping, self._answers.holds, self._owned)
        return Recorder(
            process=self._process,
            reactive=settings.reactive,
            labels=settings.labels,
            bounds=Bounds(story_max=0),  # nobody reads it here, and it keeps each call from being freed while it is warm
            observe=self._observer,
        )

    def _rename(self) -> None:
        """The name is in use by another connected process: from now on this process uses another one."""
        taken = self._process.instance
        self._process = self._identify(as_process_name(f"{taken[:240]}-{secrets.token_hex(3)}"))
        text = "name taken: another connected process uses instance=%s; this process is %s from now on (STILLTRUE_INSTANCE)"
        LINES.warning(text, taken, self._process.instance)
        self.parties.restart(self._process.instance)
        self._answers.restart()
        self._owned.restart()
        self.live.renamed(self._process)

    def _before_fork(self) -> None:
        """The process is about to fork: the agent's session ends, so that the child inherits nothing of gRPC's from it."""
        connection = self._connection
        if connection is not None:
            self._paused[threading.get_ident()] = connection, connection.pause(FORK_SECONDS_MAX)

    def _after_fork_in_parent(self) -> None:
        """The process has forked, and is the parent."""
        connection, paused = self._paused.pop(threading.get_ident(), (None, False))
        if connection is not None:
            connection.resume(paused=paused)

    def _after_fork_in_child(self) -> None:
        """In the child of a fork: another process, with nothing recorded, which connects when something happens."""
        name = self.settings.instance.replace(f"-{self._pid}", f"-{os.getpid()}")
        if name == self.settings.instance:
            name = as_process_name(f"{name[:240]}-{os.getpid()}")
        self._pid = os.getpid()
        self._lifecycle = threading.Lock()
        self._process = self._identify(name)
        self._connection = None
        self._paused = {}
        self.parties.restart(self._process.instance)
        self._answers.restart()
        self._owned.restart()
        self.live.restart()
        if not self._closed:
            self.live.deferred.append(self.start)


def _loaded(module: str) -> Any:
    """A module that only agents need, so that importing their class does not load it: protobuf takes as long as all others.

    They are loaded when an agent is made, and not later: if that fails, it fails before anything is recorded.
    """
    return importlib.import_module(module)


def _without_greenlets(settings: Settings) -> Settings:
    """The settings; where the agent would hold up the whole process, they disable it."""
    return replace(settings, enabled=False) if settings.enabled and would_be_held_up() else settings


def _with_keys(settings: Settings, given: Mapping[str, object]) -> tuple[Settings, StampKeys]:
    """The settings and the keys they name; unusable keys from the environment disable the agent."""
    try:
        return settings, StampKeys(text=settings.stamp_key, file=settings.stamp_key_file)
    except StampKeyError as refusal:
        if given.get("stamp_key") or given.get("stamp_key_file"):
            raise SettingRefusedError(f"stamp_key: {refusal}", "stamp_key") from None
        _LOGGER.warning("setting refused: stamp_key: %s; this process is not watched", refusal)
        return replace(settings, enabled=False), StampKeys()
