"""Adds to reports which connections their calls are on, and checks at a later look that this has not changed.

Rules:

1. Connections are read only for long waits: a process without long waits reads nothing.
2. A call made here is on one of the connections of its channel's target, or waits for room on one, if each channel of that
   target has connected only once in its life. Otherwise it is left out. An HTTP request is on the connection to which it was
   written.
3. A party that blocks a server's loop or thread holds up every call on the server's connections that has not arrived.
4. A connection is full if it carries as many calls as its server allows, and each is served by a known party: other calls on
   it wait for the end of one of them.
5. A server that ends its connections by itself holds up no call.
6. For the same waits connections are read ever more rarely, and the last reading is used in between: it only has to be older
   than the look.
7. If a party's reading has changed by the time of the look, that is doubt; further calls may have queued up since, though.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from stilltrue.model import CallNumber, PartyName, SnapshotId, WaitNumber
from stilltrue.protocol.report import CallTarget, Connection, HeldUp, Report, SentOver
from stilltrue.protocol.requests.look import Look, LookRequest, PartyLook
from stilltrue.runtime.concurrent_reads import live_members
from stilltrue.runtime.introspection.coverage import Sight
from stilltrue.runtime.introspection.frames import frames_of_threads
from stilltrue.runtime.introspection.threads_and_tasks import Place, Places
from stilltrue.runtime.session import Session
from stilltrue.runtime.transport.backlog import connection_between, connections_behind
from stilltrue.runtime.transport.blocked_servers import blocked_servers
from stilltrue.runtime.transport.channelz import SERVERS, TARGETS, peer_address
from stilltrue.runtime.transport.endpoint import Endpoint

LASTING_SECONDS_MIN = 0.5
"""Length from which a wait is long."""
AGE_SECONDS_MAX = 0.25
"""Less than the above, so that a report's reading is not older than the waits that it is for."""
PAUSE_SECONDS_MAX = 4.0
"""Longest pause between two readings for the same waits: an idle stream may last for days."""
REPORTS_MAX = 16
HELD_UP_MAX = 1_000


@dataclass(frozen=True, slots=True)
class _Reading:
    """A reading for the snapshots in (``after``, ``snapshot``]; ``callers``: the parties that wait for each call."""

    after: SnapshotId
    snapshot: SnapshotId
    callers: Mapping[CallNumber, frozenset[PartyName]]
    sent_over: tuple[SentOver, ...] = ()
    held_up: tuple[HeldUp, ...] = ()

    def of(self, party: PartyName) -> tuple[tuple[SentOver, ...], tuple[HeldUp, ...]]:
        """The part that concerns one party."""
        sent = tuple(one for one in self.sent_over if party in self.callers[one.call])
        return sent, tuple(one for one in self.held_up if party in one.parties)


