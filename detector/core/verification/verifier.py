"""The verification round (protocol rule 10): a snapshot yields suspicions; a second look by the suspects' processes confirms.

Rules:

1. Every look is requested after the last report has arrived. So between the last cut and the first look there is an instant
   at which all unchanged waits were in force at once, with their targets and full pools, whatever is in any channel.
2. A wait that has changed is over: its party is free (in doubt if several waits block it, since the others may persist). The
   earliest deadline counts. A way out without a party means that the wait ends by itself; one with a party is a further target.
   If a deadline of the suspects has passed meanwhile, those that have moved on may have been freed by it alone: they are free
   now, but it is in doubt whether they were held up until then (``gridlock``).
3. A suspect that was not looked at, for any reason, is in doubt: its waits count as possible, never as certain.
4. A set that was verified and is still deadlocked by itself in the very same waits stays verified: it is looked at again after
   twice the time, and so is a suspect that has a way out. All other suspects are looked at in this round. The results of
   another round that ends meanwhile do not count here: they may be older than this snapshot.
5. A call that may be repeated is certain to be at its server only if its whole set was also looked at in an earlier round: by
   now the server has noticed a connection that was lost before that.
6. A process is certainly idle if nothing has happened in it between its cut and the look, and it has no unaccounted work.
7. After a process has not answered in time, we wait for it only briefly, until one of its answers arrives, however late. So it
   delays the others once.
8. Parties that are stuck for certain while all unanswered suspects are in doubt are stuck whatever the answers will be. A round
   that takes long reports them once, after ``INTERIM_SECONDS``, and continues.
9. A look that arrives after its round has ended completes the round: a set that it verifies is verified for later snapshots. So
   a slow process is verified in the end and delays no round, and one that never answers gains nothing. A slow process answers
   one request after the other; so a few rounds that ended before it had answered the first one are kept as well.

The time is an argument, never read: the service and the simulator run the same rounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from detector.core.protocol.assembler import Assembled
from detector.core.verification.amendment import amended
from detector.core.verification.late_looks import LateLooks
from detector.core.verification.past_rounds import Idle, Key, Known, Memory, copied
from detector.core.verification.reassembly import Reassembly
from detector.core.verification.round import INTERIM_SECONDS, Round
from detector.core.verification.suspicion import Suspicion, keys_of, possibly_unchanged
from detector.graph.reduction_bounds import left_over
from stilltrue.model import PartyName, ProcessId, ProcessName, SnapshotId
from stilltrue.protocol.report import Report
from stilltrue.protocol.requests.look import Look, LookRequest, PartyLook, Suspect

BACKOFF_FACTOR = 2.0
UNRESPONSIVE_SECONDS = 1.0
"""Rule 7: how long to wait for processes that did not answer the last time."""
LATE_MAX = 16
"""Number of snapshots whose late members are remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskLook:
    """Ask this process to look."""

    process: ProcessId
    request: LookRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The round is over: its snapshot, amended by the looks. ``given_up``: some processes had not answered."""

    assembled: Assembled
    given_up: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Interim:
    """An interim result of a round that continues (rule 8).

    ``certain``: some parties are stuck, whatever the other answers. Otherwise a later round may confirm the suspicion (rule 5).
    """

    assembled: Assembled
    certain: bool


RoundEffect = AskLook | Interim | Verified


class Verifier:
    """Runs the verification rounds, and remembers the results of earlier ones."""

    def __init__(self, *, give_up_seconds: float = 1.0, again_seconds_min: float = 0.5, memory: Memory | None = None) -> None:
        """``give_up_seconds``: how long a round waits for its looks. ``memory``: results from another verifier.

        ``again_seconds_min``: how long a result is reused before the first new look (rule 4).
        """
        self._give_up_seconds = give_up_seconds
        self._unresponsive_seconds = min(UNRESPONSIVE_SECONDS, give_up_seconds)
        self._again_seconds_min = again_seconds_min
        self._rounds: dict[SnapshotId, Round] = {}
        self._known: dict[Key, Known] = {} if memory is None else copied(memory.parties)
        self._idle: dict[ProcessId, Idle] = {} if memory is None else copied(memory.processes)
        self._known_ways_out, self._amended, self._only_old, self._confirmed_calls = (Reassembly() for _ in range(4))
        self._late: dict[SnapshotId, frozenset[ProcessName]] = {}
        """By snapshot, the processes that did not answer in time: a later answer must not count for a further request."""
        self._unresponsive: set[ProcessId] = set()
        """Rule 7: processes that were late and have not answered since."""
        self._late_looks = LateLooks()
        self._unanswered: set[Key] = set()
        """Parties whose latest look was not answered: a late look replaces its result (rule 9)."""

    @property
    def memory(self) -> Memory:
        """The results so far, for another verifier."""
        return Memory(parties=copied(self._known), processes=copied(self._idle))

    # -- events --------------------------------------------------------------------------------------------------------

    def suspected(self, assembled: Assembled, suspicion: Suspicion, now: float) -> list[RoundEffect]:
        """A snapshot has ended with this suspicion: request the looks it needs, if any.

        The result of a round may need a second round, about idleness, for the same snapshot.
        """
        snapshot = assembled.snapshot.ref.id
        if snapshot is None or snapshot in self._rounds:
            raise AssertionError("a snapshot needs an id, and one round at a time")
        keys = keys_of(assembled.reports, suspicion.parties)
        self._forget(assembled, keys, suspicion)
        earlier = {party: known.look for party, key in keys.items() if (known := self._known.get(key)) is not None}
        members = {name: assembled.reports[name].process for name in suspicion.processes}
        doubts = {name: idle.doubt for name, process in members.items() if (idle := self._idle.get(process)) is not None}
        asked = self._requests(assembled, keys, suspicion, now)
        one = Round(
            assembled=assembled, suspicion=suspicion, keys=keys, earlier_looks=earlier, doubts=doubts, asked=asked,
            begun=now, awaited=asked.keys() - self._late.get(snapshot, frozenset()), interim_due=bool(keys),
            asked_about=frozenset(suspect.party for request in asked.values() for suspect in request.suspects),
        )  # fmt: skip
        self._rounds[snapshot] = one
        found: list[RoundEffect] = [
            AskLook(process=assembled.reports[name].process, request=asked[name]) for name in sorted(one.awaited)
        ]
        return found + self._end_due(now)

    def looked(self, process: ProcessId, look: Look, now: float) -> list[RoundEffect]:
        """A process has answered with its look."""
        self._unresponsive.discard(process)
        one = self._rounds.get(look.snapshot)
        if one is not None and one.accept(process, look):
            return self._end_due(now)
        self._late_looks.offer(process, look, now)
        return []

    def unable(self, process: ProcessName, reason: str, now: float, snapshot: SnapshotId | None = None) -> list[RoundEffect]:
        """A process cannot look, or has left: stop waiting for it in ``snapshot``'s round (None: in all rounds)."""
        for number, one in self._rounds.items():
            if snapshot in {None, number}:
                one.leave_out(process, reason)
        if snapshot is None:
            self._late_looks.leave_out(process, reason, now)
        return self._end_due(now)

    def ticked(self, now: float) -> list[RoundEffect]:
        """Time has passed."""
        for one in self._late_looks.take(now):
            self._complete(one, now)
        return self._end_due(now, late=True)

    def due(self) -> float:
        """The next time at which :meth:`ticked` has something to do; infinity if there is none."""
        return min(self._late_looks.due(), *map(self._until, self._rounds.values()), math.inf)

    def interim(self, now: float) -> list[RoundEffect]:
        """The interim results of rounds that take long (rule 8)."""
        due = [one for one in self._rounds.values() if now >= one.interim_at()]
        return [effect for one in due for effect in self._interim_result(one, now)]

    def interim_due(self) -> float:
        """The next time at which :meth:`interim` has something to do; infinity if there is none."""
        return min((one.interim_at() for one in self._rounds.values()), default=math.inf)

    @property
    def in_progress(self) -> int:
        """Number of rounds in progress."""
        return len(self._rounds)

    def to_complete(self) -> Iterator[Assembled]:
        """The snapshots whose rounds the next :meth:`ticked` may complete (rule 9)."""
        return self._late_looks.to_complete()

    # -- what to look at (rule 4) --------------------------------------------------------------------------------------

    def _requests(
        self, assembled: Assembled, keys: Mapping[PartyName, Key], suspicion: Suspicion, now: float
    ) -> dict[ProcessName, LookRequest]:
        suspects: dict[ProcessName, list[Suspect]] = {}
        for party in self._to_look_at(assembled, keys, now):
            key = keys[party]
            suspects.setdefault(key.process, []).append(Suspect(party=party, waits=key.waits))
        idle = {name for name in suspicion.processes if self._must_look_at_process(assembled.reports[name], now)}
        snapshot = assembled.snapshot.ref.id or SnapshotId(0)
        return {
            name: LookRequest(snapshot=snapshot, suspects=tuple(suspects.get(name, ())), activity=name in idle)
            for name in sorted(suspects.keys() | idle)
        }

    def _to_look_at(self, assembled: Assembled, keys: Mapping[PartyName, Key], now: float) -> list[PartyName]:
        """The parties still suspected given the known ways out, except those already verified."""
        known = {party: one for party, key in keys.items() if (one := self._known.get(key)) is not None and not one.due(now)}
        ruled_out = {party: one.as_moved_on for party, one in known.items() if one.rules_out}
        possible = {party: one.look for party, one in known.items() if not one.rules_out}
        others = {party: look for party, look in possible.items() if look.ways_out or look.grown_by}
        view = assembled.snapshot
        if ruled_out or others:
            view = self._known_ways_out.of(assembled, amended(assembled.reports, ruled_out | others), {}).snapshot
        left = keys.keys() & left_over(view.waits, view.missing).keys()
        verified = {party for party in left if party in known and known[party].verified}
        still_stuck = left_over(view.waits, view.missing, among=verified) if verified else {}
        return sorted(left - ruled_out.keys() - still_stuck.keys())

    def _must_look_at_process(self, report: Report, now: float) -> bool:
        known = self._idle.get(report.process)
        return known is None or known.happenings != report.happenings or now >= known.looked_at + known.again_seconds

    def _forget(self, assembled: Assembled, keys: Mapping[PartyName, Key], suspicion: Suspicion) -> None:
        """Forget parties that are no longer suspected, and processes that are no longer members.

        If reports are missing, parties that may be in the same waits are kept: a process busy with a look reports late.
        """
        if keys or not suspicion.processes:
            present = set(keys.values())
            if assembled.absent:
                present |= possibly_unchanged(self._known.keys() - present, assembled)
            self._known = {key: known for key, known in self._known.items() if key in present}
            self._unanswered &= self._known.keys()
        members = {report.process for report in assembled.reports.values()}
        self._idle = {process: idle for process, idle in self._idle.items() if process in members}
        self._unresponsive &= members
        while len(self._late) > LATE_MAX:
            del self._late[next(iter(self._late))]

    # -- the end of a round --------------------------------------------------------------------------------------------

    def _until(self, one: Round) -> float:
        """Until when a round waits for outstanding answers."""
        return one.begun + self._patience(one)

    def _patience(self, one: Round) -> float:
        """How long a round waits (rule 7)."""
        unresponsive = one.awaited and all(one.assembled.reports[name].process in self._unresponsive for name in one.awaited)
        return self._unresponsive_seconds if unresponsive else self._give_up_seconds

    def _end_due(self, now: float, *, late: bool = False) -> list[RoundEffect]:
        """End the rounds that are over; with ``late``, also those that have waited long enough."""
        over = [number for number, one in self._rounds.items() if not one.awaited or (late and now >= self._until(one))]
        ended = [self._rounds.pop(number) for number in over]
        return [Verified(assembled=self._end(one, now), given_up=bool(one.awaited)) for one in ended]

    def _interim_result(self, one: Round, now: float) -> list[RoundEffect]:
        """The snapshot amended by the answers so far, if that is useful (rule 8)."""
        one.interim_due, one.patience = False, INTERIM_SECONDS
        since = self._since(one)
        looks = {
            party: self._result(one, party, key) if key.process in one.awaited else self._remember(one, party, key, now)
            for party, key in one.keys.items()
        }
        found = self._with_looks(one, looks, {}, since, now)
        certain = bool(left_over(found.snapshot.waits, found.snapshot.missing, certain=True))
        new = {party for party in one.remembered - since.keys() if not self._known[one.keys[party]].rules_out}
        return [Interim(assembled=found, certain=certain)] if certain or not new.isdisjoint(_unconfirmed(found)) else []

    def _end(self, one: Round, now: float) -> Assembled:
        ref = one.assembled.snapshot.ref
        one.patience = self._patience(one)
        if one.awaited and ref.id is not None:
            self._late[ref.id] = frozenset(one.awaited)
            late = {one.assembled.reports[name].process for name in one.awaited}
            if one.keys:
                self._late_looks.expect(one, now, again=late <= self._unresponsive)
            self._unresponsive |= late
        since = self._since(one)
        looks = {party: self._remember(one, party, key, now) for party, key in one.keys.items()}
        doubts = {name: self._idleness(one, name, now) for name in one.suspicion.processes}
        found = self._with_looks(one, looks, {name: doubt for name, doubt in doubts.items() if doubt}, since, now)
        stuck = _certainly_stuck(found)
        for party, key in one.keys.items():
            if key in self._known:
                self._known[key].verified = party in stuck and not self._known[key].rules_out
        return found

    def _complete(self, one: Round, now: float) -> None:
        """Store the results of late looks, and mark the sets that they verify (rule 9). Results of newer rounds stand."""
        looks = {party: self._result(one, party, key) for party, key in one.keys.items()}
        found = self._with_looks(one, looks, {}, self._since(one), now)
        stuck = _certainly_stuck(found)
        for party, key in one.keys.items():
            known = self._known.get(key)
            if known is None:
                continue
            if key in self._unanswered and key.process in one.looks:
                known.look, known.until, known.looked_at = looks[party], one.until(looks[party], key.process), now
                self._unanswered.discard(key)
            if party in stuck and _only_doubts(known.look, looks[party]):  # which is moot: it is stuck forever
                known.look, known.until = looks[party], one.until(looks[party], key.process)
            known.verified = known.verified or (party in stuck and not known.rules_out)

    def _since(self, one: Round) -> dict[PartyName, float]:
        """For each suspect seen before: when the first round that saw it in these waits ended."""
        return {party: known.since for party, key in one.keys.items() if (known := self._known.get(key)) is not None}

    def _with_looks(
        self,
        one: Round,
        looks: Mapping[PartyName, PartyLook],
        doubts: Mapping[ProcessName, str],
        since: Mapping[PartyName, float],
        now: float,
    ) -> Assembled:
        """The snapshot amended by the looks. ``since``: when each suspect was first known to be in the very same waits."""
        if one.deadline_passed(now):
            looks = {party: one.since_deadline(look, now) for party, look in looks.items()}
        begun = one.assembled.snapshot.ref.begun or 0.0
        seen = {**one.assembled.snapshot.looks, **looks}
        found = self._amended.of(one.assembled, amended(one.assembled.reports, looks, doubts), seen)
        unconfirmed = _unconfirmed(found)
        if any(party in unconfirmed and not look.doubt for party, look in looks.items()):
            old = {party for party, at in since.items() if at < begun}
            found = self._confirmed(one, found, old, seen)
        return found

    def _remember(self, one: Round, party: PartyName, key: Key, now: float) -> PartyLook:
        """The round's result for a suspect, which is stored for later rounds."""
        look = self._result(one, party, key)
        if party not in one.asked_about or party in one.remembered:
            return look
        one.remembered.add(party)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Known(look=look, looked_at=now, again_seconds=self._again_seconds_min, since=now)
        else:
            known.looked_at = now
            known.again_seconds *= BACKOFF_FACTOR
            if look is known.look:
                return look
        known.look, known.until = look, one.until(look, key.process)
        (self._unanswered.add if key.process in one.awaited else self._unanswered.discard)(key)
        return look

    def _result(self, one: Round, party: PartyName, key: Key) -> PartyLook:
        """The round's result for a suspect."""
        if party not in one.asked_about:
            return one.earlier_looks.get(party) or PartyLook(party=party, unchanged=True, doubt="it was not looked at")
        look, known = one.answer(party), self._known.get(key)
        if known is not None and known.verified and look.doubt:  # once verified, it stays so forever
            return known.look
        return look

    def _idleness(self, one: Round, name: ProcessName, now: float) -> str:
        """Why a process may not be idle (rule 6); empty if it is certainly idle."""
        report = one.assembled.reports[name]
        known = self._idle.get(report.process)
        request = one.asked.get(name)
        if request is None or not request.activity:
            return one.doubts.get(name, "it was not looked at")
        look = one.looks.get(name)
        if look is None:
            return one.reasons.get(name) or f"it {one.silence()}"
        doubt = ""
        if look.unaccounted:
            doubt = f"it has work that belongs to no known party: {'; '.join(look.unaccounted)}"
        elif look.happenings != report.happenings:
            doubt = f"it has recorded events since its cut ({look.happenings - report.happenings} steps)"
        same = known is not None and known.happenings == report.happenings
        again = known.again_seconds * BACKOFF_FACTOR if known is not None and same else self._again_seconds_min
        self._idle[report.process] = Idle(happenings=report.happenings, doubt=doubt, looked_at=now, again_seconds=again)
        return doubt

    def _confirmed(self, one: Round, found: Assembled, old: set[PartyName], looks: Mapping[PartyName, PartyLook]) -> Assembled:
        """Make the calls of sets certain that an earlier round saw, as a whole, in the very same waits (rule 5)."""
        if not old:
            return found
        reports = found.reports
        new = {party: replace(looks[party], doubt="it is new") for party in one.keys if party not in old}
        only_old = self._only_old.of(found, amended(reports, new, confirmed=old), {})
        stuck = _certainly_stuck(only_old) & old
        return self._confirmed_calls.of(found, amended(reports, {}, confirmed=stuck), looks) if stuck else found


def _certainly_stuck(assembled: Assembled) -> set[PartyName]:
    return set(left_over(assembled.snapshot.waits, assembled.snapshot.missing, certain=True))


def _only_doubts(known: PartyLook, look: PartyLook) -> bool:
    """Whether a known look is in doubt, and has found nothing else that ``look`` has not found."""
    return bool(known.doubt) and known.unchanged and set(known.ways_out) <= set(look.ways_out)


def _unconfirmed(assembled: Assembled) -> set[PartyName]:
    """The parties with a wait that a later round may confirm (rule 5)."""
    waits = assembled.snapshot.waits
    return set(waits.named(waits.waiter[waits.uncoloured]))
