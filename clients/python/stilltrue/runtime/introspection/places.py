"""The stacks of this process's threads and tasks, and which party each of them is."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from stilltrue.model import PartyName
from stilltrue.protocol.books.ledger import ServerCall
from stilltrue.runtime import compat
from stilltrue.runtime.calls.incoming_call import IncomingCall
from stilltrue.runtime.introspection.frames import frame_of, frames_of_threads, variables_of
from stilltrue.runtime.introspection.origins import is_application, is_of_http, is_ours, position_of
from stilltrue.runtime.introspection.tasks import Task
from stilltrue.runtime.parties import Parties
from stilltrue.runtime.seen.registry import may_wait
from stilltrue.runtime.session import Session

STACK_LENGTH_MAX = 12
_OURS = str(Path(__file__).parents[2])
_SHELLS = tuple(str(Path(_OURS, shell)) for shell in ("sync/server.py", "aio/server.py", "http/wsgi.py", "http/asgi.py"))
_CLIENTS = ("http/clients/requests_client.py", "http/clients/httpx_blocking.py")
_BLOCKING = tuple(str(Path(_OURS, shell)) for shell in ("sync", *_CLIENTS))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Place:
    """A thread (``ident``) or a ``task``, its party (None: not recorded), and its ``frames``, innermost first.

    ``frames`` of a task that runs, or blocks its loop, are those of its thread (``ident``) within the task.
    ``serves`` is the call it serves and ``context`` that call's, if any. ``coroutines`` (of a task): what it
    awaits, outermost first.
    """

    party: PartyName | None
    frames: tuple[FrameType, ...]
    ident: int = 0
    task: Task | None = None
    serves: ServerCall | None = None
    context: Any = None
    coroutines: tuple[Any, ...] = ()

    def stack(self) -> tuple[str, ...]:
        """The application's frames, as ``file:line in function``; all frames if it has none.

        Those of HTTP libraries are left out, where there are others.
        """
        frames = [frame for frame in self.frames if is_application(frame.f_code)] or self.frames
        frames = [frame for frame in frames if not is_of_http(frame.f_code)] or frames
        return tuple(position_of(frame) for frame in frames[:STACK_LENGTH_MAX])


class Places:
    """Every thread of the process, and the requested tasks, at one moment."""

    def __init__(self, parties: Parties) -> None:
        """``parties`` maps threads and tasks to parties."""
        self._parties = parties
        self._names = {thread.ident: name for name, thread in parties.threads()}
        self.threads: dict[int, Place] = {
            ident: self._of_thread(ident, frames) for ident, frames in frames_of_threads().items()
        }
        self._by_party = {place.party: place for place in self.threads.values() if place.party is not None}
        known = parties.tasks()
        self._tasks = {party: task for task, party in known}
        self._parties_of_tasks = dict(known)
        self.loop_threads = self._running_loops()
        self.root = parties.root
        loops = blocked_loops(parties, {ident: place.frames for ident, place in self.threads.items()})
        self.blocked_loops = {loop: (party, task) for loop, party, task in loops.values()}
        """The loops that a task blocks: nothing runs there until its party goes on."""
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
        """The place of ``party``; None if it is gone or cannot be found."""
        task = self._tasks.get(party)
        return self._by_party.get(party) if task is None else self.of_task(task, party)

    def of_task(self, task: Task, party: PartyName | None) -> Place:
        """The place of ``task``."""
        root = None if party is None else self._parties.root_of(task, party)
        served = root.served if root is not None and root.task is task else None
        start = root.coroutine if root is not None and root.task is task and root.coroutine is not None else task.get_coro()
        chain = compat.chain_of(start)
        ident, frames = self._running(task)
        if not frames:
            frames = tuple(frame for one in reversed(chain) if (frame := frame_of(one)) is not None)
        context = None if served is None else _context_of_task(task)
        return Place(
            party=party, frames=frames, ident=ident, task=task, serves=served, context=context, coroutines=tuple(chain)
        )

    def _running(self, task: Task) -> tuple[int, tuple[FrameType, ...]]:
        """The thread that runs this very task, and its frames within it; (0, ()) for a task that does not run."""
        loop = task.get_loop()
        ident = next((ident for ident, one in self.loop_threads.items() if one is loop), 0)
        if not ident or compat.current_task_of(loop) is not task:
            return 0, ()
        return ident, tuple(itertools.takewhile(lambda frame: not _is_around_tasks(frame), self.threads[ident].frames))

    def party_of(self, task: Task) -> PartyName | None:
        """The party of ``task``, if known."""
        return self._parties_of_tasks.get(task)

    def coroutine_of(self, task: Task) -> Any:
        """The application's coroutine in a task that serves a call; None for other tasks."""
        party = self.party_of(task)
        root = None if party is None else self._parties.root_of(task, party)
        return root.coroutine if root is not None and root.task is task else None

    def loops(self, tasks: Iterable[Task | None]) -> list[asyncio.AbstractEventLoop]:
        """The event loops that run, and those of ``tasks``."""
        return list(dict.fromkeys((*self.loop_threads.values(), *(task.get_loop() for task in tasks if task is not None))))

    def is_on_main_thread(self, place: Place) -> bool:
        """Whether a signal handler interrupts the party at ``place``."""
        main = threading.main_thread().ident
        return place.ident == main if place.task is None else self.loop_threads.get(main or 0) is place.task.get_loop()

    def is_of_stopping_server(self, place: Place) -> bool:
        """Whether the party at ``place`` serves a call of a server that is being stopped."""
        return any(map(compat.is_stopping, self.servers_of(place)))

    def servers_of(self, place: Place) -> list[Any]:
        """What gRPC keeps of the server whose call is served at ``place``; of several, where it may be any of these."""
        if place.serves is None:
            return []
        if place.task is not None:
            server = compat.aio_server_of(place.task)
            return [] if server is None else [server]
        state = id(getattr(place.context, "_state", None))
        found = [server for server in self._servers if state in compat.calls_of(server)]
        if found:
            return found
        tasks = (
            task for loop in self.loop_threads.values() for task in compat.tasks_of(loop) or () if compat.is_grpc_task(task)
        )
        return [server for task in tasks if (server := compat.aio_server_of(task)) is not None]

    def feeder_of(self, place: Place) -> Place | None:
        """The place of the thread or task that feeds the request stream of the call awaited at ``place``."""
        if place.task is not None:
            return self._feeding_task(place)
        if not self._feeders:
            return None
        states = (compat.state_in(frame) for frame in place.frames)
        return next((found for state in states if (found := self._feeders.get(id(state))) is not None), None)

    def _feeding_task(self, place: Place) -> Place | None:
        for frame in place.frames:
            call = variables_of(frame).get("self") if is_ours(frame.f_code) else None
            feeder = compat.feeder_of(getattr(call, "_inner", None))
            if feeder is not None:
                return self.of_task(feeder, self.party_of(feeder))
        return None

    def _running_loops(self) -> dict[int, asyncio.AbstractEventLoop]:
        found = {}
        for ident, place in self.threads.items():
            loop = next((loop for frame in place.frames if (loop := compat.loop_in(frame)) is not None), None)
            if loop is not None:
                found[ident] = loop
        return found

    def _of_thread(self, ident: int, frames: list[FrameType]) -> Place:
        served, of, context = serving_in(frames)
        if served is None:
            return Place(party=self._names.get(ident), frames=tuple(frames), ident=ident)
        party = served.party if of is self._parties else None  # else of another agent in this process
        return Place(party=party, frames=tuple(frames), ident=ident, serves=served, context=context)