class Transport:
    """The connections of one process."""

    def __init__(self, session: Session, sight: Sight) -> None:
        """``sight`` knows the recorded servers."""
        self._session = session
        self._sight = sight
        self._readings: deque[_Reading] = deque(maxlen=REPORTS_MAX)
        self._lasting: frozenset[WaitNumber] = frozenset()
        self._known: _Reading | None = None
        self._pause_seconds = AGE_SECONDS_MAX
        self._again_at = 0.0

    def with_connections(self, report: Report) -> Report:
        """``report`` with the connections of its long waits. Never raises."""
        try:
            lasting = frozenset(wait.number for wait in report.waits if _lasts(wait.since, report.cut_at))
            if not lasting:
                return report
            reading = self._current(_Reading(report.after, report.snapshot, _callers(report)), lasting)
        except Exception:  # noqa: BLE001 - the report stays as it is
            self._session.live.report_failure("reading connections")
            return report
        if not (reading.sent_over or reading.held_up):
            return report
        self._readings.append(reading)
        return replace(report, sent_over=reading.sent_over, held_up=reading.held_up)

    def _current(self, about: _Reading, lasting: frozenset[WaitNumber]) -> _Reading:
        """A new reading, or the last one if it still serves (rule 6)."""
        now = time.monotonic()
        same, known = lasting == self._lasting, self._known
        if not same or known is None or now >= self._again_at:
            known = self._read(about, AGE_SECONDS_MAX)
            self._pause_seconds = min(2 * self._pause_seconds, PAUSE_SECONDS_MAX) if same else AGE_SECONDS_MAX
            self._again_at = now + self._pause_seconds
            self._known, self._lasting = known, lasting
        sent = tuple(one for one in known.sent_over if one.call in about.callers)
        return replace(about, sent_over=sent, held_up=known.held_up)

    def on_full_connections(self, request: LookRequest) -> frozenset[PartyName]:
        """The parties whose calls were reported to fill a connection, on which the end of such a call makes room."""
        reading = self._reading_for(request)
        return frozenset(party for one in reading.held_up if one.full for party in one.parties) if reading else frozenset()

    def checked(self, request: LookRequest, look: Look) -> Look:
        """``look`` with doubt about the parties whose connections have changed (rule 7)."""
        reading = self._reading_for(request)
        if reading is None or not any(any(reading.of(suspect.party)) for suspect in request.suspects):
            return look
        now = bare = replace(reading, sent_over=(), held_up=())
        try:
            now = self._read(bare, 0.0)
        except Exception:  # noqa: BLE001 - a failure is doubt
            self._session.live.report_failure("reading connections again")
        return replace(look, parties=tuple(_checked(one, reading, now) for one in look.parties))

    def learn(self) -> None:
        """Find new servers in channelz while the calls that reveal them last. Never raises."""
        try:
            endpoints = [one.endpoint for one in live_members(self._sight.servers) if one.endpoint.peer is not None]
            known = SERVERS.read() if endpoints else None
            for endpoint in endpoints if known is not None else ():
                endpoint.find(known)
        except Exception:  # noqa: BLE001 - they stay unknown
            self._session.live.report_failure("looking for servers")

    def _reading_for(self, request: LookRequest) -> _Reading | None:
        """The reading for this look's snapshot, or None."""
        return next((one for one in list(self._readings) if one.after < request.snapshot <= one.snapshot), None)

    # -- reading -------------------------------------------------------------------------------------------------------

    def _read(self, about: _Reading, age_seconds_max: float) -> _Reading:
        held = sorted(self._held_up(age_seconds_max), key=lambda one: (one.connection.name, one.full, one.parties))
        sent = tuple(self._sent_over(about.callers, age_seconds_max))
        return replace(about, sent_over=sent, held_up=tuple(held) if len(held) <= HELD_UP_MAX else ())

    def _sent_over(self, calls: Iterable[CallNumber], age_seconds_max: float) -> Iterator[SentOver]:
        """Rule 2."""
        live = self._session.live
        with live.lock:
            made = [live.recorder.calls_made.get(number) for number in calls]  # read under its lock
        for number in calls:
            shell = self._session.over_tcp.get(number)
            connection = None if shell is None or shell.ends is None else connection_between(shell.ends, age_seconds_max)
            if connection is not None:
                yield SentOver(call=number, connections=(connection,))
        dialled = {call.number: call.channel.core_target for call in made if call is not None and call.channel.core_target}
        targets = (TARGETS.read(age_seconds_max) if dialled else None) or {}
        for number, target in dialled.items():
            connections = targets.get(target)
            if connections:
                yield SentOver(call=number, connections=connections)

    def _held_up(self, age_seconds_max: float) -> Iterator[HeldUp]:
        """Rules 3 to 5."""
        servers = [server for server in live_members(self._sight.servers) if not server.endpoint.ends_connections]
        threads = frames_of_threads().values()
        held = list(blocked_servers(self._session, threads))
        for one in held:
            what = f"{'the event loop' if one.loop is not None else 'the only thread'} of its server, which {one.party} blocks"
            for connection in connections_behind(one, threads, age_seconds_max):
                yield HeldUp(connection=connection, parties=(one.party,), what=what)
        limited = any(server.endpoint.streams_max for server in servers)
        known = SERVERS.read(age_seconds_max) if servers and (held or limited) else None
        if known is None:
            return
        places = Places(self._session.parties) if limited else None
        for server in servers:
            endpoint: Endpoint = server.endpoint
            endpoint.find(known)
            connections = {} if endpoint.server is None else known.get(endpoint.server, {})
            for one in held:
                what = endpoint.part_blocked_by(one.loop, one.server, server)
                if one.loop is None and self._has_unknown_calls(one.party):
                    continue
                for connection in connections.values() if what else ():
                    yield HeldUp(connection=connection, parties=(one.party,), what=f"{what}, which {one.party} blocks")
            if endpoint.streams_max is not None and places is not None:
                yield from self._full(endpoint.streams_max, connections, places)

    def _has_unknown_calls(self, party: PartyName) -> bool:
        """Whether calls of unknown callers may be served here, except the one that ``party`` serves: each may be any call."""
        live = self._session.live
        with live.lock:
            served = live.recorder.calls_served.values()  # read under its lock
            unknown = any(call.caller is None and call.party != party for call in served)
            unknown = unknown or bool(live.recorder._inherited)  # noqa: SLF001 - from before the process was renamed
        return unknown or bool(live.faults) or self._session.excludes_methods

    def _full(self, streams_max: int, connections: Mapping[str, Connection], places: Places) -> Iterator[HeldUp]:
        """Rule 4."""
        serving: dict[str, list[PartyName]] = {}
        for place in self._serving(places):
            peer = peer_address(place.context.peer())
            if peer is not None and place.party is not None:
                serving.setdefault(peer, []).append(place.party)
        for peer, parties in serving.items():
            connection = connections.get(peer)
            if connection is not None and connection.begun - connection.ended == len(parties) == streams_max:
                what = f"the end of one of the calls of its connection, which carries {streams_max} at once"
                yield HeldUp(connection=connection, parties=tuple(sorted(parties)), full=True, what=what)

    def _serving(self, places: Places) -> list[Place]:
        """The threads and tasks that serve a call."""
        found = list(places.threads.values())
        found += [places.of_task(root.task, root.party) for root in list(self._session.parties.roots.values())]
        return [place for place in found if place.context is not None and place.serves is not None]


