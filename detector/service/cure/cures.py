"""Ends incidents at an operator's request: the suggested victims' agents abort their calls.

Rules:

1. Off unless allowed: by ``--allow-cure`` here, and by ``STILLTRUE_ALLOW_CURE`` in each victim's process.
2. All or nothing: if one victim cannot be aborted (its agent is gone, too old, or not allowed to), none is.
3. A request names each victim with its waits in the incident; the agent leaves a party alone that has moved since.
4. The audit log is written before anything is done.
5. Later snapshots decide whether the incident has ended.
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
from detector.predicates.evidence.explanation import listed
from detector.predicates.evidence.freed_by_abort import freed_by, queued_among
from detector.service.cure.audit import Audit
from detector.service.detection.driver import Driver
from detector.service.detection.incident.explanation import current_verdict_of
from detector.service.detection.incident.incidents import CureNote, Incident
from detector.service.detection.membership.members import Member
from detector.service.storage.snapshot_store import SnapshotStore
from stilltrue.model import PartyName, ProcessName, SnapshotId, WaitNumber, process_of
from stilltrue.protocol.requests.cure import Cured, CureRequest, PartyCured
from stilltrue.protocol.requests.look import Suspect
from stilltrue.v1 import detector_pb2 as pb
from stilltrue.version import __version__

ANSWER_SECONDS_MAX = 3.0
"""Time limit for the agents to abort."""
SNAPSHOTS_MAX = 5
"""Snapshots taken to see whether the incident has ended: freed parties need a moment to move on."""
SETTLE_SECONDS = 0.3
_ABORTABLE = "its call will be aborted; a thread that waits for a lock keeps waiting, and keeps the locks it holds"
_THREAD = "it serves no call; one that it waits for will be ended, and if it waits for none, nothing can be aborted"
_TASK = "its task will be cancelled, unless it holds up its event loop"
_SETTING = "STILLTRUE_ALLOW_CURE=true"
_NOT_ALLOWED = "this detector was started without --allow-cure"


class Refusal(Enum):
    """Why a cure is refused."""

    NOT_ALLOWED = "not allowed"
    UNKNOWN = "unknown"
    NOT_NOW = "not now"


class CureRefusedError(Exception):
    """A cure is refused; the message says why, in one line."""

    def __init__(self, refusal: Refusal, text: str) -> None:
        super().__init__(text)
        self.refusal = refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a cure would do or did: the victims and the freed parties. Before a cure, ``aborted`` means that it is possible.

    ``queued``: the number of freed parties that wait for a worker; their calls run next, and may deadlock again.
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
        """The plan in one sentence."""
        who = counted(len(self.victims), "call")
        if not self.possible:
            unable = next(victim for victim in self.victims if not victim.aborted)
            return f"nothing can be aborted: {unable.party}: {unable.text}"
        unsure = [victim.party for victim in self.victims if victim.text == _THREAD]
        others = counted(len(self.freed), "other party", "other parties")
        text = f"aborting {who} {'would free' if unsure else 'frees'} {others}"
        if unsure:
            text = f"{text}, if {unsure[0]} waits for a call"
        again = f"{self.queued} of them {'is' if self.queued == 1 else 'are'} queued for a worker and may deadlock again"
        return f"{text}; {again}" if self.queued else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a cure, according to the snapshot ``snapshot``."""

    plan: Plan
    over: bool
    snapshot: SnapshotId
    text: str


