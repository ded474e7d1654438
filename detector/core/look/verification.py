"""The verification round (rule 10): a snapshot yields suspicions; a second look by the suspects' processes decides.

Rules:

1. Every look is requested after the last report has arrived. So between the last cut and the first look there is an instant
   at which all unchanged waits were in force at once, with their targets and full pools, whatever is in any channel.
2. A wait that has changed is over: its party is free (in doubt where it is stuck by several waits, for others may last). The
   earliest deadline counts. A way out without a party makes the wait one that ends by itself; one with a party is a further
   target. Where a deadline of the suspects has passed meanwhile, those that have gone on may owe it to that deadline alone:
   they are free by now, and it is in doubt whether they were held up until then (``gridlock``).
3. What was not looked at, for whatever reason, is doubt: its waits count as possible, never as certain.
4. A set that was verified, and stands by itself still in the very same waits, stays so: it is looked at again after twice the
   time, as is what was found to have a way out. All other suspects are looked at in the round. What a look
   of another round shows that ends meanwhile counts for that round alone: it may be older than this snapshot.
5. A call that may be repeated is at its server for certain only when its whole set was looked at in an earlier round, too: by
   then the server knows of a connection that was lost before that.
6. An idle process is idle for certain when nothing has happened in it from its cut to the look, and nothing is unaccounted for.
7. Who did not answer in time is waited for briefly, until an answer of it comes, however late: it delays the others once.
8. What is stuck for certain with all that have not answered in doubt is stuck whatever they answer. A round that lasts says so
   once, after ``INTERIM_SECONDS``, and goes on.

The time is an argument, never read: the service and the simulator run the same rounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from detector.core.look.amendment import amended
from detector.core.look.memory import Idle, Key, Known, Memory, copied
from detector.core.look.reassembly import Reassembly
from detector.core.look.round import INTERIM_SECONDS, Round
from detector.core.look.suspicion import Suspicion, keys_of
from detector.core.protocol.assembler import Assembled
from detector.graph.partial import left_over
from stilltrue.model import PartyName, ProcessId, ProcessName, SnapshotId
from stilltrue.protocol.report import Report
from stilltrue.protocol.requests.look import Look, LookRequest, PartyLook, Suspect

DOUBLES = 2.0
BRIEF_SECONDS = 1.0
"""Rule 7: how long those are waited for that did not answer the last time."""
LATE_MAX = 16
"""Snapshots for which late members are remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskLook:
    """Ask this process to look."""

    process: ProcessId
    request: LookRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The round is over: the snapshot with what was seen. ``given_up``: not all had answered."""

    assembled: Assembled
    given_up: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Interim:
    """Rule 8: the round goes on, and this is stuck for certain whatever comes of it.

    ``certain``: somebody is. Else a further snapshot's round may confirm what this one shows (rule 5).
    """

    assembled: Assembled
    certain: bool


RoundEffect = AskLook | Interim | Verified


class Verifier:
    """The rounds in progress, and what earlier ones showed."""

    def __init__(self, *, give_up_seconds: float = 1.0, again_seconds_min: float = 0.5, memory: Memory | None = None) -> None:
        """``give_up_seconds``: how long a round waits for its looks; ``again_seconds_min``: until the first second look.

        ``memory``: what the rounds of another verifier have shown.
        """
        self._give_up_seconds = give_up_seconds
        self._brief_seconds = min(BRIEF_SECONDS, give_up_seconds)
        self._again_seconds_min = again_seconds_min
        self._rounds: dict[SnapshotId, Round] = {}
        self._known: dict[Key, Known] = {} if memory is None else copied(memory.parties)
        self._idle: dict[ProcessId, Idle] = {} if memory is None else copied(memory.processes)
        self._leaned, self._seen_in, self._alone, self._sure = (Reassembly() for _ in range(4))
        self._late: dict[SnapshotId, frozenset[ProcessName]] = {}
        """By snapshot, those that did not answer in time: what they say later is no answer to a further request."""
        self._mute: set[ProcessId] = set()
        """Rule 7: those of which no answer has come since they were late."""

    @property
    def memory(self) -> Memory:
        """What the rounds have shown so far, for another verifier."""
        return Memory(parties=copied(self._known), processes=copied(self._idle))

    # -- happenings ----------------------------------------------------------------------------------------------------

    def suspected(self, assembled: Assembled, suspicion: Suspicion, now: float) -> list[RoundEffect]:
        """A snapshot has ended and shows this: request the looks it needs, if any.

        The result of a round may need a second round, about idleness, for the same snapshot.
        """
        snapshot = assembled.snapshot.ref.id
        if snapshot is None or snapshot in self._rounds:
            raise AssertionError("a snapshot has a number, and one round at a time")
        keys = keys_of(assembled.reports, suspicion.parties)
        self._forget(assembled, keys, suspicion)
        leaned = {party: known.look for party, key in keys.items() if (known := self._known.get(key)) is not None}
        members = {name: assembled.reports[name].process for name in suspicion.processes}
        doubts = {name: idle.doubt for name, process in members.items() if (idle := self._idle.get(process)) is not None}
        asked = self._requests(assembled, keys, suspicion, now)
        one = Round(
            assembled=assembled, suspicion=suspicion, keys=keys, leaned=leaned, doubts=doubts, asked=asked,
            begun=now, awaited=asked.keys() - self._late.get(snapshot, frozenset()), interim_due=bool(keys),
            asked_about=frozenset(suspect.party for request in asked.values() for suspect in request.suspects),
        )  # fmt: skip
        self._rounds[snapshot] = one
        found: list[RoundEffect] = [
            AskLook(process=assembled.reports[name].process, request=asked[name]) for name in sorted(one.awaited)
        ]
        return found + self._settle(now)

    def looked(self, process: ProcessId, look: Look, now: float) -> list[RoundEffect]:
        """A process reports what it saw."""
        self._mute.discard(process)
        one = self._rounds.get(look.snapshot)
        return self._settle(now) if one is not None and one.accept(process, look) else []

    def unable(self, process: ProcessName, reason: str, now: float, snapshot: SnapshotId | None = None) -> list[RoundEffect]:
        """A process cannot look, or is gone: it is not waited for in ``snapshot``'s round (None: in any)."""
        for number, one in self._rounds.items():
            if snapshot in {None, number}:
                one.leave_out(process, reason)
        return self._settle(now)

    def ticked(self, now: float) -> list[RoundEffect]:
        """Time has passed."""
        return self._settle(now, late=True)

    def due(self) -> float:
        """When :meth:`ticked` has something to do next (infinity: never)."""
        return min(map(self._until, self._rounds.values()), default=math.inf)

    def interim(self, now: float) -> list[RoundEffect]:
        """Rule 8: what the rounds that last show so far."""
        lasting = [one for one in self._rounds.values() if now >= one.interim_at()]
        return [effect for one in lasting for effect in self._shown_so_far(one, now)]

    def interim_due(self) -> float:
        """When :meth:`interim` has something to do next (infinity: never)."""
        return min((one.interim_at() for one in self._rounds.values()), default=math.inf)

    @property
    def under_way(self) -> int:
        """How many rounds there are."""
        return len(self._rounds)

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
        """All parties still suspected given the known ways out, except those already verified."""
        known = {party: one for party, key in keys.items() if (one := self._known.get(key)) is not None and not one.due(now)}
        barred = {party: one.gone_on for party, one in known.items() if one.bars}
        others = {party: one.look for party, one in known.items() if (one.look.ways_out or one.look.grown_by) and not one.bars}
        view = assembled.snapshot
        if barred or others:
            view = self._leaned.of(assembled, amended(assembled.reports, barred | others), {}).snapshot
        left = keys.keys() & left_over(view.waits, view.missing).keys()
        verified = {party for party in left if party in known and known[party].verified}
        stands = left_over(view.waits, view.missing, among=verified) if verified else {}
        return sorted(left - barred.keys() - stands.keys())

    def _must_look_at_process(self, report: Report, now: float) -> bool:
        known = self._idle.get(report.process)
        return known is None or known.happenings != report.happenings or now >= known.looked_at + known.again_seconds

    def _forget(self, assembled: Assembled, keys: Mapping[PartyName, Key], suspicion: Suspicion) -> None:
        """Forget parties that are no longer suspected, and processes that are no longer members."""
        if keys or not suspicion.processes:
            present = set(keys.values())
            self._known = {key: known for key, known in self._known.items() if key in present}
        members = {report.process for report in assembled.reports.values()}
        self._idle = {process: idle for process, idle in self._idle.items() if process in members}
        self._mute &= members
        while len(self._late) > LATE_MAX:
            del self._late[next(iter(self._late))]

    # -- the end of a round --------------------------------------------------------------------------------------------

    def _until(self, one: Round) -> float:
        """Until when a round waits for those that are still to answer."""
        return one.begun + self._patience(one)

    def _patience(self, one: Round) -> float:
        """Rule 7."""
        mute = one.awaited and all(one.assembled.reports[name].process in self._mute for name in one.awaited)
        return self._brief_seconds if mute else self._give_up_seconds

    def _settle(self, now: float, *, late: bool = False) -> list[RoundEffect]:
        """End the rounds that are over. ``late``: a process that has not answered by now has not in time."""
        over = [number for number, one in self._rounds.items() if not one.awaited or (late and now >= self._until(one))]
        ended = [self._rounds.pop(number) for number in over]
        return [Verified(assembled=self._end(one, now), given_up=bool(one.awaited)) for one in ended]

    def _shown_so_far(self, one: Round, now: float) -> list[RoundEffect]:
        """Rule 8: the snapshot with what has been answered, where that is of use."""
        one.interim_due, one.patience = False, INTERIM_SECONDS
        since = self._since(one)
        looks = {
            party: self._shown(one, party, key) if key.process in one.awaited else self._seen(one, party, key, now)
            for party, key in one.keys.items()
        }
        found = self._as_seen(one, looks, {}, since, now)
        certain = bool(left_over(found.snapshot.waits, found.snapshot.missing, certain=True))
        new = {party for party in one.remembered - since.keys() if not self._known[one.keys[party]].bars}
        return [Interim(assembled=found, certain=certain)] if certain or not new.isdisjoint(_unsure(found)) else []

    def _end(self, one: Round, now: float) -> Assembled:
        ref = one.assembled.snapshot.ref
        one.patience = self._patience(one)
        if one.awaited and ref.id is not None:
            self._late[ref.id] = frozenset(one.awaited)
            self._mute.update(one.assembled.reports[name].process for name in one.awaited)
        since = self._since(one)
        looks = {party: self._seen(one, party, key, now) for party, key in one.keys.items()}
        doubts = {name: self._idleness(one, name, now) for name in one.suspicion.processes}
        found = self._as_seen(one, looks, {name: doubt for name, doubt in doubts.items() if doubt}, since, now)
        stuck = set(left_over(found.snapshot.waits, found.snapshot.missing, certain=True))
        for party, key in one.keys.items():
            if key in self._known:
                self._known[key].verified = party in stuck and not self._known[key].bars
        return found

    def _since(self, one: Round) -> dict[PartyName, float]:
        """When the first round ended that saw each suspect in its waits, of those that were seen before."""
        return {party: known.since for party, key in one.keys.items() if (known := self._known.get(key)) is not None}

    def _as_seen(
        self,
        one: Round,
        looks: Mapping[PartyName, PartyLook],
        doubts: Mapping[ProcessName, str],
        since: Mapping[PartyName, float],
        now: float,
    ) -> Assembled:
        """The snapshot with what the looks show; ``since`` when each suspect has been known in the very same waits."""
        if one.deadline_passed(now):
            looks = {party: one.since_deadline(look, now) for party, look in looks.items()}
        begun = one.assembled.snapshot.ref.begun or 0.0
        seen = {**one.assembled.snapshot.looks, **looks}
        found = self._seen_in.of(one.assembled, amended(one.assembled.reports, looks, doubts), seen)
        unsure = _unsure(found)
        if any(party in unsure and not look.doubt for party, look in looks.items()):
            old = {party for party, at in since.items() if at < begun}
            found = self._confirmed(one, found, old, seen)
        return found

    def _seen(self, one: Round, party: PartyName, key: Key, now: float) -> PartyLook:
        """What the round showed of a suspect, which is remembered."""
        shown = self._shown(one, party, key)
        if party not in one.asked_about or party in one.remembered:
            return shown
        one.remembered.add(party)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Known(look=shown, looked_at=now, again_seconds=self._again_seconds_min, since=now)
        else:
            known.looked_at = now
            known.again_seconds *= DOUBLES
            if shown is known.look:
                return shown
        known.look, known.until = shown, one.until(shown, key.process)
        return shown

    def _shown(self, one: Round, party: PartyName, key: Key) -> PartyLook:
        """What the round showed of a suspect."""
        if party not in one.asked_about:
            return one.leaned.get(party) or PartyLook(party=party, unchanged=True, doubt="it was not looked at")
        look, known = one.answer(party), self._known.get(key)
        if known is not None and known.verified and look.doubt:  # what was verified is so forever
            return known.look
        return look

    def _idleness(self, one: Round, name: ProcessName, now: float) -> str:
        """Why it is not certain that a process is idle (rule 6); empty when it is."""
        report = one.assembled.reports[name]
        known = self._idle.get(report.process)
        request = one.asked.get(name)
        if request is None or not request.activity:
            return one.doubts.get(name, "it was not looked at")
        look = one.looks.get(name)
        if look is None:
            return one.reasons.get(name) or f"it did not answer within {one.patience:g} s"
        doubt = ""
        if look.unaccounted:
            doubt = f"it has work that no party accounts for: {'; '.join(look.unaccounted)}"
        elif look.happenings != report.happenings:
            doubt = f"it has recorded events since its cut ({look.happenings - report.happenings} steps)"
        same = known is not None and known.happenings == report.happenings
        again = known.again_seconds * DOUBLES if known is not None and same else self._again_seconds_min
        self._idle[report.process] = Idle(happenings=report.happenings, doubt=doubt, looked_at=now, again_seconds=again)
        return doubt

    def _confirmed(self, one: Round, found: Assembled, old: set[PartyName], looks: Mapping[PartyName, PartyLook]) -> Assembled:
        """Rule 5: whether an earlier round saw all parties of the set in the very same waits."""
        if not old:
            return found
        reports = found.reports
        new = {party: replace(looks[party], doubt="it is new") for party in one.keys if party not in old}
        alone = self._alone.of(found, amended(reports, new, confirmed=old), {})
        stuck = set(left_over(alone.snapshot.waits, alone.snapshot.missing, certain=True)) & old
        return self._sure.of(found, amended(reports, {}, confirmed=stuck), looks) if stuck else found


def _unsure(assembled: Assembled) -> set[PartyName]:
    """The parties with a wait that a further round may confirm (rule 5)."""
    waits = assembled.snapshot.waits
    return set(waits.named(waits.waiter[waits.uncoloured]))
