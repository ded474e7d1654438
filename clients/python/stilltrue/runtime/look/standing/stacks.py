"""Shows what threads and tasks that have not moved for a while are blocked in: ``stilltrue stacks``.

Rules:

1. A party has not moved if it is at the same place at two moments: a thread in the same frame at the same instruction that has
   not run (unless its wait is recorded), or in the same recorded wait, or a task blocked by the same future.
2. The reason comes from the record, else from a resolver or the awaited tasks. A party with none of these, or in a wait that no
   known party can end, is unexplained. An owner is never guessed.
3. The agent's own threads, those of gRPC, idle executor threads and running event loops are left out, as are gRPC's tasks,
   except those that serve recorded calls. So are parties that a server or library has parked until it has work for them or
   stops: the lifespan of an application under uvicorn and hypercorn, anyio's idle worker threads. So are tasks that keep a
   ``grpc.aio`` server alive, unless that is being stopped.
4. A task in ``asyncio.sleep()`` is explained: its timer ends the wait.
5. A party whose reply gRPC cannot send is unexplained: the caller does not read, and any of its threads or tasks may begin to.
6. A call whose handler has ended without a status (:mod:`~stilltrue.runtime.calls.unanswered`) is unexplained.
7. If calls or other items are queued for a pool and none of its threads has moved, its parties in unknown waits are expected
   to go on, even those that read a stream, whose caller may pause.
8. A wait that only a cut can find may explain a party (:mod:`~stilltrue.runtime.look.standing.cut_explanations`).
9. A party whose wait was for a task to end that has failed is stuck (:mod:`~stilltrue.runtime.look.standing.failed_tasks`).
10. A polling party moves but makes no progress (:mod:`~stilltrue.runtime.look.termination.polls`). It is shown if it serves a
   call.
11. A task that is due does not move while its loop sleeps (:mod:`~stilltrue.runtime.look.standing.sleeping_loops`).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from stilltrue.model import PartyName
from stilltrue.protocol.books.ledger import OpenWait
from stilltrue.protocol.report import Hold, PartyTarget, ResourceTarget
from stilltrue.protocol.requests.stacks import StacksFound, StandingParty
from stilltrue.runtime import compat
from stilltrue.runtime.bytecode.qualified_names import qualname_of
from stilltrue.runtime.calls.unanswered import UnansweredCall
from stilltrue.runtime.introspection.cut.waits_at_cut import SeenAtCut
from stilltrue.runtime.introspection.origins import is_application, is_ours
from stilltrue.runtime.introspection.tasks import read
from stilltrue.runtime.introspection.threads_and_tasks import served_by, stack_shown
from stilltrue.runtime.locked_recorder import LockedRecorder
from stilltrue.runtime.look.standing.cut_explanations import explained_by_cut
from stilltrue.runtime.look.standing.failed_tasks import failed_before
from stilltrue.runtime.look.standing.replies_due import (
    BLOCKED_IN,
    BlockedReply,
    has_timeout,
    owes_reply,
    reply_blocked_in,
    reply_blocked_on_loop,
    serves_call,
)
from stilltrue.runtime.look.standing.sleeping_loops import NOT_TOLD, DueTask, due_tasks, still_due
from stilltrue.runtime.look.standing.waits_for_answers import waits_for_answer
from stilltrue.runtime.look.termination.idle_positions import serves
from stilltrue.runtime.look.termination.polls import POLLING, PollPlace, poll_place, polls
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.parties import Parties
from stilltrue.runtime.waits.call_stack import where_is
from stilltrue.runtime.waits.process_view import LiveProcessView
from stilltrue.runtime.waits.registry import is_of_shells
from stilltrue.runtime.waits.resolvers.executors import executor_of, items_behind
from stilltrue.runtime.waits.resolvers.locks import RELEASING
from stilltrue.runtime.waits.wait import CallStack, Elsewhere, SeenWait, Task, name_of

PARTIES_MAX = 500
"""Maximum number of reported parties; the unexplained come first."""
LEFT_BY_HANDLER = "nothing: its handler has ended without a status"
PARKED = frozenset(
    {
        ("anyio._backends._asyncio", "WorkerThread.run"),
        ("hypercorn.asyncio.lifespan", "Lifespan.asgi_receive"),
        ("uvicorn.lifespan.on", "LifespanOn.receive"),
    }
)
"""Functions of installed packages, by module, that wait for the next piece of work, or for the end of the server."""


@dataclass(frozen=True, slots=True)
class RecordedWait:
    """A recorded wait as text, its number, and the parties that hold what it waits for, if all are of this process."""

    what: str
    number: int
    held_by: tuple[PartyName, ...] = field(default=(), compare=False)


Recorded = Mapping[PartyName, RecordedWait]
"""The recorded waits by party."""
_READING = frozenset({"__next__", "__anext__", "read", "_next_item"})


@dataclass(frozen=True, slots=True)
class Positions:
    """The positions of threads and the futures of tasks at one moment, by identity; ``recorded``: the parties' waits.

    ``places``: where threads, by identity, and tasks, by ``id``, may poll; ``due``: tasks whose loops sleep; ``at``: when.
    """

    threads: Mapping[int, tuple[object, ...]]
    tasks: Mapping[int, tuple[OwnRef, OwnRef]]
    recorded: Recorded
    places: Mapping[int, PollPlace]
    due: dict[int, DueTask]
    at: float

    def has(self, stack: CallStack) -> bool:
        """Whether the task was blocked by the same future."""
        task, future = self.tasks.get(id(stack.task), (None, None))
        return task is not None and future is not None and task() is stack.task and future() is stack.future is not None


class Stacks:
    """Finds the threads and tasks of one process that stand still."""

    def __init__(
        self, live: LockedRecorder, parties: Parties, stand_seconds: float, newest: Callable[[], SeenAtCut] = SeenAtCut
    ) -> None:
        """``stand_seconds``: a party that has not moved for this time stands still. ``newest``: what the last cut saw."""
        self._live = live
        self._newest = newest
        self._parties = parties
        self._stand_seconds = stand_seconds
        self._under_way = threading.Lock()

    def find(self, number: int) -> StacksFound:
        """Answer the request ``number``. Takes ``stand_seconds``, most of it asleep."""
        with self._under_way:
            before = self.positions()
            time.sleep(self._stand_seconds)
            found = self.standing(before)
        found = sorted(
            (one for one in found if one.unexplained or not one.polls), key=lambda one: (not one.unexplained, one.party)
        )
        return StacksFound(number=number, parties=tuple(found[:PARTIES_MAX]), left_out=max(0, len(found) - PARTIES_MAX))

    def positions(self) -> Positions:
        """The current position of every party."""
        view = self._scene()
        threads, tasks = view.stacks().items(), view.stacks_of_tasks().items()
        places = {**{ident: poll_place(one) for ident, one in threads}, **{id(task): poll_place(one) for task, one in tasks}}
        return Positions(
            {ident: _position(stack) for ident, stack in threads},
            {id(task): (OwnRef(task), OwnRef(stack.future)) for task, stack in tasks if stack.future is not None},
            self._recorded(),
            {key: place for key, place in places.items() if place is not None},
            due_tasks(view.stacks().values()),
            time.monotonic(),
        )

    def standing(self, before: Positions) -> list[StandingParty]:
        """The parties that are still where they were ``before``."""
        view, recorded = self._scene(), self._recorded()
        wanted = _wanted(view, before)
        found: list[StandingParty] = []
        polling: list[StandingParty] = []
        for ident, stack in view.stacks().items():
            was = before.threads.get(ident, ())
            if was[:2] != _position(stack)[:2] and not _is_in_same_wait(view, stack, recorded, before):
                polling += self._polling(stack.ident, stack, view, recorded, before)
                continue
            moved, reply = was != _position(stack), reply_blocked_in(stack, self._parties)
            if reply is not None and not moved:
                found.append(_blocked(reply))
            elif _is_shown(stack, view):
                one = self._standing_thread(stack, view, recorded, moved=moved)
                polling += self._polling(stack.ident, stack, view, recorded, before) if one is None else []
                found += [] if one is None else [replace(one, owes_reply=True) if ident in wanted and one.unexplained else one]
        serving = {id(root.task): root for root in list(self._parties.roots.values())}
        hung = [
            stack
            for task, stack in view.stacks_of_tasks().items()
            if before.has(stack) and (id(task) in serving or not compat.is_grpc_task(task))
        ]
        for stack in hung:
            root = serving.get(id(stack.task))
            reply = None if root is None else reply_blocked_on_loop(stack, root)
            one = self._standing_task(stack, view, recorded) if reply is None else _blocked(reply)
            found += [] if one is None else [one]
        for task, stack in view.stacks_of_tasks().items():
            polling += [] if before.has(stack) else self._polling(id(task), stack, view, recorded, before)
        found += [one for stack in still_due(before.due, view.stacks().values()) if (one := _due(stack, view)) is not None]
        found = explained_by_cut(found, self._newest(), view)
        return found + polling + [_left(one) for one in self._parties.unanswered if self._stands(one)]

    def _polling(
        self, key: int, stack: CallStack, view: LiveProcessView, recorded: Recorded, before: Positions
    ) -> list[StandingParty]:
        """Rule 10: the party with this stack, if it polls in no known wait."""
        if not polls(before.places.get(key), stack, time.monotonic() - before.at) or not _is_shown(stack, view):
            return []
        party = view.party_of(stack.who)
        wait = view.wait_of(stack) if stack.task is None else view.wait_of_task(stack.task)
        if party is None or party in recorded or (wait is not None and (wait.enders or wait.until is not None)):
            return []
        due, where = serves_call(stack, single_reply=True), stack_shown(stack.frames)
        return [StandingParty(party=party, blocked_in=POLLING, stack=where, unexplained=due, owes_reply=due, polls=True)]

    def _stands(self, left: UnansweredCall) -> bool:
        """Rule 6."""
        return time.monotonic() - left.since >= self._stand_seconds and not left.has_ended()

    def _scene(self) -> LiveProcessView:
        return LiveProcessView(self._parties, self._live.clock())

    def _recorded(self) -> Recorded:
        with self._live.lock:
            recorder = self._live.recorder
            made = recorder.calls_made.values()  # read under its lock
            calls = {
                one.party: RecordedWait(f"the reply to {one.method}", one.wait)
                for one in made
                if one.wait and one.party is not None
            }
            waits = {
                one.waiter: RecordedWait(_what(one), one.number, _holders(one, recorder._holds))  # noqa: SLF001
                for one in recorder.open_waits.values()
            }
        return calls | waits

    def _standing_thread(
        self, stack: CallStack, view: LiveProcessView, recorded: Recorded, *, moved: bool
    ) -> StandingParty | None:
        """``moved``: it has run meanwhile, as gRPC's polling waits do."""
        party = view.party_of(stack.ident)
        return (
            None
            if party is None or (moved and party not in recorded)
            else _standing(party, stack, view.wait_of(stack), view, recorded)
        )

    def _standing_task(self, stack: CallStack, view: LiveProcessView, recorded: Recorded) -> StandingParty | None:
        task = stack.task
        if task is None or _is_parked(stack) or not _runs_application(stack):
            return None
        party = view.party_of(task)  # which names it: it may wait for a blocked loop later
        wait = view.wait_of_task(task) or _wait_for_tasks(task, stack, view)
        return None if party is None or serves(stack.frames) else _standing(party, stack, wait, view, recorded)


