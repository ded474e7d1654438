"""The threads and tasks of this process, each with its party, its frames and the call that it serves."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from stilltrue.model import PartyName
from stilltrue.protocol.books.ledger import ServerCall
from stilltrue.runtime import compat
from stilltrue.runtime.calls.incoming_call import IncomingCall
from stilltrue.runtime.introspection.frames import frame_of, frames_of_threads, variables_of
from stilltrue.runtime.introspection.origins import is_application, is_http_library, is_own_code, position_of
from stilltrue.runtime.introspection.stopping_servers import end_of_grace
from stilltrue.runtime.introspection.tasks import Task
from stilltrue.runtime.look.code.attributes import attributes_of
from stilltrue.runtime.parties import Parties
from stilltrue.runtime.session import Session
from stilltrue.runtime.waits.registry import may_wait

STACK_LENGTH_MAX = 12
_OURS = str(Path(__file__).parents[2])
_SERVERS = ("sync/server.py", "aio/server.py", "http/wsgi.py", "http/asgi.py", "http/http_server.py")
_SHELLS = tuple(str(Path(_OURS, shell)) for shell in _SERVERS)
_OF_REPLIES = "stilltrue.sync.server"
_OF_ITEMS = (_OF_REPLIES, "stilltrue.sync.call")
_CLIENTS = tuple(f"http/clients/{name}.py" for name in ("requests_client", "http_client", "httpx_blocking"))
_BLOCKING = tuple(str(Path(_OURS, shell)) for shell in ("sync", *_CLIENTS))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Place:
    """A thread (``ident``) or a ``task``, its party (None: not recorded) and its ``frames``, innermost first.

    If a task runs or blocks its loop, ``frames`` are those of its thread (``ident``) within the task. ``serves`` is the call it
    serves and ``context`` that call's context, if any. ``coroutines``: those that a task awaits, outermost first.
    """

    party: PartyName | None
    frames: tuple[FrameType, ...]
    ident: int = 0
    task: Task | None = None
    serves: ServerCall | None = None
    context: Any = None
    coroutines: tuple[Any, ...] = ()

    def stack(self) -> tuple[str, ...]:
        """The application's frames: see :func:`stack_shown`. While gRPC sends an item, also the generator that made it."""
        maker = _maker_of_item(self.frames)
        return stack_shown(self.frames if maker is None else (maker, *self.frames))


def stack_shown(frames: Sequence[FrameType]) -> tuple[str, ...]:
    """The application's frames as ``file:line in function``; all frames if there are none.

    Frames of HTTP libraries are left out if others remain. A deep stack is cut short, but ends in the innermost frame of the
    program's own code.
    """
    frames = [frame for frame in frames if is_application(frame.f_code)] or frames
    frames = [frame for frame in frames if not is_http_library(frame.f_code)] or frames
    shown, beyond = frames[:STACK_LENGTH_MAX], frames[STACK_LENGTH_MAX:]
    if not any(is_own_code(frame.f_code) for frame in shown):
        own = [frame for frame in beyond if is_own_code(frame.f_code)][:1]
        shown = [*shown[: STACK_LENGTH_MAX - len(own)], *own]
    return tuple(map(position_of, shown))


