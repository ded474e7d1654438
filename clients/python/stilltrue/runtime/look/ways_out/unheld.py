"""Checks what ends a suspect's wait without holding what it waits for: signals, a stopping server, the tasks around it."""

from __future__ import annotations

from collections.abc import Container

from stilltrue.model import PartyName
from stilltrue.runtime.introspection.origins import feeds_requests, is_application, position_of
from stilltrue.runtime.introspection.tasks import siblings_of
from stilltrue.runtime.introspection.threads_and_tasks import Place, Places
from stilltrue.runtime.look.suspects import streams_of
from stilltrue.runtime.look.ways_out import timers_and_callbacks
from stilltrue.runtime.look.ways_out.findings import Found
from stilltrue.runtime.waits.streams.writes import writes_item

_MAY_BE_ACCEPTED = "gRPC may send its item before anybody reads: other calls on the connection can make more room"


class Unheld:
    """The checks of one look at ``now`` (epoch). ``waiting``: the parties with a recorded wait."""

    def __init__(self, places: Places, waiting: Container[PartyName], now: float) -> None:
        self._places = places
        self._waiting = waiting
        self._now = now

    def check(self, one: Found) -> None:
        """Check signals, a server that is being stopped, and the feeder of a request stream."""
        place = one.place
        if self._places.is_on_main_thread(place) and (alarm := timers_and_callbacks.pending_alarm()):
            one.add_way_out(alarm)
        self._check_stop(one, place, "its server is being stopped")
        self._check_request_feeder(one)

    def _check_stop(self, one: Found, place: Place, text: str) -> None:
        """Check whether the server of the call served at ``place`` is being stopped, which ends the call."""
        end = self._places.end_of_grace(place, self._now)
        if end is not None and end > self._now:
            one.end_at(end)
        elif end is not None:
            one.add_way_out(text)

    def check_awaiters(self, one: Found, suspected: Container[PartyName]) -> None:
        """Check the tasks that await a suspect, whose end ends its wait, and siblings that may fail."""
        if one.place.task is None:
            return
        for task in (one.place.task, *one.awaiters):
            party = self._places.party_of(task)
            known = party in suspected
            if task is not one.place.task:
                above = self._places.of_task(task, party)
                self._check_stop(one, above, "the server of a task that awaits it is being stopped")
                if party not in self._waiting:
                    one.add_way_out(f"task {task.get_name()}, which awaits it", party, task)
                elif not known and party not in one.ways_out:
                    one.doubt = one.doubt or f"task {task.get_name()} has begun to await it since the cut"
            for other in siblings_of(task, self._places.coroutine_of(task)):
                holder = self._places.party_of(other)
                if other is one.place.task or other in one.awaiters or other.done() or (known and holder in suspected):
                    continue
                one.add_way_out(f"task {other.get_name()}, which may fail in the same task group", holder, other)

    def _check_request_feeder(self, one: Found) -> None:
        """Check the application's request iterator: if it raises, the call ends."""
        feeding = self._places.feeder_of(one.place, streams_of(one.handles))
        if writes_item(one.place.frames):
            one.doubt = one.doubt or _MAY_BE_ACCEPTED
        if feeding is None or (feeding.task is None and feeding.ident == one.place.ident):
            return
        frame = next((frame for frame in feeding.frames if is_application(frame.f_code)), None)
        if frame is None:  # a library's iterator, such as ``iter(queue.get, None)``
            every = zip(feeding.frames, feeding.frames[1:], strict=False)
            frame = next((inner for inner, outer in every if feeds_requests(outer.f_code)), None)
        if frame is not None:
            one.add_way_out(f"its request iterator, which may fail: {position_of(frame)}", feeding.party)
        elif feeding.party in self._waiting:  # for the other end to read
            one.add_way_out("its request iterator, which may fail once the current request has been sent", feeding.party)
        else:  # it is asked again when the current request has been sent
            one.doubt = one.doubt or "gRPC is sending one of its requests"