def _callers(report: Report) -> dict[CallNumber, frozenset[PartyName]]:
    """The calls in long waits, with the parties that wait for them (rule 1)."""
    found: dict[CallNumber, set[PartyName]] = {}
    for wait in report.waits:
        if _lasts(wait.since, report.cut_at):
            for target in wait.among:
                if isinstance(target, CallTarget):
                    found.setdefault(target.number, set()).add(wait.waiter)
    return {number: frozenset(parties) for number, parties in found.items()}


def _lasts(since: float | None, now: float) -> bool:
    return since is not None and now - since >= LASTING_SECONDS_MIN


def _checked(look: PartyLook, reading: _Reading, now: _Reading) -> PartyLook:
    """Rule 7."""
    before = _without_begun(reading.of(look.party))
    if not any(before) or look.doubt or not look.unchanged:
        return look
    after = _without_begun(now.of(look.party))
    if after[0] == before[0] and before[1] <= after[1]:  # more calls may have come since
        return look
    return replace(look, doubt="its connections have changed since the cut, or cannot be read")


def _without_begun(about: tuple[tuple[SentOver, ...], tuple[HeldUp, ...]]) -> tuple[set[Any], set[HeldUp]]:
    """The part that must not change: new calls may begin on a connection, but none may have ended."""

    def bare(one: Connection) -> Connection:
        return replace(one, begun=0)

    sent = {(one.call, frozenset(map(bare, one.connections))) for one in about[0]}
    return sent, {replace(one, connection=bare(one.connection)) for one in about[1]}
