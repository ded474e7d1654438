"""Computes which members an answer speaks for, and qualifies answers while members are missing.

Rules:

1. A member is *blind* if an answer cannot speak for it: it did not report, or its agent cannot see parts of it. It is
   *partly* covered if something unknown about it may matter: a pool of unknown size, a caller or a server from outside. A FALSE
   about waits also says for which calls its parties wait that no member has received (:mod:`.unreceived_calls`), and which
   parties that others wait for are themselves in a wait that nobody is known to end (:mod:`.unheld_resources`).
2. An answer *speaks for all* if a member that was not seen could make it wrong: a FALSE of ``deadlock``, a TRUE of
   ``termination``. Other answers depend only on what was seen, and stand.
3. Until the members from before a restart are back, answers that speak for all are UNDETERMINED ("gathering").
4. Until a scope's expected members have joined, so are answers about all members' states (termination, quiescence, tokens).
5. While an incident is open whose processes did not report, so are answers about deadlocks.
6. A TRUE that speaks for all says so if a member joined less than a lease ago; it neither opens an incident nor raises an
   alert. If a member joins after a TRUE that was older than that, the next answers say so.
7. While a member has servers or channels that its agent does not record, answers about all members' states are UNDETERMINED.
8. So are they while a process that is not a member calls members (:mod:`.unjoined_callers`), unless the scope's members are
   stated: it may call again. It counts as blind.
9. So are they for two leases after a process was refused because another uses its name, unless the scope's members are stated:
   it is at work, and will join under another name.
10. So is a TRUE of ``lost-message`` after a process that had declared facts has left or was restarted, until the last member
    has left: what it had counted is gone with it.
11. A FALSE of ``deadlock`` or ``gridlock`` says so if served calls have not moved for a while and are in no known wait: their
    parties count as able to go on. Their members are partly covered. So it is with calls that no worker takes, although not all
    workers of their pool serve calls, and with parties that serve no call and wait in a way that idle ones do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from detector.core.counting import counted
from detector.core.membership_doubt import About, MembershipDoubt, speaks_for_all, with_remark, withheld
from detector.core.selector import has_labels
from detector.core.snapshot import Snapshot
from detector.core.times import clock, duration
from detector.predicates.evidence.explanation import listed
from detector.service.detection.incident.incidents import Incident
from detector.service.detection.membership.expected import Expected
from detector.service.detection.membership.members import NOT_MOVING, WAITING_LONG, Member, Roster, unknowns
from detector.service.detection.membership.unheld_resources import as_remark, unheld_resources
from detector.service.detection.membership.unjoined_callers import UnjoinedCallers
from detector.service.detection.membership.unreceived_calls import UnreceivedCall, described, unreceived_calls
from detector.service.settings import Settings
from stilltrue.model import BlindSpot, Coverage, Holds, PartyName, ProcessId, ProcessName, ProcessState, Verdict
from stilltrue.protocol.report import Report

SPOTS_MAX = 50
FACTS_MAX = 1_000
TWINS_MAX = 1_000
"""The number of refused processes that are remembered; beyond it, those refused the longest ago are forgotten."""
WAITED_FOR = ("deadlock", "gridlock")
NO_MEMBER = "calls members but is not a member: its agent cannot reach this detector, or reports to another one"


class Qualified(NamedTuple):
    """A qualified verdict; ``firm``: it may open incidents and raise alerts (rule 6)."""

    verdict: Verdict
    firm: bool


class _Covered(NamedTuple):
    """The coverage of one view, by member the calls that no member has received, and by party the resources that nobody has."""

    coverage: Coverage
    unreceived: Mapping[ProcessName, Sequence[UnreceivedCall]]
    unheld: Mapping[PartyName, str]


class _EarlierTrue(NamedTuple):
    members: frozenset[ProcessName]
    at: float
    snapshot: int | None


class Membership:
    """Qualifies verdicts by the membership."""

    def __init__(self, roster: Roster, settings: Settings) -> None:
        self.expected = Expected(settings.expected)
        self._roster = roster
        self._lease_seconds = settings.lease_seconds
        self._callers = UnjoinedCallers(
            lambda name: roster.get(name) is not None,
            lease_seconds=settings.lease_seconds,
            forget_seconds=settings.forget_seconds,
        )
        self._labels: dict[str, Mapping[str, str]] = {"all": {}} | {scope.name: scope.labels for scope in settings.scopes}
        self._before: frozenset[ProcessName] = frozenset()
        self._joined: dict[ProcessName, ProcessState] = {}
        self._twins: dict[ProcessId, tuple[float, ProcessState]] = {}
        """When the process was last refused (rule 9)."""
        self._facts_left: dict[str, ProcessName] = {}
        """The facts of processes that have left or were restarted, each with the newest such process (rule 10)."""
        self._earlier_true: dict[tuple[str, str], _EarlierTrue] = {}
        self._covered: dict[str, tuple[Snapshot, Mapping[ProcessName, Report], _Covered]] = {}
        """By scope, the coverage of the newest view, which is the same for every predicate."""

    def restored(self) -> None:
        """Take the members from before a restart, which are now in the roster."""
        self._before = frozenset(member.name for member in self._roster.all())
        for member in self._roster.all():
            self.joined(member)

    def joined(self, member: Member) -> None:
        """Record a process that joined. It counts as joined after a goodbye, too, until the last member has left."""
        self._joined[member.name] = ProcessState(service=member.process.service, labels=member.labels)
        self._twins.pop(member.process, None)

    def refused(self, member: Member, now: float) -> None:
        """Record a process that was refused because another member uses its name (rule 9)."""
        self._twins.pop(member.process, None)
        self._twins[member.process] = now, ProcessState(service=member.process.service, labels=member.labels)
        if len(self._twins) > TWINS_MAX:
            del self._twins[next(iter(self._twins))]

    def reported(self, report: Report, now: float) -> None:
        """Take a member's report for what it says about processes that are not members."""
        self._callers.reported(report, now)

    def left(self, member: Member) -> None:
        """Record that a member left."""
        self.replaced(member)
        if not len(self._roster):
            self._joined.clear()
            self._facts_left.clear()

    def replaced(self, member: Member) -> None:
        """Record that a process has ended: it has left, or a later incarnation has replaced it (rule 10)."""
        for fact in () if member.report is None else member.report.facts:
            if fact in self._facts_left or len(self._facts_left) < FACTS_MAX:
                self._facts_left[fact] = member.name

    def doubts(self, view: Snapshot, incidents: Sequence[Incident]) -> tuple[MembershipDoubt, ...]:
        """The doubts about answers on ``view`` (rules 3 to 5 and 7 to 10); ``incidents``: the open ones."""
        about_members = (*self._gathering(view), *self._unjoined(view), *self._unrecorded(view), *self._called_by_others(view))
        return (*about_members, *self._of_twins(view), *self._uncounted(view), *_unconfirmed(view, incidents))

    def qualified(
        self, verdict: Verdict, view: Snapshot, reports: Mapping[ProcessName, Report], doubts: Sequence[MembershipDoubt]
    ) -> Qualified:
        """Add the coverage to a verdict on ``view``, and make it no more certain than the membership allows."""
        coverage, unreceived, unheld = self._coverage(view, reports)
        verdict = withheld(replace(verdict, coverage=coverage), doubts)
        if verdict.holds is Holds.FALSE and coverage.members < coverage.expected:
            verdict = with_remark(verdict, _covers(coverage))
        if verdict.holds is Holds.FALSE and verdict.predicate in WAITED_FOR and (calls := self._unexplained_calls(view)):
            verdict = with_remark(verdict, calls)
        if verdict.holds is Holds.FALSE and verdict.predicate in WAITED_FOR and (waits := self._unexplained_waits(view)):
            verdict = with_remark(verdict, waits)
        if verdict.holds is Holds.FALSE and unreceived and verdict.predicate in WAITED_FOR:
            verdict = with_remark(verdict, _unreceived(unreceived))
        if verdict.holds is Holds.FALSE and unheld and verdict.predicate in WAITED_FOR:
            verdict = with_remark(verdict, as_remark(unheld))
        return self._qualified_by_age(verdict, view)

    def _unexplained_calls(self, view: Snapshot) -> str:
        """The calls that have not moved for a while, as a remark on a FALSE (rule 11); empty if none are known."""
        return self._remark(view, lambda member: member.unexplained_calls, ("call has", "calls have"), NOT_MOVING)

    def _unexplained_waits(self, view: Snapshot) -> str:
        """The other parties that are stuck, as a remark on a FALSE (rule 11); empty if none are known."""
        words = ("thread or task waits", "threads or tasks wait")
        return self._remark(view, lambda member: member.unexplained_waits, words, WAITING_LONG)

    def _remark(self, view: Snapshot, count_of: Callable[[Member], int], words: tuple[str, str], what: str) -> str:
        """A remark on what ``count_of`` counts at the members; ``words``: one of them, and several."""
        members = (member for name in view.processes if (member := self._roster.get(name)) is not None)
        found = {member.name: count for member in members if (count := count_of(member))}
        if not found:
            return ""
        return f"but {counted(sum(found.values()), *words)} {what}, at {listed(list(found))} (stilltrue stacks)"

    def _gathering(self, view: Snapshot) -> Iterator[MembershipDoubt]:
        """Doubts about members that are not back since a restart (rule 3)."""
        found = ((name, self._roster.get(name)) for name in view.missing)
        out = [name for name, member in found if member is not None and member.restored]
        if out:
            there = self._before.intersection((*view.processes, *view.missing))
            text = f"gathering, {len(there) - len(out)} of {len(there)} back since the restart; not yet: {listed(out)}"
            yield MembershipDoubt(about=About.ALL, text=text, decisive=tuple(out))

    def _unjoined(self, view: Snapshot) -> Iterator[MembershipDoubt]:
        """Doubts about expected members that have not joined (rule 4)."""
        scope = view.ref.scope
        if scope not in self.expected:
            return
        doubt = self.expected.doubt(scope, self._joined_before(view))
        if doubt:
            yield MembershipDoubt(about=About.STATES, text=doubt)

    def _unrecorded(self, view: Snapshot) -> Iterator[MembershipDoubt]:
        """Doubts about members that may make or serve calls that nobody records (rule 7)."""
        found = ((name, self._roster.get(name)) for name in view.processes)
        what = {name: member.unrecorded() for name, member in found if member is not None and member.unrecorded()}
        if what:
            first = next(iter(what))
            text = f"not all calls of {listed(list(what))} are recorded and attributed ({first}: {'; '.join(what[first])})"
            yield MembershipDoubt(about=About.STATES, text=text, decisive=tuple(what))

    def _called_by_others(self, view: Snapshot) -> Iterator[MembershipDoubt]:
        """Doubts about processes that call members and are not members (rule 8)."""
        others = self._unjoined_callers(view)
        if others:
            text = f"{listed(others)} {'calls' if len(others) == 1 else 'call'} members without being one"
            yield MembershipDoubt(about=About.STATES, text=text, decisive=tuple(others))

    def _of_twins(self, view: Snapshot) -> Iterator[MembershipDoubt]:
        """Doubts about processes that were refused because of their name (rule 9)."""
        if view.ref.scope in self.expected:
            return
        labels, oldest = self._labels[view.ref.scope], (view.ref.ended or 0.0) - 2 * self._lease_seconds
        found = {twin.instance for twin, (at, state) in self._twins.items() if at >= oldest and has_labels(state, labels)}
        if found:
            names = listed(sorted(found))
            text = f"another process uses the name {names}, too, and has not joined under a name of its own yet"
            yield MembershipDoubt(about=About.STATES, text=text, decisive=tuple(sorted(found)))

    def _uncounted(self, view: Snapshot) -> Iterator[MembershipDoubt]:
        """Doubts about counts of which a part has left with its process (rule 10)."""
        if not self._facts_left:
            return
        found = {
            fact: self._facts_left[fact]
            for state in view.processes.values()
            for fact in state.facts
            if fact in self._facts_left
        }
        if found:
            fact, name = min(found.items())
            text = f"{name} has left or was restarted, and what it had declared ({fact}) has gone with it"
            yield MembershipDoubt(about=About.TRUE_OF_PREDICATE, predicate="lost-message", text=text, decisive=(name,))

    def _unjoined_callers(self, view: Snapshot) -> list[ProcessName]:
        if view.ref.scope in self.expected:
            return []
        return self._callers.found(view.processes, view.ref.ended or 0.0)

    def _joined_before(self, view: Snapshot) -> dict[ProcessName, ProcessState]:
        """The members of the view's scope that had joined when its snapshot began; one that joined since is not in the view."""
        labels = self._labels[view.ref.scope]
        there = {*view.processes, *view.missing}
        return {
            name: state
            for name, state in self._joined.items()
            if has_labels(state, labels) and (name in there or self._roster.get(name) is None)
        }

    def _qualified_by_age(self, verdict: Verdict, view: Snapshot) -> Qualified:
        """Qualify a TRUE on a young membership, and answers after it (rule 6)."""
        at = verdict.predicate, verdict.snapshot.scope
        begun = verdict.snapshot.begun or 0.0
        before = self._earlier_true.get(at)
        firm = verdict.holds is not Holds.TRUE or not speaks_for_all(verdict)
        if firm and before is None:
            return Qualified(verdict, firm=True)
        members = [member for name in view.processes if (member := self._roster.get(name)) is not None]
        if firm:
            new = [] if before is None else [m for m in members if m.name not in before.members and m.joined_at > before.at]
            if before is not None and new and verdict.holds is not Holds.TRUE:
                verdict = with_remark(
                    verdict, f"it held for {counted(len(before.members), 'member')} (snapshot {before.snapshot}) before "
                    f"{listed([m.name for m in new])} joined",
                )  # fmt: skip
            return Qualified(verdict, firm=True)
        newest = max(members, key=lambda member: member.joined_at, default=None)
        if newest is None or at[1] in self.expected or begun - newest.joined_at >= self._lease_seconds:
            self._earlier_true[at] = _EarlierTrue(frozenset(view.processes), begun, verdict.snapshot.id)
            return Qualified(verdict, firm=True)
        age = duration(max(0.0, begun - newest.joined_at))
        words = f"but the membership is young: {newest.name} joined {age} earlier, and more may join (serve --expect)"
        return Qualified(with_remark(verdict, words), firm=False)

    def _coverage(self, view: Snapshot, reports: Mapping[ProcessName, Report]) -> _Covered:
        """The cached coverage of a view (rule 1)."""
        known = self._covered.get(view.ref.scope)
        if known is None or known[0] is not view or known[1] is not reports:
            known = self._covered[view.ref.scope] = view, reports, self._counted(view, reports)
        return known[2]

    def _counted(self, view: Snapshot, reports: Mapping[ProcessName, Report]) -> _Covered:
        blind = [BlindSpot(process=name, reasons=(self._absence(name, view),)) for name in view.missing]
        others = self._unjoined_callers(view)
        blind += [BlindSpot(process=name, reasons=(NO_MEMBER,)) for name in others]
        partly = []
        unreceived = unreceived_calls(view, reports)
        for name in view.processes:
            member, report = self._roster.get(name), reports.get(name)
            away = (described(unreceived[name]),) if name in unreceived else ()
            unseen = () if member is None else member.unseen()
            if member is not None:
                member.unreceived = away
            if unseen:
                blind.append(BlindSpot(process=name, reasons=unseen))
            elif unknown := (
                *(member.not_moving() if member else ()),
                *(unknowns(report) if report is not None else ()),
                *away,
            ):
                partly.append(BlindSpot(process=name, reasons=unknown))
        there = len(view.processes) + len(view.missing) + len(others)
        scope = view.ref.scope
        wanted = there + (self.expected.lacking(scope, self._joined_before(view)) if scope in self.expected else 0)
        coverage = Coverage(
            members=there - len(blind),
            expected=wanted,
            blind=tuple(sorted(blind, key=lambda spot: spot.process)[:SPOTS_MAX]),
            partly=tuple(partly[:SPOTS_MAX]),
        )
        return _Covered(coverage, unreceived, unheld_resources(view, reports))

    def _absence(self, name: ProcessName, view: Snapshot) -> str:
        if name in view.set_aside:
            return f"its report was set aside: {view.set_aside[name]}"
        member = self._roster.get(name)
        if member is None:
            return "left while the snapshot was taken"
        why = "".join(f": {text}" for text in member.sight.blind[:1]) if member.sight is not None else ""
        return f"{'lost' if member.lost_at is not None else 'did not report'}, last seen {clock(member.heard_at)}{why}"