def _wanted(view: LiveProcessView, before: Positions) -> frozenset[int]:
    """Rule 7: the threads that serve calls in executors with queued items none of whose threads moves or has a timeout."""
    pools: dict[int, list[CallStack]] = {}
    for stack in view.stacks().values():
        executor = executor_of(stack.frames)
        if executor is not None:
            pools.setdefault(id(executor), []).append(stack)
    stuck = (those for those in pools.values() if all(_stays(one, before) for one in those) and items_behind(those[0].frames))
    return frozenset(one.ident for those in stuck for one in those if served_by(list(one.frames))[0] is not None)


def _stays(stack: CallStack, before: Positions) -> bool:
    """Whether a thread is where it was, in a wait without a timeout. In a call, gRPC's polling runs now and then."""
    was, now = before.threads.get(stack.ident, ()), _position(stack)
    return (was == now or (was[:2] == now[:2] and is_of_shells(stack.frames))) and not has_timeout(stack.frames[0])


def _is_in_same_wait(view: LiveProcessView, stack: CallStack, recorded: Recorded, before: Positions) -> bool:
    """Whether a thread is in the same recorded wait as before, though gRPC polls in it."""
    party = view.party_of(stack.ident) if is_of_shells(stack.frames) else None
    return party is not None and party in recorded and recorded[party] == before.recorded.get(party)