def blocked_loops(
    parties: Parties, threads: Mapping[int, Sequence[FrameType]]
) -> dict[int, tuple[asyncio.AbstractEventLoop, PartyName, Task]]:
    """By thread: the event loops whose task blocks their thread in a wait of ours or of Python's, its party, and the task.

    Nothing else runs on such a loop until that task goes on: no task, no timer and no callback.
    """
    found = {}
    for ident, frames in threads.items():
        if ident == threading.get_ident():  # it cuts, and waits for nobody
            continue
        at = next((at for at, frame in enumerate(frames) if compat.loop_in(frame) is not None), None)
        loop = None if at is None else compat.loop_in(frames[at])
        if loop is None or at is None:
            continue
        task = compat.current_task_of(loop)
        within = list(itertools.takewhile(lambda frame: not compat.is_step(frame.f_code), frames[:at]))
        blocks = any(frame.f_code.co_filename.startswith(_BLOCKING) for frame in within) or may_wait(within)
        if task is not None and blocks and not parties.is_anothers(task):
            root = next((root for root in list(parties.roots.values()) if root.task is task), None)
            found[ident] = (loop, parties.of(task, root), task)
    return found


def _is_around_tasks(frame: FrameType) -> bool:
    """Whether a task that runs is within this frame: it runs one of its steps, or the loop, which may have no frame between."""
    return compat.is_step(frame.f_code) or compat.loop_in(frame) is not None


def serving_in(frames: list[FrameType]) -> tuple[ServerCall | None, Parties | None, Any]:
    """What a thread serves, to whose parties that belongs, and its context: of the behaviour, or of a later interceptor."""
    call, context = served_by(frames)
    if call is not None:
        return call.served, call.session.parties, context
    for frame in frames:
        if frame.f_code.co_filename in _SHELLS:
            names = variables_of(frame)
            served, session = names.get("served"), names.get("session")
            if type(served) is ServerCall and type(session) is Session:
                return served, session.parties, None
    return None, None, None


def served_by(frames: list[FrameType]) -> tuple[IncomingCall | None, Any]:
    """The call that a thread serves, and its context, found through the shell in its frames."""
    for frame in frames:
        if frame.f_code.co_filename in _SHELLS:
            names = variables_of(frame)
            for name in ("self", "call", "handler"):
                holder = names.get(name)
                call = _incoming(holder)
                if call is not None:
                    return call, names.get("context", getattr(holder, "_context", None))
    return None, None


def _incoming(thing: Any) -> IncomingCall | None:
    """The call that a shell's object is for; None while that is only being made."""
    for one in (thing, getattr(thing, "call", None), getattr(getattr(thing, "_handler", None), "call", None)):
        if isinstance(one, IncomingCall) and hasattr(one, "served"):
            return one
    return None


def _context_of_task(task: Task) -> Any:
    """The context of the call that a task serves: it is known to the shell, between gRPC and the behaviour."""
    for one in compat.chain_of(task.get_coro()):
        frame = frame_of(one)
        if frame is not None and frame.f_code.co_filename in _SHELLS and "context" in variables_of(frame):
            return variables_of(frame)["context"]
    return None
