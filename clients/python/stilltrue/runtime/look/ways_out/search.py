"""Finds the ways out of the suspects' waits in one look.

A holder of an object that ends a wait may end it: a way out by that party, or an open one if it is not a party. A party that
must itself wait for the suspect first does not count. What could not be read, or not in time, is doubt.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from stilltrue.model import PartyName
from stilltrue.runtime import compat
from stilltrue.runtime.introspection.cut.client_interceptors import interceptor_tasks
from stilltrue.runtime.introspection.linux.own_timers import processor_seconds_max
from stilltrue.runtime.introspection.origins import is_own_code, position_of
from stilltrue.runtime.introspection.tasks import Task, blocking_future
from stilltrue.runtime.introspection.threads_and_tasks import Place, Places
from stilltrue.runtime.look.budget import Budget
from stilltrue.runtime.look.called_code.ending import clear_caches, ended_by, ends_far
from stilltrue.runtime.look.called_code.methods import is_program_class
from stilltrue.runtime.look.called_code.reachable_names import ReachableNames
from stilltrue.runtime.look.code.names import RUNS_TEXT
from stilltrue.runtime.look.progress.analysis import ProgressAnalysis
from stilltrue.runtime.look.suspects import contexts_of, handles_of, streams_of
from stilltrue.runtime.look.ways_out import actors, timers_and_callbacks
from stilltrue.runtime.look.ways_out.actors import Actor
from stilltrue.runtime.look.ways_out.awaiters import all_awaiters
from stilltrue.runtime.look.ways_out.closing import Closing
from stilltrue.runtime.look.ways_out.effects import Effects, cancels
from stilltrue.runtime.look.ways_out.findings import Found
from stilltrue.runtime.look.ways_out.kinds.future_requests import Request, requests_to_come
from stilltrue.runtime.look.ways_out.kinds.group_starters import GroupStarters
from stilltrue.runtime.look.ways_out.kinds.pool_growers import Growers
from stilltrue.runtime.look.ways_out.kinds.releasers import Releasers
from stilltrue.runtime.look.ways_out.kinds.share_holders import ShareHolders
from stilltrue.runtime.look.ways_out.kinds.signalling_children import signalling_child
from stilltrue.runtime.look.ways_out.named_reach import NamedReach, NamedTargets
from stilltrue.runtime.look.ways_out.proved import without_proved
from stilltrue.runtime.look.ways_out.reach import Reach, named_by
from stilltrue.runtime.look.ways_out.unheld import Unheld
from stilltrue.runtime.waits.databases.sessions import Sessions
from stilltrue.runtime.waits.files.holders import FileLocks
from stilltrue.runtime.waits.pipes.work import OwnWork
from stilltrue.runtime.waits.reachability.thread_waits import ReportedThreadWait
from stilltrue.runtime.waits.shared_lock_holders import SharedLocks
from stilltrue.runtime.waits.streams.calls_of_tasks import call_fed_by
from stilltrue.runtime.waits.wait import SeenWait

_ALL_OBJECTS = frozenset({"get_objects", "get_referrers"})
_ALL_VARIABLES = frozenset({"f_locals", "f_globals", "__globals__"})
_ALL_THREADS = frozenset({"threading", "enumerate"})


class Search:
    """The search of one look."""

    def __init__(
        self,
        places: Places,
        open_calls: Iterable[Any],
        now: float,
        budget: Budget,
        *,
        waiting: Container[PartyName] = (),
        on_full_connections: Container[PartyName] = (),
        handles_seen: Callable[[PartyName], Iterable[Any]] = lambda _: (),
        share_waits: Mapping[PartyName, SeenWait | None] = MappingProxyType({}),
        sessions: Sessions | None = None,
        file_locks: FileLocks | None = None,
        shared_locks: SharedLocks | None = None,
        own_work: OwnWork | None = None,
        proved: Mapping[PartyName, ReportedThreadWait] = MappingProxyType({}),
        bounded: Container[PartyName] = (),
    ) -> None:
        """``open_calls``: gRPC's own objects of the open calls; ``now`` is epoch time.

        ``waiting``: the parties with a recorded wait. ``on_full_connections``: parties whose own calls must last, too; holders
        of their contexts may end those calls. ``handles_seen`` returns the objects that end a wait observed at the cut.
        ``share_waits``: waits for shares, read again (None: could not be read). ``sessions``: the connections to databases.
        ``file_locks``, ``shared_locks``: the locks on files, and those of multiprocessing. ``own_work``: the process's work.
        ``proved``: the waits for which the same look proves who can reach what is waited for. ``bounded``: the parties whose
        recorded waits have deadlines.
        """
        self._sessions = sessions or Sessions()
        self._file_locks = file_locks or FileLocks()
        self._shared_locks = shared_locks or SharedLocks()
        self._own_work = own_work or OwnWork()
        self._proved = proved
        self._bounded = bounded
        self._handles_seen = handles_seen
        self._share_waits = share_waits
        self._on_full_connections = on_full_connections
        self._places = places
        self._waiting = waiting
        self._open_calls = tuple(open_calls)
        self._now = now
        self._budget = budget
        self._analysis = ProgressAnalysis(places, waiting, budget, self._open_calls)
        self._requests: list[Request] = []
        self._suspected: frozenset[Task] = frozenset()
        """The tasks among the suspects."""

    def find(self, suspects: Iterable[Place]) -> dict[PartyName, Found]:
        """Find the ways out of the parties at these places, by party."""
        suspects = list(suspects)
        self._suspected = frozenset(place.task for place in suspects if place.task is not None)
        found = {place.party: self._suspect(place) for place in suspects if place.party is not None}
        by_handle: dict[int, list[Found]] = {}
        by_awaiter: dict[int, list[Found]] = {}
        by_context: dict[int, list[Found]] = {}
        for one in found.values():
            for handle in compat.with_proxies(one.handles):
                by_handle.setdefault(id(handle), []).append(one)
            for task in compat.with_proxies(one.awaiters):
                by_awaiter.setdefault(id(task), []).append(one)
            for context in compat.with_proxies(one.contexts):
                by_context.setdefault(id(context), []).append(one)
        ending = (thing for one in found.values() for thing in (*one.handles, *one.awaiters, *one.contexts))
        targets = list(compat.with_proxies(ending))
        lines = [line for wait in self._share_waits.values() if wait is not None for line in wait.lines]
        reach = Reach(targets, self._budget, ended_by, lines=lines)
        clear_caches()
        try:
            self._requests = list(requests_to_come(self._places, found))
            wakers = [(one.progress, (one.behaviour, one.wakes)) for one in self._requests if one.wakes is not None]
            with_requests = ProgressAnalysis(self._places, self._waiting, self._budget, self._open_calls, wakers)
            try:
                effects = Effects(self._places, self._analysis, with_requests)
                self._find_actors(effects, found, by_handle, by_awaiter, by_context, reach)
                Closing(self._places, self._analysis, self._budget, self._open_calls, self._share_waits).find(found.values())
            finally:
                with_requests.forget()
        finally:
            self._analysis.forget()
            clear_caches()  # application objects are not kept
        unread = (signalling_child() or self._greenlets() or _processor_limit()) if found else ""
        unheld = Unheld(self._places, self._waiting, self._now)
        for one in found.values():
            one.doubt = one.doubt or unread
            unheld.check(one)
            self._check_sessions(one)
            party = one.place.party
            one.doubt = one.doubt or self._file_locks.doubt_of(party) or self._shared_locks.doubt_of(party)
            one.doubt = one.doubt or self._own_work.doubt_of(party)
            unheld.check_awaiters(one, found)
            if self._budget.spent:
                one.doubt = one.doubt or "the look ran out of time"
        effects.end_through_fellow_waiters(self._bounded)
        return found

    def _shares_of(self, party: PartyName) -> tuple[Any, ...]:
        """The shares, connections, locked files and managers whose use by any actor ends its wait, or its dependents' waits."""
        wait = self._share_waits.get(party)
        held = (*self._sessions.of(party), *self._file_locks.of(party), *self._shared_locks.managers_of(party))
        shares = () if wait is None else wait.shares
        return (*(shares or (object(),)), *held) if held else shares

    def _check_sessions(self, one: Found) -> None:
        """Check that its database connections are its own and their sessions have no timeouts."""
        for name in sorted(set(self._sessions.shared(one.place).values())):
            one.add_way_out(f"its database connection is also in {name}, which others may use")
        one.doubt = one.doubt or self._sessions.doubt_of(one.place.party)

    def _find_actors(
        self,
        effects: Effects,
        found: dict[PartyName, Found],
        by_handle: dict[int, list[Found]],
        by_awaiter: dict[int, list[Found]],
        by_context: dict[int, list[Found]],
        reach: Reach,
    ) -> None:
        """Find the actors that hold what ends the waits, or that can undo what blocks them."""
        waits = {party: wait for party, wait in self._share_waits.items() if wait is not None}
        kept = ShareHolders({party: self._shares_of(party) for party in found}, self._budget)
        releasers = Releasers(waits, {party: one.handles for party, one in found.items()}, self._budget)
        releasing = {party: wait for party in found if (wait := self._shared_locks.released_through(party)) is not None}
        shared = Releasers(releasing, {}, self._budget)
        opening = {party: wait for party in found if (wait := self._file_locks.undone_by_descriptor(party)) is not None}
        openers = Releasers(opening, {}, self._budget)
        growers, starters = Growers(found, self._budget), GroupStarters(found, self._budget)
        along_names = NamedReach(reach, self._budget)
        threads = self._threads()
        for actor in self._actors(found.values(), kept):
            if not self._budget.large_step():
                break
            every = {*by_handle, *by_awaiter, *by_context} if _inspects_all_objects(actor) else ()
            those = _held_by(actor, reach, along_names)
            effects.doubt(actor, found.values() if those.beyond else (), those.beyond)
            for held in every or those.targets:
                effects.end(actor, without_proved(by_handle.get(held, []), held, actor, self._proved))
                effects.end_through_awaiters(actor, by_awaiter.get(held, []))
                effects.end_through_contexts(actor, by_context.get(held, []))
            if actor.only_calls:
                continue
            completed = (
                party for party in releasers.freed_by(actor) if party in waits or not self._is_proved(found[party], actor)
            )
            freed = (*completed, *shared.freed_by(actor), *openers.freed_by(actor), *starters.freed_by(actor))
            for party in (*kept.held_by(actor), *freed):
                effects.end(actor, [found[party]])
            effects.grow_pool(actor, growers.grown_by(actor), found)
            effects.interrupt(actor, found.values())
        for actor, party in releasers.freed_by_calls(actors.library_threads(threads)):
            effects.end(actor, [found[party]])
        for actor, party in growers.grown_by_calls(actors.library_threads(threads)):
            effects.grow_pool(actor, [party], found)
        for actor in kept.keepers(self._places):
            for party in kept.held_by(actor):
                effects.end(actor, [found[party]])
        self._add_requests(found, by_handle, by_awaiter, by_context, (releasers, openers, starters), kept, growers, reach)

    def _is_proved(self, one: Found, actor: Actor) -> bool:
        """Whether all futures whose completion ends the wait are those of which it is proved who can reach them."""
        futures = [handle for handle in one.handles if isinstance(handle, Future)]
        return bool(futures) and not any(without_proved([one], id(future), actor, self._proved) for future in futures)

    def _suspect(self, place: Place) -> Found:
        handles = handles_of(place) + ([] if place.party is None else list(self._handles_seen(place.party)))
        writes = place.task is not None and place.serves is not None  # a holder of its context may send its caller an item
        acts = place.party in self._on_full_connections or writes
        handles += contexts_of(place) if acts else []
        lost = any(party == place.party and wait is None for party, wait in self._share_waits.items())
        unread = "the holders of what it waits for could not be read again"
        doubt = unread if lost else _doubt_from_interceptors(place, self._suspected)
        awaiters = [] if place.task is None else all_awaiters(place.task)
        fed = [call for task in (place.task, *awaiters) if task is not None and (call := call_fed_by(task)) is not None]
        handles += [one for call in fed if call.made.handle is not None and (one := call.made.handle()) is not None]
        if any(call.made.handle is None for call in fed):
            doubt = doubt or "interceptors of a call may cancel the task that sends its requests"
        wait = None if place.party is None else self._share_waits.get(place.party)
        helpers = () if wait is None else wait.helpers
        return Found(place, handles, awaiters, [] if acts else contexts_of(place), doubt=doubt, helpers=helpers)

    # -- actors and closers --------------------------------------------------------------------------------------------

    def _actors(self, found: Iterable[Found], kept: ShareHolders) -> Iterator[Actor]:
        places = self._places
        threads, loops = self._threads(), places.loops(one.place.task for one in found)
        yield from actors.threads(threads)
        yield from timers_and_callbacks.items(threads)
        yield from timers_and_callbacks.contexts(threads)
        yield from timers_and_callbacks.calls(self._open_calls)
        yield from timers_and_callbacks.signals(loops)
        yield from timers_and_callbacks.finalizers(kept.is_share)
        yield from timers_and_callbacks.hooks(loops)
        for loop in loops:
            handles, tasks = compat.handles_of(loop), compat.tasks_of(loop)
            holder, _ = places.blocked_loops.get(loop, (None, None))
            if handles is None or tasks is None:
                self._cannot_read(found, loop, holder)
                continue
            watching = [one for one in compat.watched_by(loop) if _reads(*compat.callback_of(one), kept)]
            here = (
                *timers_and_callbacks.timers(loop, [*handles, *watching]),
                *timers_and_callbacks.protocols(loop),
                *actors.tasks(places, tasks),
            )
            yield from here if holder is None else (replace(actor, party=holder, fires_at=None) for actor in here)

    def _threads(self) -> list[Place]:
        return [place for place in self._places.threads.values() if place.ident != threading.get_ident()]

    def _greenlets(self) -> str:
        """Why greenlets may end any wait, as text; empty: no thread is known to switch to one."""
        for place in self._threads():
            for frame in place.frames:
                if compat.runs_gevent(frame) or (is_own_code(frame.f_code) and compat.has_suspended_greenlet(frame)):
                    return f"a thread switches to greenlets, whose code is not read: {position_of(frame)}"
        return ""

    def _cannot_read(self, found: Iterable[Found], loop: asyncio.AbstractEventLoop, holder: PartyName | None) -> None:
        """Any callback of the loop may end a wait there, but not before ``holder``, which blocks the loop, continues."""
        for one in found:
            if one.place.task is None or one.place.task.get_loop() is not loop:
                continue
            if holder is None:
                one.doubt = one.doubt or "the timers or tasks of its event loop cannot be read"
            elif holder != one.place.party:
                one.add_way_out("a callback due on its event loop", holder)

    def _add_requests(
        self,
        found: Mapping[PartyName, Found],
        by_handle: Mapping[int, list[Found]],
        by_awaiter: Mapping[int, list[Found]],
        by_context: Mapping[int, list[Found]],
        releasers: Iterable[Releasers | GroupStarters],
        kept: ShareHolders,
        growers: Growers,
        reach: Reach,
    ) -> None:
        """Add future requests whose methods can reach what ends a wait, or the call or the pool that a suspect serves."""
        answerable = {
            id(one) for suspect in found.values() for one in (*contexts_of(suspect.place), *streams_of(suspect.handles))
        }
        for request in self._requests:
            if not self._budget.large_step():
                break
            actor = request.actor
            held = reach.held(actor.roots, ends=True) if actor.ends else set[int]()
            ended = [one for key in held for one in (*by_handle.get(key, ()), *by_awaiter.get(key, ()))]
            ended = [one for one in ended if not self._undoes_only_its_own(one.place.party, request)]
            ended += [one for key in held for one in by_context.get(key, ())] if cancels(actor) else []
            answered = reach.held((*actor.roots, *request.globals), ends=True) & answerable if request.answers else ()
            ended += [one for key in answered for one in by_handle.get(key, ())]
            undone = (party for several in releasers for party in several.freed_by(actor))
            freed = [found[party] for party in undone if not self._undoes_only_its_own(party, request)]
            freed += [found[party] for party in kept.held_by(replace(actor, roots=(*actor.roots, *request.globals)))]
            grown = (found[party] for party in growers.grown_by(actor, by_name=True))
            for one, what in (
                *((one, "end its wait") for one in (*ended, *freed)),
                *((one, "add workers to its pool") for one in grown),
            ):
                if request.progress.by_itself:
                    one.doubt = one.doubt or f"{actor.text} may {what}"
                one.add_ways_out(actor.text, request.progress.parties - {one.place.party})

    def _undoes_only_its_own(self, party: PartyName | None, request: Request) -> bool:
        """Whether a future request takes and gives back a share of its own of what a party waits for."""
        wait = None if party is None else self._share_waits.get(party)
        return wait is not None and wait.has_own_share is not None and wait.has_own_share(request.codes)


