"""Ends incidents at an operator's request: the suggested victims' agents abort their calls.

Rules:

1. Off unless allowed: by ``--allow-cure`` here, and by ``STILLTRUE_ALLOW_CURE`` in each victim's process.
2. All or nothing is asked for: if one victim cannot be aborted (its agent is gone, too old or not allowed to), nobody is.
3. A victim is named with the waits that the incident shows it in; its agent touches no party that has moved since.
4. Nothing is done that the audit log does not have first.
5. Whether it is over is for the next snapshot to say.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, replace
from enum import Enum

from detector.core.counting import counted
from detector.core.document.reader import parse_document
from detector.ops.clock import Clock
from detector.ops.logs import Log
from detector.predicates.evidence.freed import freed_by, queued_among
from detector.service.cure.audit import Audit
from detector.service.detection.driver import Driver
from detector.service.detection.incident.incidents import CureNote, Incident
from detector.service.detection.incident.standing_waits import newest_of
from detector.service.detection.membership.members import Member
from detector.service.storage.snapshot_store import SnapshotStore
from stilltrue.model import PartyName, ProcessName, SnapshotId, WaitNumber, process_of
from stilltrue.protocol.requests.cure import Cured, CureRequest, PartyCured
from stilltrue.protocol.requests.look import Suspect
from stilltrue.v1 import detector_pb2 as pb

ANSWER_SECONDS_MAX = 3.0
"""How long the agents may take to abort."""
SNAPSHOTS_MAX = 5
"""How many snapshots are taken to see whether it is over: the freed need a moment to go on."""
SETTLE_SECONDS = 0.3
_ABLE = "its call will be aborted; a thread that waits for a lock stays there, and keeps what it holds"
_SETTING = "STILLTRUE_ALLOW_CURE=true"


class Refusal(Enum):
    """Why a cure is refused."""

    NOT_ALLOWED = "not allowed"
    UNKNOWN = "unknown"
    NOT_NOW = "not now"


class CureRefusedError(Exception):
    """A cure is refused; the text says why, in one line."""

    def __init__(self, refusal: Refusal, text: str) -> None:
        super().__init__(text)
        self.refusal = refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a cure would do, or did: each victim, and who goes on again. In a plan, ``aborted``: whether it can be.

    ``queued``: how many of the freed wait for a worker. Their calls run next, and can deadlock as those before did.
    """

    incident: str
    victims: tuple[PartyCured, ...]
    freed: tuple[PartyName, ...]
    queued: int = 0

    @property
    def possible(self) -> bool:
        """Rule 2."""
        return bool(self.victims) and all(victim.aborted for victim in self.victims)

    def text(self) -> str:
        """In one sentence."""
        who = counted(len(self.victims), "call")
        if not self.possible:
            unable = next(victim for victim in self.victims if not victim.aborted)
            return f"nothing can be aborted: {unable.party}: {unable.text}"
        text = f"aborting {who} frees {counted(len(self.freed), 'other party', 'other parties')}"
        again = f"{self.queued} of them {'is' if self.queued == 1 else 'are'} queued for a worker and may deadlock again"
        return f"{text}; {again}" if self.queued else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was done, and what the snapshot ``snapshot`` says of it."""

    plan: Plan
    over: bool
    snapshot: SnapshotId
    text: str


class Cures:
    """Every method is called on the event loop."""

    def __init__(
        self, *, driver: Driver, snapshot_store: SnapshotStore, clock: Clock, log: Log, audit: Audit, allowed: bool
    ) -> None:
        """``allowed``: whether the detector's settings allow cures at all."""
        self.allowed = allowed
        self._driver = driver
        self._snapshot_store = snapshot_store
        self._clock = clock
        self._log = log
        self._audit = audit
        self._numbers = itertools.count(1)
        self._waiting: dict[tuple[int, ProcessName], asyncio.Future[Cured]] = {}
        self._under_way: set[str] = set()
        self._following: set[asyncio.Task[Outcome]] = set()

    async def plan(self, id: str) -> Plan:
        """What a cure of the incident would do now. Raises :class:`CureRefusedError`."""
        incident = self._open(id)
        victims, snapshot = self._victims(incident)
        answer = await self._snapshot_store.snapshot(snapshot)
        freed, queued = ((), 0) if answer is None else await asyncio.to_thread(_freed_in, answer, frozenset(victims))
        return Plan(incident=id, victims=tuple(map(self._able, victims)), freed=freed, queued=queued)

    async def cure(self, id: str, who: str) -> asyncio.Task[Outcome]:
        """Have the victims aborted; the task that is returned says later whether the incident is over.

        Raises :class:`CureRefusedError`; then nothing was done.
        """
        if id in self._under_way:
            raise CureRefusedError(Refusal.NOT_NOW, f"{id} is being ended by another request just now")
        self._under_way.add(id)
        try:
            plan = await self._possible(id)
            incident = self._open(id)
            await self._record(incident, who, "cure begun", [victim.party for victim in plan.victims])
            done = replace(plan, victims=await self._abort(incident, plan))
            told = [f"{one.party}: {one.text}" for one in done.victims]
            await self._record(incident, who, "cure done", told)
            self._driver.incidents.note(id, CureNote(self._clock.now(), who, "; ".join(told)))
        except BaseException:
            self._under_way.discard(id)
            raise
        task = asyncio.get_running_loop().create_task(self._follow(incident, who, done))
        self._following.add(task)
        task.add_done_callback(self._following.discard)
        return task

    def cured(self, member: Member, cured: Cured) -> None:
        """An agent says what it did."""
        waiting = self._waiting.get((cured.number, member.name))
        if waiting is not None and not waiting.done():
            waiting.set_result(cured)

    def close(self) -> None:
        """The detector ends: nobody waits for outcomes any more."""
        for task in self._following:
            task.cancel()

    async def _possible(self, id: str) -> Plan:
        plan = await self.plan(id)
        if not plan.possible:
            raise CureRefusedError(Refusal.NOT_NOW, plan.text())
        return plan

    # -- what can be done ----------------------------------------------------------------------------------------------

    def _open(self, id: str) -> Incident:
        if not self.allowed:
            text = "this detector does not end incidents: it was started without --allow-cure"
            raise CureRefusedError(Refusal.NOT_ALLOWED, text)
        incident = next((one for one in self._driver.incidents.open_ones() if one.id == id), None)
        if incident is not None:
            return incident
        closed = self._snapshot_store.find_incident(id)
        if closed is None:
            raise CureRefusedError(Refusal.UNKNOWN, f"there is no open incident {id}")
        raise CureRefusedError(Refusal.NOT_NOW, f"{id} is over: {closed.ending}")

    def _victims(self, incident: Incident) -> tuple[list[PartyName], SnapshotId]:
        """The suggested victims in the incident's core, and the snapshot that suggests them."""
        verdict = newest_of(incident, self._driver.current.all())
        if verdict is None or verdict.snapshot.id is None:
            raise CureRefusedError(Refusal.NOT_NOW, f"the newest snapshot does not show {incident.id}: try again")
        victims = [victim for victim in verdict.victims if victim in incident.core]
        if not victims:
            raise CureRefusedError(Refusal.NOT_NOW, f"no victims are suggested for {incident.id} ({incident.predicate})")
        return victims, verdict.snapshot.id

    def _able(self, victim: PartyName) -> PartyCured:
        """Rule 2."""
        name = process_of(victim)
        member = self._driver.roster.get(name)
        if member is None or member.stream is None or member.lost_at is not None:
            return PartyCured(party=victim, aborted=False, text=f"{name} is not connected")
        if not member.cures:
            why = f"its process does not allow it ({_SETTING}), or its agent ({member.agent or 'unknown'}) is too old"
            return PartyCured(party=victim, aborted=False, text=why)
        return PartyCured(party=victim, aborted=True, text=_ABLE)

    # -- doing it ------------------------------------------------------------------------------------------------------

    async def _abort(self, incident: Incident, plan: Plan) -> tuple[PartyCured, ...]:
        number = next(self._numbers)
        by_process: dict[ProcessName, list[Suspect]] = {}
        for one in plan.victims:
            waits = tuple(WaitNumber(wait) for party, _, wait in incident.keys if party == one.party)
            by_process.setdefault(process_of(one.party), []).append(Suspect(party=one.party, waits=waits))
        answers: list[asyncio.Future[Cured]] = []
        for name, victims in by_process.items():
            member = self._driver.roster.get(name)
            if member is not None and member.stream is not None and self._is_same(member, incident):
                future: asyncio.Future[Cured] = asyncio.get_running_loop().create_future()
                self._waiting[number, name] = future
                answers.append(future)
                member.stream.send_cure(CureRequest(number=number, incident=incident.id, victims=tuple(victims)))
        try:
            done, _ = await asyncio.wait(answers, timeout=ANSWER_SECONDS_MAX) if answers else (set(), set())
        finally:
            for name in by_process:
                self._waiting.pop((number, name), None)
        told = {one.party: one for future in done for one in future.result().parties}
        silent = f"its agent did not answer within {ANSWER_SECONDS_MAX:g} s"
        return tuple(told.get(one.party, PartyCured(party=one.party, aborted=False, text=silent)) for one in plan.victims)

    @staticmethod
    def _is_same(member: Member, incident: Incident) -> bool:
        """Whether it is the very process of the incident, not one that took its name since."""
        return (member.name, member.process.incarnation) in incident.runs()

    async def _follow(self, incident: Incident, who: str, done: Plan) -> Outcome:
        """Rule 5."""
        try:
            snapshot = SnapshotId(0)
            for _ in range(SNAPSHOTS_MAX):
                verdict = await self._driver.pending_asks.ask(incident.predicate, "all")
                snapshot = verdict.snapshot.id or snapshot
                if self._is_over(incident):
                    break
                await asyncio.sleep(SETTLE_SECONDS)
            over = self._is_over(incident)
            text = (
                f"{incident.id} is over as of snapshot {snapshot}" if over else f"snapshot {snapshot} still shows {incident.id}"
            )
            self._driver.incidents.note(incident.id, CureNote(self._clock.now(), who, text))
            await self._record(incident, who, "cure over" if over else "cure without effect", [text])
            return Outcome(plan=done, over=over, snapshot=snapshot, text=text)
        finally:
            self._under_way.discard(incident.id)

    def _is_over(self, incident: Incident) -> bool:
        return all(one.id != incident.id for one in self._driver.incidents.open_ones())

    async def _record(self, incident: Incident, who: str, what: str, details: list[str]) -> None:
        """Rule 4."""
        self._log.warning(what, incident=incident.id, who=who, details="; ".join(details))
        try:
            await asyncio.to_thread(self._audit.write, self._clock.now(), what, who, incident=incident.id, details=details)
        except OSError as error:
            if what == "cure begun":
                text = f"the audit log cannot be written: {error.strerror or error}"
                raise CureRefusedError(Refusal.NOT_NOW, text) from None
            self._log.failure("audit log not written", error)


def _freed_in(answer: pb.GetSnapshotResponse, victims: frozenset[PartyName]) -> tuple[tuple[PartyName, ...], int]:
    """Those freed, and how many of them are queued for a worker. Slow for a large snapshot."""
    _, snapshot = parse_document(answer.document_json, file=f"snapshot {answer.summary.ref.id}")
    freed = freed_by(snapshot, victims)
    return freed, queued_among(snapshot, freed)