class Places:
    """All threads of the process, and the requested tasks, at one moment."""

    def __init__(self, parties: Parties) -> None:
        """``parties`` maps threads and tasks to parties."""
        self._parties = parties
        self._names = {thread.ident: name for name, thread in parties.threads()}
        self._frames = frames_of_threads()  # as long as the places that have them
        self.threads: dict[int, Place] = {ident: self._place_of_thread(ident, frames) for ident, frames in self._frames.items()}
        self._by_party = {place.party: place for place in self.threads.values() if place.party is not None}
        known = parties.tasks()
        self._tasks = {party: task for task, party in known}
        self._parties_of_tasks = dict(known)
        self.loop_threads = self._running_loops()
        self._paused_loops = self._loops_run_in_pieces()
        self.root = parties.root
        self.first_acted = parties.first_acted
        loops = blocked_loops(parties, {ident: place.frames for ident, place in self.threads.items()})
        self.blocked_loops = {loop: (party, step) for loop, party, step in loops.values()}
        """Loops blocked by a task or a callback: nothing runs there until its party continues."""
        self._feeders = {
            id(compat.state_in(frame)): place
            for place in self.threads.values()
            for frame in place.frames
            if compat.is_feeding(frame)
        }
        self._servers = [
            state
            for place in self.threads.values()
            for frame in place.frames
            if compat.is_serving(frame) and (state := variables_of(frame).get("state")) is not None
        ]

    def find(self, party: PartyName) -> Place | None:
        """The place of ``party``; None if the party is gone or cannot be found."""
        task = self._tasks.get(party)
        return self._by_party.get(party) if task is None else self.of_task(task, party)

    def of_task(self, task: Task, party: PartyName | None) -> Place:
        """The place of ``task``."""
        root = None if party is None else self._parties.root_of(task, party)
        served = root.served if root is not None and root.task is task else None
        start = root.coroutine if root is not None and root.task is task and root.coroutine is not None else task.get_coro()
        chain = compat.await_chain(start)
        ident, frames = self._running(task)
        if not frames:
            frames = tuple(frame for one in reversed(chain) if (frame := frame_of(one)) is not None)
        context = None if served is None else _context_of_task(task)
        return Place(
            party=party, frames=frames, ident=ident, task=task, serves=served, context=context, coroutines=tuple(chain)
        )

    def _running(self, task: Task) -> tuple[int, tuple[FrameType, ...]]:
        """The thread that runs ``task`` and its frames within the task; (0, ()) if it is not running."""
        loop = task.get_loop()
        ident = next((ident for ident, one in self.loop_threads.items() if one is loop), 0)
        if not ident or compat.current_task_of(loop) is not task:
            return 0, ()
        return ident, tuple(itertools.takewhile(lambda frame: not _surrounds_tasks(frame), self.threads[ident].frames))

    def party_of(self, task: Task) -> PartyName | None:
        """The party of ``task``, or None."""
        return self._parties_of_tasks.get(task)

    def coroutine_of(self, task: Task) -> Any:
        """The application's coroutine in a task that serves a call; None for other tasks."""
        party = self.party_of(task)
        root = None if party is None else self._parties.root_of(task, party)
        return root.coroutine if root is not None and root.task is task else None

    def loops(self, tasks: Iterable[Task | None] = ()) -> list[asyncio.AbstractEventLoop]:
        """All event loops that run, or will go on, and those of ``tasks``."""
        of_tasks = (task.get_loop() for task in tasks if task is not None)
        return list(dict.fromkeys((*self.loop_threads.values(), *self._paused_loops, *of_tasks)))

    def is_on_main_thread(self, place: Place) -> bool:
        """Whether a signal handler interrupts the party at ``place``."""
        main = threading.main_thread().ident
        return place.ident == main if place.task is None else self.loop_threads.get(main or 0) is place.task.get_loop()

    def end_of_grace(self, place: Place, now: float) -> float | None:
        """When gRPC cancels the call that the party at ``place`` serves (epoch); None if its server is not being stopped."""
        stopping = [server for server in self.servers_of(place) if compat.is_stopping(server)]
        return min((end_of_grace(server, now, self.coroutine_of) for server in stopping), default=None)

    def servers_of(self, place: Place) -> list[Any]:
        """gRPC's servers that may own the call served at ``place``; more than one if that cannot be decided."""
        if place.serves is None:
            return []
        if place.task is not None:
            server = compat.aio_server_of(place.task)
            return [] if server is None else [server]
        state = id(getattr(place.context, "_state", None))
        found = [server for server in self._servers if state in compat.server_calls(server)]
        if found:
            return found
        return [server for server, _ in self._servers_on_loops()]

    def servers(self) -> list[tuple[Any, asyncio.AbstractEventLoop | None]]:
        """All gRPC servers of the process, each with its event loop, if any."""
        found = [*((server, None) for server in self._servers), *self._servers_on_loops()]
        return list({id(server): (server, loop) for server, loop in found}.values())

    def _servers_on_loops(self) -> Iterator[tuple[Any, asyncio.AbstractEventLoop]]:
        for loop in self.loop_threads.values():
            for task in compat.tasks_of(loop) or ():
                server = compat.aio_server_of(task) if compat.is_grpc_task(task) else None
                if server is not None:
                    yield server, loop

    def feeder_of(self, place: Place, streams: Iterable[Any]) -> Place | None:
        """The place of the thread or task that feeds the request stream of the call awaited at ``place``.

        ``streams``: gRPC's objects of the calls that the task at ``place`` awaits.
        """
        if place.task is not None:
            feeders = (feeder for call in streams if (feeder := compat.feeder_of(call)) is not None)
            return next((self.of_task(one, self.party_of(one)) for one in feeders if one is not place.task), None)
        if not self._feeders:
            return None
        states = (compat.state_in(frame) for frame in place.frames)
        return next((found for state in states if (found := self._feeders.get(id(state))) is not None), None)

    def _running_loops(self) -> dict[int, asyncio.AbstractEventLoop]:
        found = {}
        for ident, place in self.threads.items():
            loop = next((loop for frame in place.frames if (loop := compat.loop_in(frame)) is not None), None)
            if loop is not None:
                found[ident] = loop
        return found

    def _loops_run_in_pieces(self) -> list[asyncio.AbstractEventLoop]:
        """Loops that do not run now, but that the program's own code has: it may run them again, as a pump does."""
        found = (
            one
            for place in self.threads.values()
            for frame in place.frames
            if is_own_code(frame.f_code)
            for one in _loops_in(frame)
        )
        running = set(map(id, self.loop_threads.values()))
        return [one for one in dict.fromkeys(found) if id(one) not in running and not one.is_closed()]

    def _place_of_thread(self, ident: int, frames: list[FrameType]) -> Place:
        served, owner, context = call_served_in(frames)
        if served is None:
            return Place(party=self._names.get(ident), frames=tuple(frames), ident=ident)
        party = served.party if owner is self._parties else None  # else it belongs to another agent in this process
        return Place(party=party, frames=tuple(frames), ident=ident, serves=served, context=context)


