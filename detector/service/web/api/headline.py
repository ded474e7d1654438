"""The headline: what an operator has to know, in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum

from detector.core.counting import counted
from detector.core.times import clock
from detector.predicates.evidence.explanation import listed
from detector.service.detection.incident.explanation import current_verdict_of
from detector.service.detection.incident.incidents import Incident
from detector.service.detection.membership.members import NOT_MOVING
from detector.service.detection.membership.unreceived_calls import NOT_RECEIVED
from stilltrue.model import Coverage, Holds, PartyName, ProcessName, Verdict, process_of

_TROUBLE = frozenset({"deadlock", "gridlock", "token-lost", "token-duplicated", "lost-message", "orphaned-resource"})
"""Predicates that mean trouble when they hold; others, such as ``termination``, are neutral."""
_KINDS = {"deadlock": "Deadlocked", "gridlock": "Gridlocked", "orphaned-resource": "Stuck behind a holder that has ended"}


class Level(Enum):
    """Severity, shown as a colour."""

    TROUBLE = "trouble"
    DOUBT = "doubt"
    FINE = "fine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """One sentence, with details for small print, and the time since when the trouble lasts or as of which the answer holds.

    ``extent``: the services and parties affected, shown after the age. If both ``since`` and ``at`` are set, the newest
    snapshot does not confirm the trouble, and ``at`` is its last confirmation.
    """

    level: Level
    text: str
    extent: str = ""
    detail: str = ""
    since: float | None = None
    at: float | None = None


def level_of(verdict: Verdict) -> Level | None:
    """The severity of a verdict; None for one that is neither good nor bad."""
    if verdict.predicate not in _TROUBLE:
        return None
    return {Holds.TRUE: Level.TROUBLE, Holds.FALSE: Level.FINE, Holds.UNDETERMINED: Level.DOUBT}[verdict.holds]


def headline(
    verdicts: Collection[Verdict], incidents: Sequence[Incident], members: int, service_of: Callable[[ProcessName], str]
) -> Headline:
    """Summarize the open ``incidents`` and the current ``verdicts``."""
    if incidents:
        return _stuck(incidents, verdicts, service_of)
    if not members:
        return Headline(
            level=Level.DOUBT, text="No process has joined yet", detail="set STILLTRUE_DETECTOR of the agents to this detector"
        )
    of_all = {verdict.predicate: verdict for verdict in verdicts if verdict.snapshot.scope == "all"}
    for name in sorted(_TROUBLE - {"deadlock", "gridlock"}):
        verdict = of_all.get(name)
        if verdict is not None and verdict.holds is Holds.TRUE:
            return Headline(level=Level.TROUBLE, text=f"{name}: {verdict.witness.text}", since=verdict.snapshot.begun)
    deadlock = of_all.get("deadlock")
    if deadlock is None:
        return Headline(level=Level.DOUBT, text="No snapshot has been taken yet")
    return _free(deadlock)


def _stuck(incidents: Sequence[Incident], verdicts: Collection[Verdict], service_of: Callable[[ProcessName], str]) -> Headline:
    """The headline for open incidents: deadlocks before gridlocks, the oldest first."""
    ordered = sorted(incidents, key=lambda one: (one.predicate != "deadlock", one.formed or one.opened))
    first = ordered[0]
    kind = _KINDS.get(first.predicate, first.predicate)
    services = {service_of(process_of(PartyName(party))) for one in ordered for party in one.core}
    core, behind = sum(len(one.core) for one in ordered), sum(len(one.behind) for one in ordered)
    extent = f"{counted(len(services), 'service')}, {counted(core, 'party', 'parties')}"
    extent += f"; {behind} more {'waits' if behind == 1 else 'wait'} behind {'it' if core == 1 else 'them'}" if behind else ""
    details = [f"{len(incidents)} incidents are open; this is the age of the oldest"] if len(incidents) > 1 else []
    predicates = {one.predicate: one for one in verdicts if one.snapshot.scope == "all"}
    unconfirmed = [one for one in ordered if one.predicate in predicates and current_verdict_of(one, verdicts) is None]
    if silent := {name for one in unconfirmed for name in predicates[one.predicate].missing}:
        involved = {process_of(PartyName(party)) for one in unconfirmed for party in one.core}
        named = listed(sorted(silent & involved or silent))
        details.append(f"{_last_confirmed(unconfirmed, ordered)}{named} did not report since")
    return Headline(
        level=Level.TROUBLE,
        text=kind,
        extent=extent,
        detail="; ".join(details),
        since=first.formed or first.opened,
        at=min(one.seen for one in unconfirmed) if len(unconfirmed) == len(ordered) else None,
    )


def _last_confirmed(unconfirmed: Sequence[Incident], all_of_them: Sequence[Incident]) -> str:
    """If the newest snapshot confirms some incidents and not others: when the others were last confirmed."""
    if len(unconfirmed) == len(all_of_them):
        return ""
    verb = "was" if len(unconfirmed) == 1 else "were"
    return f"{len(unconfirmed)} of them {verb} last confirmed at {clock(min(one.seen for one in unconfirmed))}: "


def _free(verdict: Verdict) -> Headline:
    begun, coverage = verdict.snapshot.begun, verdict.coverage
    match verdict.holds:
        case Holds.FALSE:
            if coverage is None:
                return Headline(level=Level.FINE, text="Nothing is stuck", at=begun)
            if coverage.members < coverage.expected:  # a member that is not seen may be stuck
                text = "Nothing is stuck as far as is seen"
                return Headline(level=Level.DOUBT, text=text, detail=_covers(coverage), at=begun)
            if doubts := [text for text in (_not_moving(coverage), _unreceived(coverage)) if text]:
                detail = "; ".join((_covers(coverage), *doubts))
                return Headline(level=Level.DOUBT, text="Nothing is known to be stuck", detail=detail, at=begun)
            return Headline(level=Level.FINE, text="Nothing is stuck", detail=_covers(coverage), at=begun)
        case Holds.TRUE:  # the membership is too young to open an incident
            return Headline(level=Level.TROUBLE, text="Deadlocked", detail=verdict.witness.text, since=begun)
        case _:
            text = "It is not known whether anything is stuck"
            return Headline(level=Level.DOUBT, text=text, detail=verdict.witness.text, at=begun)


def _not_moving(coverage: Coverage) -> str:
    processes = [one.process for one in coverage.partly if any(NOT_MOVING in reason for reason in one.reasons)]
    who = f"{listed(processes)} {'serves' if len(processes) == 1 else 'serve'}"
    return f"calls that {who} have {NOT_MOVING}" if processes else ""


def _unreceived(coverage: Coverage) -> str:
    processes = [one.process for one in coverage.partly if any(NOT_RECEIVED in reason for reason in one.reasons)]
    return f"{listed(processes)} {'waits' if len(processes) == 1 else 'wait'} for calls {NOT_RECEIVED}" if processes else ""


def _covers(coverage: Coverage) -> str:
    blind = f"; blind: {listed([spot.process for spot in coverage.blind])}" if coverage.blind else ""
    return f"covers {coverage.members} of {counted(coverage.expected, 'member')}{blind}"
