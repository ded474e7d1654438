"""Every way out of their waits that can be found for the suspects of one look.

A holder of what ends a wait may end it: a way out by that party, where it is one, and an open one otherwise. A party that
is itself bound to wait for the suspect first is no way out. What could not be looked at, or not in time, is doubt.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from stilltrue.model import PartyName
from stilltrue.runtime import compat
from stilltrue.runtime.introspection.intercepted import beneath
from stilltrue.runtime.introspection.origins import is_application, position_of
from stilltrue.runtime.introspection.places import Place, Places
from stilltrue.runtime.introspection.tasks import blocking_future, siblings_of
from stilltrue.runtime.look.budget import Budget
from stilltrue.runtime.look.code.ending import ended_by, forget
from stilltrue.runtime.look.enders import actors
from stilltrue.runtime.look.enders.actors import Actor
from stilltrue.runtime.look.enders.found import Found
from stilltrue.runtime.look.enders.kin import is_bound, kin_of
from stilltrue.runtime.look.enders.kinds.closers import ANYTHING, Closer, closers, of_alarms, of_calls
from stilltrue.runtime.look.enders.kinds.growers import Growers
from stilltrue.runtime.look.enders.kinds.kept_shares import KeptShares
from stilltrue.runtime.look.enders.kinds.undoing import Undoers, interrupts
from stilltrue.runtime.look.enders.reach import Reach, named_by
from stilltrue.runtime.look.enders.spoken import nothing
from stilltrue.runtime.look.progress.analysis import ProgressAnalysis
from stilltrue.runtime.look.progress.progress import BY_ITSELF, NEVER, Progress
from stilltrue.runtime.look.suspects import contexts_of, handles_of, owners_of
from stilltrue.runtime.seen.databases.sessions import Sessions
from stilltrue.runtime.seen.wait import SeenWait


class Search:
    """The search of one look."""

    def __init__(
        self,
        places: Places,
        made: Iterable[Any],
        now: float,
        budget: Budget,
        waiting: Container[PartyName] = (),
        carried: Container[PartyName] = (),
        seen: Callable[[PartyName], Iterable[Any]] = lambda _: (),
        of_shares: Mapping[PartyName, SeenWait | None] = MappingProxyType({}),
        sessions: Sessions | None = None,
    ) -> None:
        """``made`` are gRPC's own objects of the calls that are open; ``now`` is the time (epoch).

        ``waiting`` are the parties with a recorded wait; ``carried`` those whose own calls must last, too: whoever has their
        contexts may end these. ``seen``: what ends the wait of a party that was seen at the cut; ``of_shares``: the waits
        for a share, where that could be read again; ``sessions``: the connections to databases.
        """
        self._sessions = sessions or Sessions()
        self._seen = seen
        self._of_shares = of_shares
        self._carried = carried
        self._places = places
        self._waiting = waiting
        self._made = tuple(made)
        self._now = now
        self._budget = budget
        self._analysis = ProgressAnalysis(places, waiting, budget, self._made)

    def find(self, suspects: Iterable[Place]) -> dict[PartyName, Found]:
        """The ways out of the parties at these places, by party."""
        found = {place.party: self._to_find(place) for place in suspects if place.party is not None}
        owners: dict[int, list[Found]] = {}
        below: dict[int, list[Found]] = {}
        served: dict[int, list[Found]] = {}
        for one in found.values():
            for handle in one.handles:
                owners.setdefault(id(handle), []).append(one)
            for task in one.kin:
                below.setdefault(id(task), []).append(one)
            for context in one.contexts:
                served.setdefault(id(context), []).append(one)
        targets = [handle for one in found.values() for handle in (*one.handles, *one.kin, *one.contexts)]
        reach = Reach(targets, self._budget, ended_by)
        forget()
        try:
            self._look_for_actors(found, owners, below, served, reach)
            self._look_for_closers(found.values())
        finally:
            forget()  # what was found of the application's objects is not kept
        for one in found.values():
            self._look_around(one)
            self._look_at_sessions(one)
            self._look_at_kin(one, found)
            if self._budget.spent:
                one.doubt = one.doubt or "there was no time to look at all that may end its wait"
        return found

    def _shares_of(self, party: PartyName) -> tuple[Any, ...]:
        """What ends the wait of a party, or of those who wait for it, by whomever it is used."""
        wait = self._of_shares.get(party)
        connections = self._sessions.of(party)
        shares = () if wait is None else wait.shares
        return (*(shares or (object(),)), *connections) if connections else shares

    def _look_at_sessions(self, one: Found) -> None:
        """Whether its connections to databases are its own, and their sessions without timeouts."""
        for name in sorted(set(self._sessions.shared(one.place).values())):
            one.add(f"its connection to a database is also in {name}, which others may have")
        one.doubt = one.doubt or self._sessions.doubt_of(one.place.party)

    def _look_for_actors(
        self,
        found: dict[PartyName, Found],
        owners: dict[int, list[Found]],
        below: dict[int, list[Found]],
        served: dict[int, list[Found]],
        reach: Reach,
    ) -> None:
        """Finds who holds what ends the waits, or can undo what stands in their way."""
        waits = {party: wait for party, wait in self._of_shares.items() if wait is not None}
        kept = KeptShares({party: self._shares_of(party) for party in found}, self._budget)
        undoers = Undoers(waits, {party: one.handles for party, one in found.items()}, self._budget)
        growers = Growers(found, self._budget)
        threads = self._threads()
        for actor in self._actors(found.values(), kept):
            if self._budget.spent:
                break
            if actor.calls:
                ended = reach.ended_by_calls(actor.roots)
            else:
                ended = reach.held(actor.roots, ends=actor.ends, loose=actor.loose)
            for held in ended:
                self._add(actor, owners.get(held, []))
                self._add_below(actor, below.get(held, []))
                self._add_served(actor, served.get(held, []))
            if actor.calls:
                continue
            self._add_keeper(actor, kept, found)
            for party in undoers.undone_by(actor):
                self._add(actor, [found[party]])
            self._add_grower(actor, growers.grown_by(actor), found)
            self._add_interrupter(actor, found.values())
        for actor, party in undoers.undone_by_calls(actors.of_libraries(threads)):
            self._add(actor, [found[party]])
        for actor, party in growers.grown_by_calls(actors.of_libraries(threads)):
            self._add_grower(actor, [party], found)
        for actor in kept.keepers(self._places):
            self._add_keeper(actor, kept, found)

    def _to_find(self, place: Place) -> Found:
        handles = handles_of(place) + ([] if place.party is None else list(self._seen(place.party)))
        writes = place.task is not None and place.serves is not None  # who has its context may send its caller an item
        acts = place.party in self._carried or writes
        handles += contexts_of(place) if acts else []
        lost = any(party == place.party and wait is None for party, wait in self._of_shares.items())
        doubt = "who holds what it waits for could not be read again" if lost else _doubt_beneath(place)
        kin = [] if place.task is None else kin_of(place.task)
        return Found(place, handles, kin, [] if acts else contexts_of(place), doubt=doubt)

    # -- who acts ------------------------------------------------------------------------------------------------------

    def _actors(self, found: Iterable[Found], kept: KeptShares) -> Iterator[Actor]:
        places = self._places
        threads, loops = self._threads(), places.loops(one.place.task for one in found)
        yield from actors.threads(threads)
        yield from actors.contexts(threads)
        yield from actors.calls(self._made)
        yield from actors.signals(loops)
        yield from actors.finalizers(kept.is_share)
        yield from actors.hooks(loops)
        for loop in loops:
            handles, tasks = compat.handles_of(loop), compat.tasks_of(loop)
            holder, _ = places.blocked_loops.get(loop, (None, None))
            if handles is None or tasks is None:
                self._cannot_read(found, loop, holder)
                continue
            watching = [one for one in compat.watched_by(loop) if _reads(*compat.called_by(one), kept)]
            here = (*actors.timers(loop, [*handles, *watching]), *actors.protocols(loop), *actors.tasks(places, tasks))
            yield from here if holder is None else (replace(actor, party=holder, when=None) for actor in here)

    def _threads(self) -> list[Place]:
        return [place for place in self._places.threads.values() if place.ident != threading.get_ident()]

    def _cannot_read(self, found: Iterable[Found], loop: asyncio.AbstractEventLoop, holder: PartyName | None) -> None:
        """Whatever is due on the loop may end a wait there, but not before ``holder`` goes on, who blocks it."""
        for one in found:
            if one.place.task is None or one.place.task.get_loop() is not loop:
                continue
            if holder is None:
                one.doubt = one.doubt or "the timers or tasks of its event loop cannot be read"
            elif holder != one.place.party:
                one.add("what is due on its event loop", holder)

    def _look_for_closers(self, found: Iterable[Found]) -> None:
        """Finds what may close a channel or stop a server that a suspect depends on, cancel all tasks or end the process."""
        owned: dict[int, list[Found]] = {}
        targets = []
        for one in found:
            for owner in self._owners_of(one):
                owned.setdefault(id(owner), []).append(one)
                targets.append(owner)
        reach = Reach(targets, self._budget)
        for closer in (
            *closers(self._places, self._analysis),
            *of_calls(self._made),
            *of_alarms(self._places.loop_threads.values()),
        ):
            if self._budget.spent:
                break
            held = reach.held(closer.roots, ends=True) if targets and closer.roots else ()
            everything = any(root is ANYTHING for root in closer.roots)
            hit = [one for owner in (owned if everything else held) for one in owned[owner]]
            if closer.process:
                hit = list(found)
            if closer.tasks is not None:
                hit += [one for one in found if one.place.task is not None and one.place.task.get_loop() is closer.tasks]
            self._add_closer(closer, [one for one in hit if closer.of not in self._own_and_helpers(one)])

    def _own_and_helpers(self, one: Found) -> tuple[Any, ...]:
        """The suspect's own thread or task, and those of a library that close nothing by themselves."""
        wait = None if one.place.party is None else self._of_shares.get(one.place.party)
        return (one.place.task or one.place.ident, *(() if wait is None else wait.helpers))

    def _owners_of(self, one: Found) -> list[Any]:
        above = (self._places.of_task(task, self._places.party_of(task)) for task in one.kin)
        wait = None if one.place.party is None else self._of_shares.get(one.place.party)
        own = owners_of(one.place, self._places) + ([] if wait is None else list(wait.owners))
        return own + [server for place in above for server in self._places.servers_of(place)]

    def _add_closer(self, closer: Closer, hit: list[Found]) -> None:
        progress = closer.progress() if hit else NEVER
        for one in hit:
            if progress.by_itself:
                one.add(closer.text, by=closer.of)
            else:
                for party in sorted(progress.parties):
                    one.add(closer.text, party)

    # -- what that means -----------------------------------------------------------------------------------------------

    def _add(self, actor: Actor, owners: list[Found]) -> None:
        """``actor`` holds what ends the waits of ``owners``."""
        if any(_is(actor, one.place) for one in owners):
            self._own(actor, owners)
            return
        for one in owners:
            if actor.when is not None and actor.loop is not None:
                one.end_at(self._now + actor.when - compat.time_of(actor.loop))
            elif actor.party is not None and actor.party == one.place.party:
                continue  # what its own wait holds up
            elif not (any(handle is actor.of for handle in one.handles) or is_bound(actor.of, one.place, self._places)):
                self._add_going(actor, one)

    def _add_going(self, actor: Actor, one: Found) -> None:
        """``actor`` may end the wait of ``one`` once it goes on, if ever."""
        progress = self._progress_of(actor)
        if progress.by_itself:
            one.add(actor.text, actor.party, actor.of)
        else:
            for party in sorted(progress.parties):
                one.add(actor.text, party)

    def _progress_of(self, actor: Actor) -> Progress:
        if actor.context or actor.shared:
            return BY_ITSELF
        if compat.is_task(actor.of):
            return self._analysis.of_task(actor.of)
        return self._analysis.of_thread(actor.of) if type(actor.of) is int else BY_ITSELF

    def _add_keeper(self, actor: Actor, kept: KeptShares, found: Mapping[PartyName, Found]) -> None:
        """``actor`` can give back a share that is waited for."""
        for party in kept.held_by(actor):
            self._add(actor, [found[party]])

    def _add_grower(self, actor: Actor, parties: Iterable[PartyName], found: Mapping[PartyName, Found]) -> None:
        """``actor`` may enlarge the pool in which these serve. If it must go on first, that ends their own waits, too."""
        for party in parties:
            one = found[party]
            if _is(actor, one.place) or actor.party == party:
                continue
            progress = self._progress_of(actor)
            if progress.by_itself:
                one.grown_by = one.grown_by or actor.text
            else:
                for other in sorted(progress.parties):
                    one.add(actor.text, other)

    def _add_interrupter(self, actor: Actor, found: Iterable[Found]) -> None:
        """``actor`` may send this very process a signal, which interrupts those on the main thread."""
        for one in found:
            own = actor.party is not None and actor.party == one.place.party
            if own or _is(actor, one.place) or not self._places.is_on_main_thread(one.place):
                continue
            if interrupts(actor.names_reached(False).names):
                self._add_going(replace(actor, text=f"{actor.text}; it may interrupt the main thread"), one)

    def _add_below(self, actor: Actor, found: list[Found]) -> None:
        """``actor`` holds a task that awaits each of ``found``."""
        for one in found:
            if not _is(actor, one.place):
                self._add(actor, [one])

    def _add_served(self, actor: Actor, found: list[Found]) -> None:
        """``actor`` holds the context of the call that each of ``found`` serves, and may cancel it if it speaks of that."""
        if not found or actor.context or not (actor.calls or _cancels(actor)):
            return
        for one in found:
            if not _is(actor, one.place):
                self._add(actor, [one])

    def _own(self, actor: Actor, owners: list[Found]) -> None:
        """What is called at the end of the call that a party serves ends the party's own wait.

        A caller that bears no stamp may hang up at any moment, unobserved; one that bears a stamp is left to the detector.
        """
        for one in owners:
            if actor.context and _is(actor, one.place):
                one.interruptible = True
                if one.place.serves is not None and one.place.serves.caller is None:
                    one.add("its caller, who is outside and may hang up: the context of its call passes that on")

    def _look_around(self, one: Found) -> None:
        """What may end a wait without holding anything: signals, a server that stops, the feeding of a request stream."""
        place = one.place
        if self._places.is_on_main_thread(place) and (alarm := _alarm()):
            one.add(alarm)
        if self._places.is_of_stopping_server(place):
            one.add("the server that it serves for is being stopped")
        self._look_at_feeder(one)

    def _look_at_kin(self, one: Found, suspected: Container[PartyName]) -> None:
        """What ends the tasks that await a suspect ends its wait; so does a sibling that fails."""
        if one.place.task is None:
            return
        for task in (one.place.task, *one.kin):
            party = self._places.party_of(task)
            known = party in suspected
            if task is not one.place.task:
                above = self._places.of_task(task, party)
                if self._places.is_of_stopping_server(above):
                    one.add("the server for which a task that awaits it serves is being stopped")
                if party not in self._waiting:
                    one.add(f"task {task.get_name()}, which awaits it", party, task)
                elif not known and party not in one.ways_out:
                    one.doubt = one.doubt or f"task {task.get_name()} has begun to await it since the cut"
            for other in siblings_of(task):
                holder = self._places.party_of(other)
                if other is one.place.task or other in one.kin or other.done() or (known and holder in suspected):
                    continue
                one.add(f"task {other.get_name()}, which may fail in the same task group", holder, other)

    def _look_at_feeder(self, one: Found) -> None:
        """A request stream that the application's own iterator still feeds ends the call when it raises."""
        feeding = self._places.feeder_of(one.place)
        if feeding is None:
            return
        frame = next((frame for frame in feeding.frames if is_application(frame.f_code)), None)
        if frame is not None:
            one.add(f"the iterator of its requests, which may fail: {position_of(frame)}", feeding.party)
        else:  # it will be asked again when the one in progress is sent
            one.doubt = one.doubt or "gRPC is sending one of its requests"


