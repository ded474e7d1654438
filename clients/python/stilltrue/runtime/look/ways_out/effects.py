"""What an actor's act does to the suspects: it ends their waits at a time, opens a way out, or leaves a doubt."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace

from stilltrue.model import PartyName
from stilltrue.runtime import compat
from stilltrue.runtime.introspection.threads_and_tasks import Place, Places
from stilltrue.runtime.look.progress.analysis import ProgressAnalysis
from stilltrue.runtime.look.progress.progress import BY_ITSELF, Progress
from stilltrue.runtime.look.ways_out.actor_code import no_names
from stilltrue.runtime.look.ways_out.actors import Actor
from stilltrue.runtime.look.ways_out.awaiters import must_wait_for
from stilltrue.runtime.look.ways_out.findings import Found
from stilltrue.runtime.look.ways_out.kinds.releasers import signals_own_process


class Effects:
    """Adds what actors may do to the findings of one look."""

    def __init__(self, places: Places, analysis: ProgressAnalysis, with_requests: ProgressAnalysis) -> None:
        """``analysis`` shows whether actors make progress; ``with_requests``, if requests come, too."""
        self._places = places
        self._analysis = analysis
        self._analysis_with_requests = with_requests
        self._fellow_waiters: list[tuple[Actor, Found, Found]] = []

    def end(self, actor: Actor, suspects: list[Found]) -> None:
        """``actor`` holds what ends the waits of the ``suspects``."""
        here = [one for one in suspects if _is_at(actor, one.place)]
        if here:
            self._mark_interruptible(actor, here)
            self._fellow_waiters += (
                (actor, one, fellow) for fellow in here for one in suspects if not _is_at(actor, one.place)
            )
            return
        for one in suspects:
            if actor.fires_at is not None and actor.loop is not None:
                one.end_at(compat.epoch_of(actor.loop, actor.fires_at))
            elif actor.party is not None and actor.party == one.place.party:
                continue  # blocked by its own wait
            elif actor.owner is not None and actor.owner in one.helpers:
                continue
            elif not (
                any(handle is actor.owner for handle in one.handles) or must_wait_for(actor.owner, one.place, self._places)
            ):
                self.end_once_it_progresses(actor, one)

    def end_through_fellow_waiters(self, bounded: Container[PartyName]) -> None:
        """Add the suspects that hold what they wait for together with others, if they may go on earlier than these.

        After its timeout, one may cancel the call for which the others wait on. Those that wait on as long as the others end
        nothing. ``bounded``: the parties whose waits have deadlines. To be called when all other ways out are known.
        """
        earlier = {id(fellow) for _, _, fellow in self._fellow_waiters if fellow.place.party in bounded or _may_end(fellow)}
        for actor, one, fellow in self._fellow_waiters:
            if id(fellow) in earlier and fellow.place.party is not None:
                one.add_way_out(actor.text, fellow.place.party)

    def end_once_it_progresses(self, actor: Actor, one: Found) -> None:
        """``actor`` may end the wait of ``one`` once it makes progress, if ever."""
        progress = _progress_of(actor, self._analysis)
        if progress.by_itself:
            one.add_way_out(actor.text, actor.party, actor.owner)
            return
        one.add_ways_out(actor.text, progress.parties)
        if _progress_of(actor, self._analysis_with_requests).by_itself:
            one.doubt = one.doubt or f"{actor.text}: a future request may wake it"

    def doubt(self, actor: Actor, suspects: Iterable[Found], why: str) -> None:
        """``actor`` may end the waits of the ``suspects``: ``why`` says what its code does."""
        for one in suspects:
            if _is_at(actor, one.place) or (actor.party is not None and actor.party == one.place.party):
                continue
            text = f"{actor.text}: its code {why}"
            progress = _progress_of(actor, self._analysis)
            if progress.by_itself:
                one.doubt = one.doubt or text
            one.add_ways_out(text, progress.parties)

    def grow_pool(self, actor: Actor, parties: Iterable[PartyName], found: Mapping[PartyName, Found]) -> None:
        """``actor`` may enlarge the pool of the parties. If it needs others to continue first, they are ways out."""
        for party in parties:
            one = found[party]
            if _is_at(actor, one.place) or actor.party == party:
                continue
            progress = _progress_of(actor, self._analysis)
            if progress.by_itself:
                one.grown_by = one.grown_by or actor.text
            else:
                one.add_ways_out(actor.text, progress.parties)

    def interrupt(self, actor: Actor, found: Iterable[Found]) -> None:
        """``actor`` may signal its own process, which interrupts parties on the main thread."""
        for one in found:
            own = actor.party is not None and actor.party == one.place.party
            if own or _is_at(actor, one.place) or not self._places.is_on_main_thread(one.place):
                continue
            if signals_own_process(actor.names_reached(False).names):
                self.end_once_it_progresses(replace(actor, text=f"{actor.text}; it may interrupt the main thread"), one)

    def end_through_awaiters(self, actor: Actor, found: list[Found]) -> None:
        """``actor`` holds a task that awaits each of ``found``."""
        for one in found:
            if not _is_at(actor, one.place):
                self.end(actor, [one])

    def end_through_contexts(self, actor: Actor, found: list[Found]) -> None:
        """``actor`` holds the context of the call that each of ``found`` serves; it may cancel it if its code mentions that."""
        if not found or actor.is_context_callback or not (actor.only_calls or cancels(actor)):
            return
        for one in found:
            if not _is_at(actor, one.place):
                self.end(actor, [one])

    def _mark_interruptible(self, actor: Actor, here: list[Found]) -> None:
        """Callbacks at the end of a party's served call end the party's own wait. ``here``: the suspects at the actor's place.

        A caller without a stamp may hang up unobserved at any moment; the detector judges one with a stamp.
        """
        for one in here:
            if actor.is_context_callback:
                one.interruptible = True
                if one.place.serves is not None and one.place.serves.caller is None:
                    one.add_way_out("its caller is outside and may cancel, which the context of its call passes on")


def _progress_of(actor: Actor, analysis: ProgressAnalysis) -> Progress:
    if actor.is_context_callback or actor.is_module:
        return BY_ITSELF
    if compat.is_task(actor.owner):
        return analysis.of_task(actor.owner)
    return analysis.of_thread(actor.owner) if type(actor.owner) is int else BY_ITSELF


def cancels(actor: Actor) -> bool:
    """Whether an actor's code cancels something rather than only stopping or closing others; unreadable code may."""
    if not actor.ends:
        return False
    reachable = actor.names_reached(True)
    return actor.names_reached is no_names or reachable.any_code or reachable.any_name or "cancel" in reachable.names


def _may_end(one: Found) -> bool:
    """Whether anything that has been found may end the wait."""
    return bool(one.ways_out or one.until is not None or one.doubt or one.interruptible)


def _is_at(actor: Actor, place: Place) -> bool:
    if place.task is None:
        return actor.owner is not None and actor.owner == place.ident
    return actor.owner is place.task or (place.ident != 0 and actor.owner == place.ident)
