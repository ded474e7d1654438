"""Incidents: one id for one core, no duplicates during a cure, and an end only on proof."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from detector.core.protocol.assembler import Assembled, Outcome
from detector.core.snapshot import Snapshot
from detector.graph.columns import WaitColumns
from detector.predicates.deadlock import Deadlock
from detector.predicates.gridlock import Gridlock
from detector.service.detection.incident.explanation import current_explanation, current_waits
from detector.service.detection.incident.incidents import Incident, Incidents
from detector.service.protobuf_messages import incident_to_wire
from detector.service.web.api.evidence import evidence_of
from stilltrue.model import (
    CallNumber,
    PartyName,
    ProcessId,
    ProcessName,
    ProcessState,
    SnapshotId,
    SnapshotRef,
    Verdict,
    Wait,
    WaitNumber,
)
from stilltrue.protocol.report import Report


def wait(waiter: str, *among: str, number: int = 1, needs: int = 1, since: float = 0.0, deadline: float | None = None) -> Wait:
    return Wait(
        waiter=PartyName(waiter), among=tuple(map(PartyName, among)), needs=needs, number=WaitNumber(number), since=since,
        deadline=deadline,
    )  # fmt: skip


def report(name: str, incarnation: int) -> Report:
    process = ProcessId(service="s", instance=ProcessName(name), incarnation=incarnation)
    return Report(process=process, snapshot=SnapshotId(1), after=SnapshotId(0), cut_at=0, next_number=CallNumber(1))


def processes(*waits: Wait) -> set[str]:
    return {party.split("/")[0] for one in waits for party in (one.waiter, *one.among)}


def assembled(
    id: int, *waits: Wait, begun: float, missing: str = "", members: set[str], incarnations: dict[str, int] | None = None
) -> Assembled:
    names = members - set(missing)
    runs = incarnations or {}
    return Assembled(
        snapshot=Snapshot(
            ref=SnapshotRef(id=SnapshotId(id), begun=begun, ended=begun + 0.1, members=len(names) + len(missing)),
            processes={ProcessName(name): ProcessState() for name in sorted(names)},
            waits=WaitColumns.of(one for one in waits if one.waiter.split("/")[0] not in missing),
            missing=tuple(map(ProcessName, missing)),
        ),
        outcome=Outcome.INCOMPLETE if missing else Outcome.COMPLETE,
        begun_by="period",
        reports={ProcessName(name): report(name, runs.get(name, 1)) for name in names},
    )


class Story:
    """Incidents, told snapshot by snapshot; ``states`` holds each incident as it was last changed."""

    def __init__(self, open_ones: tuple[Incident, ...] = ()) -> None:
        self.states: dict[str, Incident] = {incident.id: incident for incident in open_ones}
        self.opened: list[str] = []
        self.incidents = Incidents(
            open_ones=open_ones, changed=self._changed, opened=lambda i: self.opened.append(i.id), find=self._find
        )
        self.members: set[str] = {name for incident in open_ones for name, _ in incident.runs()}
        self.now = 0.0
        self.id = 0

    def _changed(self, incident: Incident) -> None:
        self.states[incident.id] = incident

    def _find(self, id: str) -> Incident | None:
        known = self.states.get(id)
        return known if known is not None and not known.open else None

    def sees(
        self, *waits: Wait, predicate: Any = None, begun: float | None = None, absent: str = "", opens: bool = True, **more: Any
    ) -> Verdict:
        """``absent``: no members of this snapshot."""
        self.now += 1.0
        self.id += 1
        self.members |= processes(*waits)
        members = self.members - set(absent)
        taken = assembled(self.id, *waits, begun=self.now if begun is None else begun, members=members, **more)
        verdict = (predicate or Deadlock()).evaluate(taken.snapshot)
        seen = self.incidents.cores_in(verdict, taken)
        if seen is not None:
            self.incidents.saw(seen, self.now + 0.2, opens=opens)
        return verdict

    @property
    def open(self) -> list[Incident]:
        return self.incidents.open_ones()


CYCLE = (wait("a/1", "b/1", since=0.5), wait("b/1", "a/1", since=0.8))


def test_one_deadlock_in_many_snapshots_is_one_incident() -> None:
    story = Story()
    for _ in range(5):
        story.sees(*CYCLE, wait("c", "a/1"))
    (incident,) = story.open
    assert story.opened == [incident.id]
    assert incident.core == ("a/1", "b/1")
    assert incident.behind == ("c",)
    assert incident.formed == 0.8
    assert incident.first_snapshot == 1
    assert incident.detection_seconds() == 1.2 - 0.8


def test_an_incident_ends_with_a_later_false_and_names_the_freed_parties() -> None:
    story = Story()
    story.sees(*CYCLE)
    story.sees(wait("b/1", "a/1", since=0.8))
    assert story.open == []
    (incident,) = story.states.values()
    assert incident.closed == 2.2
    assert incident.ending == "a/1 went on before snapshot 2"


def test_a_false_from_before_the_incident_was_seen_does_not_end_it() -> None:
    story = Story()
    story.sees(*CYCLE)
    story.sees(wait("b/1", "a/1"), begun=0.5)
    assert len(story.open) == 1


def test_the_same_names_in_new_waits_are_a_new_incident() -> None:
    story = Story()
    story.sees(*CYCLE)
    story.sees()
    story.sees(wait("a/1", "b/1", number=2), wait("b/1", "a/1", number=2))
    assert len(set(story.opened)) == 2
    assert [incident.open for incident in story.states.values()] == [False, True]


def test_new_waits_under_old_names_between_two_snapshots_end_the_old_incident() -> None:
    story = Story()
    story.sees(*CYCLE)
    story.sees(wait("a/1", "b/1", number=2), wait("b/1", "a/1", number=2))
    assert len(story.opened) == 2
    assert len(story.open) == 1
    assert story.states[story.opened[0]].closed is not None


def test_another_run_of_a_process_is_another_incident() -> None:
    story = Story()
    story.sees(*CYCLE)
    story.sees(*CYCLE, incarnations={"a": 2, "b": 2})
    assert len(set(story.opened)) == 2


def test_a_core_that_shrinks_and_grows_stays_one_incident() -> None:
    story = Story()
    pair = (wait("a", "b", number=1), wait("b", "a", number=2))
    story.sees(*pair, wait("a", "c", number=4), wait("c", "a", number=3))
    assert tuple(map(str, story.open[0].core)) == ("a", "b", "c")
    story.sees(*pair)
    assert tuple(map(str, story.open[0].core)) == ("a", "b")
    story.sees(*pair, wait("d", "a"), wait("b", "d", number=9))
    assert tuple(map(str, story.open[0].core)) == ("a", "b", "d")
    assert len(story.opened) == 1


def test_two_separate_cores_are_two_incidents_and_end_one_by_one() -> None:
    story = Story()
    other = (wait("x", "y"), wait("y", "x"))
    story.sees(*CYCLE, *other)
    assert sorted(incident.core for incident in story.open) == [("a/1", "b/1"), ("x", "y")]
    story.sees(*other)
    assert [incident.core for incident in story.open] == [("x", "y")]


def test_each_of_two_cores_shows_its_own_waits_and_parties_behind() -> None:
    story = Story()
    other = (wait("x", "y"), wait("y", "x"))
    chain = (wait("c", "a/1"), wait("d", "c"), wait("e", "y"), wait("f", "d", "e", needs=2))
    story.sees(*CYCLE, *other, *chain)
    first, second = sorted(story.open, key=lambda incident: incident.core)
    assert (first.core, first.behind) == (("a/1", "b/1"), ("c", "d", "f"))
    assert (second.core, second.behind) == (("x", "y"), ("e", "f"))
    assert first.waits == ("a/1 has waited 600 ms for b/1", "b/1 has waited 300 ms for a/1")
    assert second.waits == ("x has waited 1.1 s for y", "y has waited 1.1 s for x")
    assert second.text == "2 parties wait for each other: x, y"


def test_the_waits_of_each_of_several_open_incidents_grow_older() -> None:
    story = Story()
    other = (wait("x", "y/thread (main)"), wait("y/thread (main)", "x"))
    story.sees(*CYCLE, *other)
    for _ in range(3):
        verdict = story.sees(*CYCLE, *other)
    first, second = sorted(story.open, key=lambda incident: incident.core)
    assert verdict.snapshot.ended == pytest.approx(4.1)
    assert current_waits(first, [verdict]) == ("a/1 has waited 3.6 s for b/1", "b/1 has waited 3.3 s for a/1"), "the witness"
    grown = ("x has waited 4.1 s for y/thread (main)", "y/thread (main) has waited 4.1 s for x")
    assert current_waits(second, [verdict]) == grown, "as old as they are now, and not as when they were first told"
    assert evidence_of(second, [verdict])["at"] == "1970-01-01T00:00:04.1Z"


def test_evidence_of_an_unconfirmed_incident_is_split_into_waits_and_places() -> None:
    told = (
        "a/1 has waited 0.2 s for b/1",
        "aborting 1 party would free both (the fewest possible): a/1",
        "a/1 is at app.py:7 in place",
    )
    story = Story()
    story.sees(*CYCLE)
    (seen,) = (replace(one, waits=told, closed=2.0) for one in story.open)
    evidence = evidence_of(seen, [])
    assert (evidence["current"], evidence["waits"]) == (False, list(told[:1])), "nobody is to be aborted"
    assert evidence["places"] == [{"party": "a/1", "stack": ["app.py:7 in place"], "trace": ""}]


def test_no_victim_is_suggested_once_the_incident_ended_or_its_processes_are_lost() -> None:
    story = Story()
    story.sees(*CYCLE)
    (incident,) = story.open
    *waits, suggestion = incident.waits
    assert suggestion.startswith("aborting 1 party would free both")
    assert list(incident_to_wire(replace(incident, closed=2.0)).waits) == waits
    assert list(incident_to_wire(incident, lost=["a"]).waits) == waits
    assert list(incident_to_wire(incident).waits) == [*waits, suggestion], "but not yet seen anew"


def test_an_open_incident_keeps_its_suggested_victims() -> None:
    """As it did when it was first seen, for ``stilltrue incidents`` and ``show``."""
    story = Story()
    verdict = story.sees(*CYCLE)
    (incident,) = story.open
    assert incident.waits[2:] == ("aborting 1 party would free both (the fewest possible): b/1",)
    behind = wait("c", "a/1")
    verdict = story.sees(*CYCLE, behind)
    told = current_explanation(story.open[0], [verdict])
    assert told == (*current_waits(story.open[0], [verdict]), "aborting 1 party would free all 3 (the fewest possible): b/1")
    other = (wait("x", "y"), wait("y", "x"))
    verdict = story.sees(*CYCLE, behind, *other)
    for incident in story.open:
        (victim,) = {*verdict.victims} & {*incident.core}
        assert current_explanation(incident, [verdict])[-1] == f"suggested victims: {victim}"
        assert not any(line.startswith("aborting") for line in current_explanation(incident, [verdict])), (
            "it would free this one alone"
        )


def test_the_id_does_not_depend_on_the_order() -> None:
    one, two = Story(), Story()
    one.sees(*CYCLE)
    two.sees(*reversed(CYCLE))
    assert one.opened == two.opened


def test_undetermined_neither_opens_nor_ends() -> None:
    story = Story()
    verdict = story.sees(wait("b/1", "a/1"), wait("c", "b/1"), missing="a")
    assert verdict.holds.value == "undetermined"
    assert story.open == []
    story.sees(*CYCLE)
    story.sees(wait("b/1", "a/1"), missing="a")
    assert len(story.open) == 1


def test_an_undetermined_answer_ends_no_incident() -> None:
    story = Story()
    story.sees(*CYCLE)
    verdict = story.sees(wait("b/1", "c"), wait("c", "d"), missing="d")
    assert verdict.holds.value == "undetermined"
    assert len(story.open) == 1


def test_silence_of_its_processes_does_not_end_it() -> None:
    story = Story()
    story.sees(*CYCLE, wait("c", "d"))
    verdict = story.sees(*CYCLE, wait("c", "d"), missing="ab")
    assert verdict.holds.value == "false"
    assert len(story.open) == 1


def run(name: str, incarnation: int = 1) -> ProcessId:
    return ProcessId(service="s", instance=ProcessName(name), incarnation=incarnation)


def test_absence_of_its_processes_does_not_end_it() -> None:
    story = Story()
    story.sees(*CYCLE, wait("c", "d"))
    for absent in ("ab", "a", "b"):
        left = [one for one in (*CYCLE, wait("c", "d")) if one.waiter[0] not in absent]
        story.sees(*left, absent=absent)
        assert len(story.open) == 1, absent
    story.sees(wait("c", "d"))
    assert story.open == []


def test_the_end_of_one_process_accounts_for_it_and_the_others_must_report() -> None:
    story = Story()
    story.sees(*CYCLE)
    story.incidents.over(run("a"), "it said goodbye", 1.5)
    assert len(story.open) == 1
    story.sees(absent="ab")
    assert len(story.open) == 1
    story.sees(absent="a")
    assert story.open == []
    assert story.states[story.opened[0]].ending == "a is no longer a member: it said goodbye; b/1 went on before snapshot 3"


def test_the_end_of_another_incarnation_proves_nothing() -> None:
    story = Story()
    story.sees(*CYCLE)
    story.incidents.over(run("a", 7), "it said goodbye", 1.5)
    story.incidents.over(run("b", 7), "it said goodbye", 1.5)
    story.sees(absent="ab")
    assert len(story.open) == 1


def test_a_later_incarnation_proves_the_end_of_the_one_before() -> None:
    story = Story()
    story.sees(*CYCLE)
    story.sees(incarnations={"a": 2, "b": 2})
    assert story.open == []


def test_an_incident_ends_with_the_last_process_of_its_core_and_reopens_under_its_id() -> None:
    story = Story()
    story.sees(*CYCLE)
    story.incidents.over(run("b"), "it said goodbye", 1.4)
    story.incidents.over(run("a"), "it is forgotten", 1.5)
    assert story.open == []
    assert story.states[story.opened[0]].ending == "a is no longer a member: it is forgotten"
    story.sees(*CYCLE)
    assert [incident.id for incident in story.open] == story.opened
    assert story.open[0].ending == ""
    assert story.open[0].first_snapshot == 1


def test_a_verdict_that_may_not_open_incidents_still_ends_them() -> None:
    story = Story()
    story.sees(*CYCLE, opens=False)
    assert story.open == []
    story.sees(*CYCLE)
    story.sees(opens=False)
    assert story.open == []


def test_three_thousand_deadlocks_in_one_snapshot_are_handled_quickly() -> None:
    story = Story()
    pairs = [wait(f"p{n}", f"q{n}") for n in range(3000)] + [wait(f"q{n}", f"p{n}") for n in range(3000)]
    behind = [wait(f"r{n}", f"p{n}") for n in range(3000)]
    for _ in range(2):
        begun = time.process_time()
        story.sees(*pairs, *behind)
        assert len(story.open) == 3000
        assert time.process_time() - begun < 3.0
    assert all(incident.behind == (incident.core[0].replace("p", "r"),) for incident in story.open)
    begun = time.process_time()
    story.sees()
    assert (story.open, time.process_time() - begun < 3.0) == ([], True)


def test_an_open_incident_survives_a_restart() -> None:
    before = Story()
    before.sees(*CYCLE)
    after = Story(open_ones=tuple(before.open))
    after.now = 10.0
    after.sees(*CYCLE)
    assert after.opened == []
    assert [incident.id for incident in after.open] == before.opened
    after.sees()
    assert after.open == []


def test_a_gridlock_that_is_a_deadlock_is_the_deadlocks_incident() -> None:
    story = Story()
    story.sees(*CYCLE, predicate=Gridlock())
    assert story.open == []
    timed = (wait("x", "y", deadline=100.0), wait("y", "x", deadline=90.0))
    story.sees(*CYCLE, *timed, predicate=Gridlock())
    assert [incident.core for incident in story.open] == [("x", "y")]


def test_a_verdict_on_a_scope_opens_no_incident_of_its_own() -> None:
    story = Story()
    taken = assembled(1, *CYCLE, begun=1.0, members={"a", "b"})
    shop = replace(taken, snapshot=replace(taken.snapshot, ref=replace(taken.snapshot.ref, scope="shop")))
    assert story.incidents.cores_in(Deadlock().evaluate(shop.snapshot), shop) is None


def test_a_gridlock_that_loses_its_deadline_opens_a_deadlock_incident() -> None:
    story = Story()
    story.sees(wait("x", "y", deadline=100.0), wait("y", "x"), predicate=Gridlock())
    story.sees(wait("x", "y"), wait("y", "x"))
    assert sorted(incident.predicate for incident in story.open) == ["deadlock", "gridlock"]


def test_cores_that_wait_for_each_other_one_way_are_two_incidents() -> None:
    story = Story()
    story.sees(*CYCLE, wait("x", "y"), wait("y", "x"), wait("a/1", "x", number=2))
    assert sorted(incident.core for incident in story.open) == [("a/1", "b/1"), ("x", "y")]


def test_a_true_about_other_parties_does_not_end_an_incident_whose_waits_last() -> None:
    story = Story()
    story.sees(*CYCLE)
    story.members |= {"x", "y"}
    taken = assembled(2, *CYCLE, wait("x", "y"), wait("y", "x"), begun=5.0, members=story.members)
    whole = Deadlock().evaluate(taken.snapshot)
    seen = story.incidents.cores_in(replace(whole, core=(PartyName("x"), PartyName("y"))), taken)
    assert seen is not None
    story.incidents.saw(seen, 5.2)
    assert sorted(incident.core for incident in story.open) == [("a/1", "b/1"), ("x", "y")]


def test_incidents_are_counted_and_known_by_their_processes() -> None:
    told: list[Incident] = []
    many = [
        Incident(
            id=f"i{at}", predicate="deadlock", scope="all", core=(PartyName(f"p{at}/x"),), behind=(PartyName(f"q{at}/y"),),
            opened=1.0, seen=1.0, first_snapshot=SnapshotId(1), last_snapshot=SnapshotId(1),
            keys=((PartyName(f"p{at}/x"), 1, 1),),
        )
        for at in range(20)
    ]  # fmt: skip
    incidents = Incidents(open_ones=many, changed=told.append, opened=told.append, find=lambda _: None)
    assert incidents.count("deadlock") == len(many)
    assert incidents.count("gridlock") == 0
    assert incidents.shows(ProcessName("p7"))
    assert incidents.shows(ProcessName("q7"))
    incidents.over(ProcessId(service="", instance=ProcessName("p7"), incarnation=1), "it said goodbye", 2.0)
    assert not incidents.shows(ProcessName("p7"))
    assert not incidents.shows(ProcessName("q7"))
    assert incidents.count("deadlock") == len(many) - 1
    (closed,) = told
    assert closed.id == "i7"