def _processor_limit() -> str:
    """Why the system may end the process, as text; empty: it does not."""
    limit = processor_seconds_max()
    return "" if limit is None else f"the system ends its process after {limit:.0f} s of processor time (RLIMIT_CPU)"


def _doubt_from_interceptors(place: Place, suspected: Container[Task]) -> str:
    """Why a task's wait may end through its call's interceptors; empty if it may not, since their tasks are ``suspected``."""
    interceptors = None if place.task is None else interceptor_tasks(blocking_future(place.task))
    held_up = interceptors is None or interceptors.are_held_up(suspected.__contains__)
    return "" if held_up else "an interceptor of its call waits for something else"


def _reads(called: Any, arguments: Iterable[Any], kept: ShareHolders) -> bool:
    """Whether a socket callback notifies anything but asyncio or an awaited connection that owns the socket."""
    if not compat.is_from_application(called):
        return False
    notified = [*compat.bound_to(called), *(held for one in arguments for held in (one, *(named_by(one) or ())))]
    return not any(map(kept.is_share, notified))


def _held_by(actor: Actor, reach: Reach, along_names: NamedReach) -> NamedTargets:
    """The targets that an actor holds, or that something it may call ends."""
    if actor.only_calls:
        names = actor.led_by().names
        called = along_names.held(actor.roots, names, only_calls=True)
        beyond = called.beyond or ("runs what comes as text" if RUNS_TEXT in names else "")
        return NamedTargets(reach.ended_by_calls(actor.roots).union(called.targets), beyond)
    held = reach.held(actor.roots, ends=actor.ends, borrowed=actor.borrowed)
    led = actor.led_by() if actor.ends else ReachableNames()
    if not any(map(ends_far, led.names)):
        return NamedTargets(held)
    further = along_names.held((*actor.roots, *led.handed_on, *_shown_by_library(led.names)), led.names)
    return NamedTargets(held.union(further.targets), further.beyond)


def _shown_by_library(names: frozenset[str]) -> list[Any]:
    """The objects of the program's own classes that the standard library shows to code with these names."""
    if not names >= _ALL_THREADS:
        return []
    return [one for one in compat.threads().values() if is_program_class(type(one))]


def _inspects_all_objects(actor: Actor) -> bool:
    """Whether an actor that ends things asks the collector, or frames, for objects it was not given."""
    if not actor.ends or actor.borrowed:
        return False
    led = actor.led_by().names  # the standard library reads the variables of frames for itself
    return not (_ALL_OBJECTS.isdisjoint(actor.names_reached(True).names) and _ALL_VARIABLES.isdisjoint(led))