def blocked_loops(
    parties: Parties, threads: Mapping[int, Sequence[FrameType]]
) -> dict[int, tuple[asyncio.AbstractEventLoop, PartyName, Task | asyncio.Handle]]:
    """The event loops blocked by a step in a wait of ours or of Python's, by thread, with its party and the step.

    The step is the current task, or the handle of a callback that no task runs (then the party is the thread). Nothing else
    runs on such a loop until it continues: no task, timer or callback. No frame shows the handles of uvloop's callbacks.
    """
    found: dict[int, tuple[asyncio.AbstractEventLoop, PartyName, Task | asyncio.Handle]] = {}
    for ident, frames in threads.items():
        if ident == threading.get_ident():  # this thread takes the cut and waits for no party
            continue
        running = compat.loops_in(frames)
        if not running:
            continue
        at, loop = running[0]
        task = compat.current_task_of(loop)
        within = list(itertools.takewhile(lambda frame: not compat.is_loop_step(frame.f_code), frames[:at]))
        blocks = any(frame.f_code.co_filename.startswith(_BLOCKING) for frame in within) or may_wait(within)
        if task is None and blocks and len(within) < at:
            handle, party = variables_of(frames[len(within)]).get("self"), _party_of_thread(parties, ident, frames)
            if isinstance(handle, asyncio.Handle) and party is not None:
                found[ident] = (loop, party, handle)
        elif task is not None and blocks and not parties.belongs_to_other_agent(task):
            root = next((root for root in list(parties.roots.values()) if root.task is task), None)
            found[ident] = (loop, parties.of_task(task, root), task)
    return found