class Cures:
    """Plans and carries out cures. Every method is called on the event loop."""

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
        self._in_progress: set[str] = set()
        self._follow_ups: set[asyncio.Task[Outcome]] = set()

    async def plan(self, id: str) -> Plan:
        """Plan a cure of the incident, without doing anything, also where none is allowed. Raises :class:`CureRefusedError`."""
        incident = self._open(id)
        victims, snapshot = self._victims(incident)
        answer = await self._snapshot_store.snapshot(snapshot)
        freed, queued = ((), 0) if answer is None else await asyncio.to_thread(_freed_parties, answer, frozenset(victims))
        return Plan(incident=id, victims=tuple(map(self._can_abort, victims)), freed=freed, queued=queued)

    async def cure(self, id: str, who: str) -> asyncio.Task[Outcome]:
        """Abort the victims; return a task whose result says whether the incident has ended.

        Raises :class:`CureRefusedError`, having done nothing.
        """
        if not self.allowed:
            raise CureRefusedError(Refusal.NOT_ALLOWED, f"{_NOT_ALLOWED}, so it cannot end incidents")
        if id in self._in_progress:
            raise CureRefusedError(Refusal.NOT_NOW, f"another request is already ending {id}")
        self._in_progress.add(id)
        try:
            plan = await self._possible(id)
            incident = self._open(id)
            await self._record(incident, who, "cure begun", [victim.party for victim in plan.victims])
            done = replace(plan, victims=await self._abort(incident, plan))
            results = [f"{one.party}: {one.text}" for one in done.victims]
            await self._record(incident, who, "cure done", results)
            self._driver.incidents.note(id, CureNote(self._clock.now(), who, "; ".join(results)))
        except BaseException:
            self._in_progress.discard(id)
            raise
        task = asyncio.get_running_loop().create_task(self._follow(incident, who, done))
        self._follow_ups.add(task)
        task.add_done_callback(self._follow_ups.discard)
        return task

    def cured(self, member: Member, cured: Cured) -> None:
        """Take an agent's answer."""
        waiting = self._waiting.get((cured.number, member.name))
        if waiting is not None and not waiting.done():
            waiting.set_result(cured)

    def close(self) -> None:
        """Stop following the outcomes of cures."""
        for task in self._follow_ups:
            task.cancel()

    async def _possible(self, id: str) -> Plan:
        plan = await self.plan(id)
        if not plan.possible:
            raise CureRefusedError(Refusal.NOT_NOW, plan.text())
        return plan

    # -- planning -----------------------------------------------------------------------------------------------------

    def _open(self, id: str) -> Incident:
        incident = self._current(id)
        if incident is not None:
            return incident
        closed = self._snapshot_store.find_incident(id)
        if closed is None:
            raise CureRefusedError(Refusal.UNKNOWN, f"there is no open incident {id}")
        raise CureRefusedError(Refusal.NOT_NOW, f"{id} is over: {closed.ending}")

    def _victims(self, incident: Incident) -> tuple[list[PartyName], SnapshotId]:
        """The suggested victims in the incident's core, and the snapshot that suggests them."""
        verdict = current_verdict_of(incident, self._driver.current.all())
        if verdict is None or verdict.snapshot.id is None:
            lost = self._driver.lost_of(incident)
            verb = "is" if len(lost) == 1 else "are"
            text = f"{', '.join(lost)} {verb} lost: nothing can be aborted there" if lost else "try again"
            raise CureRefusedError(Refusal.NOT_NOW, f"the newest snapshot does not show {incident.id}: {text}")
        victims = [victim for victim in verdict.victims if victim in incident.core]
        if not victims:
            raise CureRefusedError(Refusal.NOT_NOW, f"no victims are suggested for {incident.id} ({incident.predicate})")
        return victims, verdict.snapshot.id

    def _can_abort(self, victim: PartyName) -> PartyCured:
        """Whether the victim can be aborted (rule 2)."""
        name = process_of(victim)
        member = self._driver.roster.get(name)
        if member is None or member.stream is None or member.lost_at is not None:
            return PartyCured(party=victim, aborted=False, text=f"{name} is not connected")
        obstacles = [] if self.allowed else [_NOT_ALLOWED]
        if not member.cures:
            known = member.agent.endswith(f"/{__version__}")  # an agent of this version can abort
            older = "" if known else f", or its agent ({member.agent or 'unknown'}) is too old"
            obstacles.append(f"its process does not allow it ({_SETTING}){older}")
        if obstacles:
            return PartyCured(party=victim, aborted=False, text="; ".join(obstacles))
        _, _, party = victim.partition("/")
        text = _THREAD if party.startswith("thread:") else _TASK if party.startswith("task:") else _ABORTABLE
        return PartyCured(party=victim, aborted=True, text=text)

    # -- aborting ------------------------------------------------------------------------------------------------------

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
        answered = {one.party: one for future in done for one in future.result().parties}
        silent = f"its agent did not answer within {ANSWER_SECONDS_MAX:g} s"
        return tuple(answered.get(one.party, PartyCured(party=one.party, aborted=False, text=silent)) for one in plan.victims)

    @staticmethod
    def _is_same(member: Member, incident: Incident) -> bool:
        """Whether the member is the incident's process, not a later one with the same name."""
        return (member.name, member.process.incarnation) in incident.runs()

    async def _follow(self, incident: Incident, who: str, done: Plan) -> Outcome:
        """Take snapshots until the incident has ended, up to a bound (rule 5)."""
        try:
            snapshot = SnapshotId(0)
            for _ in range(SNAPSHOTS_MAX):
                verdict = await self._driver.pending_asks.ask(incident.predicate, "all")
                snapshot = verdict.snapshot.id or snapshot
                if self._current(incident.id) is None:
                    break
                await asyncio.sleep(SETTLE_SECONDS)
            now = self._current(incident.id)
            over = now is None
            if now is None:
                what, text = "cure over", f"{incident.id} is over as of snapshot {snapshot}"
            elif current_verdict_of(now, self._driver.current.all()) is not None:
                what, text = "cure without effect", f"snapshot {snapshot} still shows {incident.id}"
                aborted = [victim.party for victim in done.victims if victim.aborted]
                if not aborted:
                    text = f"nothing was aborted, and {text}"
                elif not set(aborted) & set(now.core):
                    what, text = "cure undone", f"{text}, without {listed(aborted)}: other calls deadlocked again with the rest"
            else:
                what = "cure not confirmed"
                text = f"snapshot {snapshot} neither shows {incident.id} nor proves that it is over: a later one will"
            self._driver.incidents.note(incident.id, CureNote(self._clock.now(), who, text))
            await self._record(incident, who, what, [text])
            return Outcome(plan=done, over=over, snapshot=snapshot, text=text)
        finally:
            self._in_progress.discard(incident.id)

    def _current(self, id: str) -> Incident | None:
        """The open incident as it is now; its core may have changed. None if it has ended."""
        return next((one for one in self._driver.incidents.open_ones() if one.id == id), None)

    async def _record(self, incident: Incident, who: str, what: str, details: list[str]) -> None:
        """Log and audit; if the beginning cannot be audited, refuse the cure (rule 4)."""
        self._log.warning(what, incident=incident.id, who=who, details="; ".join(details))
        try:
            await asyncio.to_thread(self._audit.write, self._clock.now(), what, who, incident=incident.id, details=details)
        except OSError as error:
            if what == "cure begun":
                text = f"the audit log cannot be written: {error.strerror or error}"
                raise CureRefusedError(Refusal.NOT_NOW, text) from None
            self._log.failure("audit log not written", error)


def _freed_parties(answer: pb.GetSnapshotResponse, victims: frozenset[PartyName]) -> tuple[tuple[PartyName, ...], int]:
    """The freed parties, and how many of them are queued for a worker. Slow for a large snapshot."""
    _, snapshot = parse_document(answer.document_json, file=f"snapshot {answer.summary.ref.id}")
    freed = freed_by(snapshot, victims)
    return freed, queued_among(snapshot, freed)