def _unconfirmed(view: Snapshot, incidents: Iterable[Incident]) -> Iterator[MembershipDoubt]:
    """Doubts about open incidents whose processes are missing (rule 5)."""
    missing = frozenset(view.missing)
    done: set[str] = set()
    for incident in incidents if missing else ():
        absent = sorted(name for name, _ in incident.runs() if name in missing)
        if absent and incident.predicate not in done:
            done.add(incident.predicate)
            text = f"{incident.id} was last confirmed at {clock(incident.seen)}, without a report from {listed(absent)} since"
            yield MembershipDoubt(
                about=About.FALSE_OF_PREDICATE, predicate=incident.predicate, text=text, decisive=tuple(absent)
            )


def _covers(coverage: Coverage) -> str:
    blind = [spot.process for spot in coverage.blind]
    who = f"; blind: {listed(blind)}" if blind else ""
    return f"covers {coverage.members} of {coverage.expected} members{who}"


def _unreceived(calls: Mapping[ProcessName, Sequence[UnreceivedCall]]) -> str:
    """Which parties wait for calls that no member has received, as text."""
    waiters = {one.waiter: one.text for of_member in calls.values() for one in of_member}
    named = listed([f"{waiter} for {text}" for waiter, text in waiters.items()])
    waits = "party waits" if len(waiters) == 1 else "parties wait"
    return f"{len(waiters)} {waits} for a call that no member has received ({named}): see stilltrue doctor"