def _party_of_thread(parties: Parties, ident: int, frames: Sequence[FrameType]) -> PartyName | None:
    """The call that a thread serves, else the thread; None if it has ended or belongs to another agent."""
    served, of, _ = call_served_in(list(frames))
    if served is not None:
        return served.party if of is parties else None
    thread = compat.threads().get(ident)
    return None if thread is None or parties.belongs_to_other_agent(thread) else parties.of_thread(thread)


def _loops_in(frame: FrameType) -> Iterator[asyncio.AbstractEventLoop]:
    """The event loops in the variables of a frame, in their attributes, and in the globals that its code names."""
    names = frame.f_globals
    for thing in (*variables_of(frame).values(), *(names[name] for name in frame.f_code.co_names if name in names)):
        inner = () if type(thing) is ModuleType else attributes_of(thing)
        yield from (one for one in (thing, *inner) if issubclass(type(one), asyncio.AbstractEventLoop))


def _surrounds_tasks(frame: FrameType) -> bool:
    """Whether this frame runs a step of a task, or the loop itself, whose compiled code may have no step frame."""
    return compat.is_loop_step(frame.f_code) or compat.loop_in(frame) is not None


def call_served_in(frames: list[FrameType]) -> tuple[ServerCall | None, Parties | None, Any]:
    """The call that a thread serves, the parties it belongs to, and its context; also inside a later interceptor."""
    shells = [frame for frame in frames if is_shell(frame)]
    call, context = served_by(shells)
    if call is not None:
        return call.served, call.session.parties, context
    for frame in shells:
        names = variables_of(frame)
        served, session = names.get("served"), names.get("session")
        if type(served) is ServerCall and type(session) is Session:
            return served, session.parties, None
    replies = compat.replies_being_sent(frames)  # gRPC sends a reply, and no shell is on the stack
    call = _incoming(replies._handler) if compat.module_of(type(replies)) == _OF_REPLIES else None  # noqa: SLF001 - ours
    return (None, None, None) if call is None else (call.served, call.session.parties, replies._context)  # noqa: SLF001


def _maker_of_item(frames: Sequence[FrameType]) -> FrameType | None:
    """The frame of the suspended generator that has made the item of a stream that gRPC is sending; None if there is none."""
    items = compat.replies_being_sent(frames) or compat.requests_being_sent(frames)
    return frame_of(items._inner) if compat.module_of(type(items)) in _OF_ITEMS else None  # noqa: SLF001 - ours


def is_shell(frame: FrameType) -> bool:
    """Whether this frame is one of the agent's shells of served calls."""
    return frame.f_code.co_filename in _SHELLS


def served_by(frames: list[FrameType]) -> tuple[IncomingCall | None, Any]:
    """The call that a thread serves and its context, found through the shells' frames.

    The innermost shows the call. It may be the one that reads the requests, which does not have the context.
    """
    served: IncomingCall | None = None
    for frame in frames:
        if not is_shell(frame):
            continue
        names = variables_of(frame)
        holders = [names.get(name) for name in ("self", "call", "handler")]
        call = next((call for holder in holders if (call := _incoming(holder)) is not None), None)
        if call is None or (served is not None and call is not served):
            continue
        served = call
        known = (names.get("context"), *(getattr(holder, "_context", None) for holder in holders))
        context = next((one for one in known if one is not None), None)
        if context is not None:
            return served, context
    return served, None


def _incoming(thing: Any) -> IncomingCall | None:
    """The call of a shell's object; None while the call is being created."""
    for one in (thing, getattr(thing, "call", None), getattr(getattr(thing, "_handler", None), "call", None)):
        if isinstance(one, IncomingCall) and hasattr(one, "served"):
            return one
    return None


def _context_of_task(task: Task) -> Any:
    """The context of the call that a task serves, found in the shell's frame between gRPC and the handler."""
    for one in compat.await_chain(task.get_coro()):
        frame = frame_of(one)
        if frame is not None and frame.f_code.co_filename in _SHELLS and "context" in variables_of(frame):
            return variables_of(frame)["context"]
    return None