def _wait_for_tasks(task: Task, stack: CallStack, view: LiveProcessView) -> SeenWait | None:
    """A task's wait for tasks or for a running executor item; None for any other wait or one with a timeout."""
    awaited = read(task, stack.future)
    if awaited is None:
        source = compat.source_of(stack.future)
        ident = None if source is None else view.thread_running(source)
        return None if ident is None else SeenWait(on=stack.future, enders=(ident,), what="an executor item run by {}")
    if awaited.until is not None or not all(map(compat.is_task, awaited.futures)):
        return None
    needs = None if awaited.needs_all else 1
    return SeenWait(on=stack.future, enders=awaited.futures, needs=needs, what="the end of {}")


def _what(wait: OpenWait) -> str:
    """What a wait is for, in the application's words, else by the names of the resources."""
    names = " and ".join(one.resource for one in wait.among if isinstance(one, ResourceTarget))
    return wait.what or (f"a declared wait for {names}" if names else "a declared wait")


def _holders(wait: OpenWait, holds: Mapping[str, Sequence[Hold]]) -> tuple[PartyName, ...]:
    """The parties that ``wait`` is for; none if some share of a resource is held by nobody known, or in another process."""
    found: dict[PartyName, None] = {}
    for target in wait.among:
        if isinstance(target, PartyTarget):
            found[target.party] = None
            continue
        held = holds.get(target.resource, ()) if isinstance(target, ResourceTarget) else ()
        if not held or len(held) < held[0].capacity:
            return ()
        found |= dict.fromkeys(one.party for one in held)
    return tuple(found)