def _doubt_beneath(place: Place) -> str:
    """Why the wait of a task may end by what its call's interceptors do."""
    below = None if place.task is None else beneath(blocking_future(place.task))
    return "" if below is None or below.known else "an interceptor of its call waits for something else"


def _reads(called: Any, arguments: Iterable[Any], kept: KeptShares) -> bool:
    """Whether somebody is told of a socket: neither asyncio itself, nor a connection that is waited for, of its own socket."""
    if not compat.is_given(called):
        return False
    told = [*compat.bound_to(called), *(held for one in arguments for held in (one, *(named_by(one) or ())))]
    return not any(map(kept.is_share, told))


def _cancels(actor: Actor) -> bool:
    """Whether an actor's code cancels something, and not only stops or closes others; one that cannot be read may."""
    if not actor.ends:
        return False
    said = actor.names_reached(True)
    return actor.names_reached is nothing or said.anything or said.unread or "cancel" in said.names


def _is(actor: Actor, place: Place) -> bool:
    if place.task is None:
        return actor.of is not None and actor.of == place.ident
    return actor.of is place.task or (place.ident != 0 and actor.of == place.ident)


def _alarm() -> str:
    """Whether a signal is about to interrupt the main thread, in words."""
    seconds, interval = signal.getitimer(signal.ITIMER_REAL)
    if not seconds or interval or not callable(signal.getsignal(signal.SIGALRM)):
        return ""
    return f"SIGALRM, which interrupts the main thread in {seconds:.1f} s"