def _position(stack: CallStack) -> tuple[object, ...]:
    return where_is(stack.ident, stack.frames[0])


def _is_shown(stack: CallStack, view: LiveProcessView) -> bool:
    """Rule 3."""
    if any(compat.loop_in(frame) is not None for frame in stack.frames) and stack.ident not in view.loops:
        return False
    return _runs_application(stack) and not _is_parked(stack)


def _runs_application(stack: CallStack) -> bool:
    return any(is_application(frame.f_code) for frame in stack.frames)


def _is_parked(stack: CallStack) -> bool:
    """Whether the innermost function that is not the standard library's is one of ``PARKED``."""
    inner = next((frame for frame in stack.frames if is_application(frame.f_code)), None)
    return inner is not None and (inner.f_globals.get("__name__"), qualname_of(inner.f_code)) in PARKED


def _blocked(reply: BlockedReply) -> StandingParty:
    """Rule 5."""
    return StandingParty(
        party=reply.party, blocked_in=BLOCKED_IN, stack=stack_shown(reply.frames), unexplained=True, owes_reply=True
    )


def _due(stack: CallStack, view: LiveProcessView) -> StandingParty | None:
    """Rule 11; None for a task of gRPC's own that serves no recorded call."""
    party, is_serving = view.party_of(stack.who), serves_call(stack)
    if party is None or not (is_serving or _runs_application(stack)):
        return None
    where = stack_shown(stack.frames)
    return StandingParty(
        party=party, blocked_in=NOT_TOLD, stack=where, unexplained=True, owes_reply=is_serving, never_idle=not is_serving
    )


def _left(one: UnansweredCall) -> StandingParty:
    """Rule 6."""
    return StandingParty(party=one.party, blocked_in=LEFT_BY_HANDLER, stack=(), unexplained=True, owes_reply=True)


def _standing(
    party: PartyName, stack: CallStack, wait: SeenWait | None, view: LiveProcessView, recorded: Recorded
) -> StandingParty:
    found = _standing_in(party, stack, wait, view, recorded)
    if party in recorded and _reads_stream(stack):
        return replace(found, reads_stream=True)
    failed = failed_before(stack) if found.unexplained else ""
    if failed:
        found = replace(found, blocked_in=f"{found.blocked_in or 'a future'}, which {failed}")
    needs = failed or (waits_for_answer(stack) if wait is None else wait.ending_names is RELEASING)
    return replace(found, never_idle=True) if needs and served_by(list(stack.frames))[0] is None else found


def _reads_stream(stack: CallStack) -> bool:
    """Whether a party is in one of our shells' functions that read the next item of a stream."""
    inner = next((one.f_code for one in stack.frames if is_application(one.f_code) or is_ours(one.f_code)), None)
    return inner is not None and is_ours(inner) and inner.co_name in _READING


def _standing_in(
    party: PartyName, stack: CallStack, wait: SeenWait | None, view: LiveProcessView, recorded: Recorded
) -> StandingParty:
    positions, owes = stack_shown(stack.frames), owes_reply(stack, wait, view)
    if party in recorded:
        record = recorded[party]
        return StandingParty(party=party, blocked_in=record.what, held_by=record.held_by, stack=positions)
    if wait is None:
        inner = stack.frames[0].f_code
        where = "" if is_application(inner) else qualname_of(inner)
        if stack.task is not None and stack.frames[0].f_globals is asyncio.sleep.__globals__ and where == "sleep":
            return StandingParty(party=party, blocked_in="asyncio.sleep", stack=positions)
        return StandingParty(party=party, blocked_in=where, stack=positions, unexplained=True, owes_reply=owes)
    named = [name_of(ender) for ender in wait.enders or () if isinstance(ender, Elsewhere)]
    if named:
        return StandingParty(party=party, blocked_in=wait.what.format(" or ".join(named)), stack=positions)
    known = [view.party_of(ender) for ender in wait.enders or () if not isinstance(ender, Elsewhere)]
    enders = tuple(dict.fromkeys(ender for ender in known if ender is not None)) if None not in known else ()
    what = wait.what.format(" or ".join(enders) or "an unknown party")
    owes = owes and wait.until is None
    return StandingParty(party=party, blocked_in=what, held_by=enders, stack=positions, unexplained=not enders, owes_reply=owes)
