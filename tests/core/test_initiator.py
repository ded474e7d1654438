"""The initiator, rule by rule: rising ids, triggers of snapshots, and how long it waits for which members."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from detector.core.protocol.assembler import ENTRIES_PER_MEMBER, HEAVY_ENTRIES_MIN, Outcome, Refusal
from detector.core.protocol.initiator import (
    COMING_SECONDS,
    PARTIAL_SECONDS_PER_MEMBER,
    Assemble,
    Begin,
    Effect,
    EvaluatePartial,
    Finish,
    Initiator,
    Refuse,
)
from detector.core.protocol.pace import Timing
from stilltrue.model import PartyName, ProcessId, ProcessName, SnapshotId
from stilltrue.protocol.books.ledger import ChannelRecord
from stilltrue.protocol.recorder import Recorder
from stilltrue.protocol.report import PartyTarget

TIMING = Timing(period_seconds=0, give_up_seconds=2.0, suspect_seconds=0.25, trigger_seconds_min=1.0, triggers_burst_max=1)


class Story:
    """An initiator and recorders; effects as short sentences."""

    def __init__(self, *names: str, timing: Timing = TIMING) -> None:
        self.initiator = Initiator(timing)
        self.recorders: dict[str, Recorder] = {}
        for name in names:
            self.join(name)

    def join(self, name: str, incarnation: int = 1, now: float = 0.0) -> list[str]:
        process = ProcessId(service="s", instance=ProcessName(name), incarnation=incarnation)
        self.recorders[name] = Recorder(process=process)
        return self.tell(self.initiator.joined(process, SnapshotId(0), now))

    def report(self, name: str, snapshot: int, now: float) -> list[str]:
        report = self.recorders[name].marked(SnapshotId(snapshot), now)
        assert report is not None
        return self.tell(self.initiator.reported(report, now))

    def tell(self, effects: list[Effect]) -> list[str]:
        return [_sentence(effect) for effect in effects]


def _sentence(effect: Effect) -> str:
    match effect:
        case Begin(snapshot=snapshot, members=members):
            return f"begin {snapshot} of {' '.join(members)}"
        case Finish(assembled=assembled, tickets=tickets):
            missing = " ".join(assembled.snapshot.missing)
            said = f"finish {assembled.snapshot.ref.id} {assembled.outcome.value}" + (f" without {missing}" if missing else "")
            return said + "".join(f" for {ticket}" for ticket in tickets)
        case Assemble(pending=pending, tickets=tickets):
            return f"ended {pending.id}" + "".join(f" for {ticket}" for ticket in tickets)
        case EvaluatePartial(part=part, tickets=tickets):
            missing = " ".join(part.missing())
            return f"so far {part.id} without {missing}" + "".join(f" for {ticket}" for ticket in tickets)
        case Refuse(process=process, reason=reason):
            return f"refuse {process}: {reason.value}"


def test_a_large_snapshot_is_assembled_elsewhere_and_the_next_continues_from_it() -> None:
    story = Story("a", "b", "c")
    story.initiator = Initiator(TIMING, offload_weight_min=3)
    for recorder in story.recorders.values():
        story.initiator.joined(recorder.process, SnapshotId(0), 0.0)
    assert story.tell(story.initiator.asked(7, 1.0)) == ["begin 1 of a b c"]
    story.report("a", 1, 1.1)
    story.report("b", 1, 1.1)
    report = story.recorders["c"].marked(SnapshotId(1), 1.2)
    assert report is not None
    (ended,) = story.initiator.reported(report, 1.2)
    assert isinstance(ended, Assemble)
    assert ended.tickets == (7,)
    assembled = ended.assembled()
    assert (assembled.outcome, assembled.snapshot.ref.ended) == (Outcome.COMPLETE, 1.2)
    story.initiator.assembled(assembled, 1.3)
    assert "ends complete" in story.initiator.story(SnapshotId(1))[-1]
    story.tell(story.initiator.left(ProcessName("c"), 1.4))
    assert story.tell(story.initiator.asked(8, 1.5)) == ["begin 2 of a b"]
    story.report("a", 2, 1.6)
    assert story.report("b", 2, 1.6) == ["finish 2 complete for 8"]  # a small snapshot is assembled at once


def test_a_question_begins_a_snapshot_that_ends_when_all_have_reported() -> None:
    story = Story("a", "b")
    assert story.tell(story.initiator.asked(7, 1.0)) == ["begin 1 of a b"]
    assert story.report("a", 1, 1.1) == []
    assert story.report("b", 1, 1.2) == ["finish 1 complete for 7"]


def lasting(*names: str) -> Story:
    """An initiator for which rule 7 applies after a second."""
    story = Story()
    story.initiator = Initiator(TIMING, partial_seconds=1.0)
    for name in names:
        story.join(name)
    return story


def test_rule_7_a_question_may_be_answered_from_the_reports_so_far() -> None:
    story = lasting("a", "b", "c")
    assert story.tell(story.initiator.asked(7, 1.0)) == ["begin 1 of a b c"]
    assert story.initiator.partial_due() == math.inf, "nobody has reported"
    assert story.report("a", 1, 1.1) == []
    assert story.initiator.partial_due() == 2.0
    assert story.tell(story.initiator.partial(1.9)) == []
    assert story.tell(story.initiator.partial(2.0)) == ["so far 1 without b c for 7"]
    story.initiator.partly_evaluated(SnapshotId(1), 2.0)
    assert story.initiator.partial_due() == math.inf, "nothing has come since"
    assert story.report("b", 1, 2.1) == []
    assert story.initiator.partial_due() == 3.0
    assert story.tell(story.initiator.partial(3.0)) == ["so far 1 without c for 7"]
    assert story.tell(story.initiator.ticked(3.0)) == ["finish 1 incomplete without c for 7"], "the end is the same"
    story.initiator.partly_evaluated(SnapshotId(1), 3.1)


def test_rule_7_one_partial_evaluation_runs_at_a_time() -> None:
    story = lasting("a", "b", "c")
    story.tell(story.initiator.asked(7, 1.0))
    story.report("a", 1, 1.1)
    assert story.tell(story.initiator.partial(2.0)) == ["so far 1 without b c for 7"]
    story.report("b", 1, 2.1)
    assert story.initiator.partial_due() == math.inf, "the first part is still being judged"
    assert story.tell(story.initiator.partial(3.5)) == []
    story.initiator.partly_evaluated(SnapshotId(1), 3.6)
    assert story.initiator.partial_due() == 4.6
    assert story.tell(story.initiator.partial(4.6)) == ["so far 1 without c for 7"]


def test_rule_7_a_larger_fleet_is_evaluated_partially_later() -> None:
    members = 4000
    story = lasting(*(f"m{at:04}" for at in range(members)))
    story.initiator.asked(7, 1.0)
    story.report("m0000", 1, 1.1)
    due = 1.0 + members * PARTIAL_SECONDS_PER_MEMBER
    assert story.initiator.partial_due() == due > 2.0
    assert story.initiator.partial(due - 0.1) == []
    (part,) = story.initiator.partial(due)
    assert isinstance(part, EvaluatePartial)
    assert part.tickets == (7,)


def test_rule_7_a_partial_evaluation_does_not_delay_further_questions() -> None:
    story = lasting("a", "b")
    most = TIMING.pending_snapshots_max
    for number in range(1, most + 1):
        story.tell(story.initiator.asked(number, 1.0))
    story.report("a", most, 1.1)
    assert len(story.tell(story.initiator.partial(2.0))) == most
    assert story.tell(story.initiator.asked(7, 2.1)) == []
    assert story.initiator.partial_due() == 3.0, "the end of those that are in the way"
    assert story.tell(story.initiator.partial(2.9)) == []
    sentences = story.tell(story.initiator.partial(3.0))
    assert sentences == [f"finish {number} incomplete without b for {number}" for number in range(1, most + 1)] + [
        f"begin {most + 1} of a b"
    ]


def test_rule_7_a_snapshot_without_a_question_is_evaluated_as_a_whole() -> None:
    story = lasting("a", "b")
    story.tell(story.initiator.requested(ProcessName("a"), 1.0))
    story.report("a", 1, 1.1)
    assert story.initiator.partial_due() == math.inf
    assert story.report("b", 1, 1.2) == ["finish 1 complete"]


def test_rule_7_a_far_larger_report_is_evaluated_after_the_others() -> None:
    story = lasting("a", "b", "c")
    large = story.recorders["c"]
    for at in range(HEAVY_ENTRIES_MIN):
        large.waits(PartyName(f"c/{at}"), [PartyTarget(party=PartyName("c/free"))], 0.0)
    story.tell(story.initiator.asked(7, 1.0))
    story.report("c", 1, 1.1)
    assert story.initiator.partial_due() == math.inf, "what is there takes the longest"
    story.report("a", 1, 1.1)
    assert story.report("b", 1, 1.2) == ["so far 1 without c for 7", "finish 1 complete for 7"]
    story = lasting("c")
    story.recorders["c"] = large
    story.tell(story.initiator.joined(large.process, SnapshotId(1), 2.0))
    story.tell(story.initiator.asked(8, 3.0))
    assert story.report("c", 2, 3.1) == ["finish 2 complete for 8"], "there is no other"


def test_rule_7_reports_that_are_large_together_are_evaluated_after_the_others() -> None:
    story = lasting(*"abcdefg")
    for name in "efg":
        for at in range(HEAVY_ENTRIES_MIN // 3 + 1):
            story.recorders[name].waits(PartyName(f"{name}/{at}"), [PartyTarget(party=PartyName("c/free"))], 0.0)
    story.tell(story.initiator.asked(7, 1.0))
    for name in "abcdef":
        assert story.report(name, 1, 1.1) == []
    assert story.report("g", 1, 1.2) == ["so far 1 without e f g for 7", "finish 1 complete for 7"]
    story.tell(story.initiator.left(ProcessName("g"), 2.0))
    story.tell(story.initiator.asked(8, 3.0))
    for name in "abcde":
        story.report(name, 2, 3.1)
    assert story.report("f", 2, 3.2) == ["finish 2 complete for 8"], "two of them are soon assembled"


def test_the_next_marker_tells_a_caller_which_doubts_are_settled() -> None:
    story = Story("a", "b")
    a, b = story.recorders["a"], story.recorders["b"]
    channel = ChannelRecord("b:1")
    for seen in (True, True, False):
        made, stamp = a.sent(method="/s/M", channel=channel, now=0.0)
        if seen:
            served, _ = b.arrived(stamp, method="/s/M", now=0.0)
        a.settled(made, None, 0.0, in_doubt=True)
    b.replied(served)  # the second; the first is still served, the third was never seen
    story.tell(story.initiator.asked(1, 1.0))
    story.report("a", 1, 1.0)
    story.report("b", 1, 1.0)
    (begin,) = story.initiator.asked(2, 2.0)
    assert isinstance(begin, Begin)
    assert begin.settled == {"a": (2,)}
    story.report("a", 2, 2.0)
    story.report("b", 2, 2.0)
    story.join("a", incarnation=2)
    (begin,) = story.initiator.asked(3, 3.0)
    assert isinstance(begin, Begin)
    assert begin.settled == {}, "numbers begin anew with an incarnation"


def test_one_cut_serves_every_snapshot_that_it_jumps_over() -> None:
    story = Story("a")
    story.tell(story.initiator.asked(1, 1.0))
    story.tell(story.initiator.asked(2, 1.0))
    assert story.report("a", 2, 1.1) == ["finish 1 complete for 1", "finish 2 complete for 2"]


def test_members_that_missed_the_last_snapshot_are_waited_for_briefly() -> None:
    story = Story("a", "b")
    story.tell(story.initiator.asked(1, 0.0))
    story.report("a", 1, 0.1)
    assert story.initiator.due(0.1) == 2.0
    assert story.tell(story.initiator.ticked(2.0)) == ["finish 1 incomplete without b for 1"]
    story.tell(story.initiator.asked(2, 3.0))
    story.report("a", 2, 3.1)
    assert story.initiator.due(3.1) == 3.25


def test_a_member_that_reports_again_is_waited_for_as_long_as_the_others() -> None:
    story = Story("a", "b")
    story.tell(story.initiator.asked(1, 0.0))
    story.report("a", 1, 0.1)
    story.tell(story.initiator.ticked(2.0))
    story.tell(story.initiator.asked(2, 3.0))
    story.report("b", 2, 3.1)
    story.report("a", 2, 3.1)
    story.tell(story.initiator.asked(3, 4.0))
    story.report("a", 3, 4.1)
    assert story.initiator.due(4.1) == 6.0


def test_a_member_that_reports_much_too_late_is_still_waited_for_briefly() -> None:
    """Old reports that keep arriving do not prolong the wait for missing ones."""
    story = Story("a", "b")
    story.tell(story.initiator.asked(1, 0.0))
    story.report("a", 1, 0.1)
    story.tell(story.initiator.ticked(2.0))
    story.tell(story.initiator.asked(2, 3.0))
    assert story.report("b", 1, 3.1) == ["refuse b: late"]
    story.report("a", 2, 3.1)
    assert story.initiator.due(3.1) == 3.25


def test_a_member_that_reports_a_little_late_is_waited_for_like_the_others() -> None:
    story = Story("a", "b", timing=replace(TIMING, suspect_seconds=1.0))
    story.tell(story.initiator.asked(1, 0.0))
    story.report("a", 1, 0.1)
    story.tell(story.initiator.ticked(2.0))
    story.tell(story.initiator.asked(2, 3.0))
    story.report("a", 2, 3.1)
    story.tell(story.initiator.ticked(4.0))
    story.tell(story.initiator.asked(3, 4.1))
    story.report("b", 2, 4.2)
    story.report("a", 3, 4.2)
    assert story.initiator.due(4.2) == 6.1


def test_a_snapshot_with_very_many_waits_is_assembled_elsewhere_like_that_of_a_fleet() -> None:
    story = Story("a")
    story.initiator = Initiator(TIMING, offload_weight_min=3)
    story.join("a")
    kinds = []
    for number in (1, 2):
        story.tell(story.initiator.asked(number, float(number)))
        report = story.recorders["a"].marked(SnapshotId(number), float(number))
        assert report is not None
        (ended,) = story.initiator.reported(report, float(number))
        kinds.append(type(ended))
        for each in range(2 * ENTRIES_PER_MEMBER):
            story.recorders["a"].waits(PartyName(f"a/{each}"), (), float(number))
    assert kinds == [Finish, Assemble]


def test_requests_of_processes_do_not_displace_questions() -> None:
    timing = replace(TIMING, pending_snapshots_max=3, triggers_burst_max=10)
    story = Story("a", "mute", timing=timing)
    begun = [story.tell(story.initiator.requested(ProcessName("mute"), 0.0)) for _ in range(3)]
    assert begun == [["begin 1 of a mute"], ["begin 2 of a mute"], []]
    assert story.tell(story.initiator.asked(1, 0.1)) == ["begin 3 of a mute"]
    assert story.tell(story.initiator.asked(2, 0.2)) == []
    assert story.tell(story.initiator.ticked(2.0))[-1].startswith("begin 4")


def test_a_caller_is_told_once_that_a_doubt_is_settled() -> None:
    story = Story("a", "b")
    a, b = story.recorders["a"], story.recorders["b"]
    made, stamp = a.sent(method="/s/M", channel=ChannelRecord("b:1"), now=0.0)
    served, _ = b.arrived(stamp, method="/s/M", now=0.0)
    a.settled(made, None, 0.0, in_doubt=True)
    b.replied(served)
    told = []
    for number in (1, 2, 3):
        (begin,) = story.initiator.asked(number, float(number))
        assert isinstance(begin, Begin)
        told.append(dict(begin.settled))
        a.doubts_settled(begin.settled.get(ProcessName("a"), ()))
        story.report("a", number, float(number))
        story.report("b", number, float(number))
    assert told == [{}, {"a": (1,)}, {}]


def test_a_member_that_left_is_not_waited_for_and_one_that_returned_is() -> None:
    story = Story("a", "b", "c")
    story.tell(story.initiator.asked(1, 0.0))
    story.report("a", 1, 0.1)
    assert story.tell(story.initiator.left(ProcessName("b"), 0.2)) == []
    process = story.recorders["b"].process
    assert story.tell(story.initiator.joined(process, SnapshotId(0), 0.3)) == []
    assert story.report("c", 1, 0.4) == []
    assert story.report("b", 1, 0.5) == ["finish 1 complete for 1"]


def test_a_member_that_left_ends_the_snapshot_that_waited_for_it_alone() -> None:
    story = Story("a", "b")
    story.tell(story.initiator.asked(1, 0.0))
    story.report("a", 1, 0.1)
    assert story.tell(story.initiator.left(ProcessName("b"), 0.2)) == ["finish 1 incomplete without b for 1"]


def test_another_incarnation_is_not_the_member_that_was_expected() -> None:
    story = Story("a", "b")
    story.tell(story.initiator.asked(1, 0.0))
    assert story.join("b", incarnation=2, now=0.1) == []
    assert story.report("b", 1, 0.2) == [f"refuse b: {Refusal.OTHER_INCARNATION.value}"]
    assert story.report("a", 1, 0.3) == [f"finish 1 {Outcome.INCOMPLETE.value} without b for 1"]


def test_a_late_report_is_refused() -> None:
    story = Story("a", "b")
    story.tell(story.initiator.asked(1, 0.0))
    story.report("a", 1, 0.1)
    story.tell(story.initiator.ticked(2.0))
    assert story.report("b", 1, 2.1) == ["refuse b: late"]


def test_ids_rise_above_every_colour_that_was_seen() -> None:
    story = Story("a")
    story.initiator.advance(SnapshotId(41))
    assert story.tell(story.initiator.asked(1, 0.0)) == ["begin 42 of a"]


def test_requests_of_processes_are_granted_a_bounded_number_of_times_a_second() -> None:
    story = Story("a")
    assert story.tell(story.initiator.requested(ProcessName("a"), 0.0)) == ["begin 1 of a"]
    story.report("a", 1, 0.1)
    assert story.tell(story.initiator.requested(ProcessName("a"), 0.2)) == []
    assert story.initiator.due(0.2) == 1.0
    assert story.tell(story.initiator.ticked(1.0)) == ["begin 2 of a"]


def test_a_request_that_a_recent_snapshot_covers_begins_none() -> None:
    timing = replace(TIMING, triggers_burst_max=10)
    story = Story("a", "b", timing=timing)
    requested = story.initiator.requested
    assert story.tell(requested(ProcessName("a"), 0.0, covered_seconds=0.25)) == ["begin 1 of a b"]
    storm = [story.tell(requested(ProcessName(name), 0.001 * at, covered_seconds=0.25)) for at in range(50) for name in "ab"]
    assert not any(storm)
    story.report("a", 1, 0.1)
    story.report("b", 1, 0.1)
    assert story.tell(requested(ProcessName("b"), 0.2, covered_seconds=0.25)) == []
    assert story.initiator.due(0.2) == float("inf")
    story.join("c", now=0.2)
    assert story.tell(requested(ProcessName("c"), 0.21, covered_seconds=0.25)) == ["begin 2 of a b c"]  # it is new
    assert story.tell(requested(ProcessName("b"), 0.5, covered_seconds=0.25)) == ["begin 3 of a b c"]
    assert story.tell(requested(ProcessName("b"), 0.5)) == ["begin 4 of a b c"]  # an old agent does not send covered_seconds


def test_pending_snapshots_are_bounded_and_the_rest_begin_afterwards() -> None:
    story = Story("a", timing=Timing(period_seconds=0, pending_snapshots_max=1))
    assert story.tell(story.initiator.asked(1, 0.0)) == ["begin 1 of a"]
    assert story.tell(story.initiator.asked(2, 0.0)) == []
    assert story.tell(story.initiator.asked(3, 0.0)) == []
    assert story.report("a", 1, 0.1) == ["finish 1 complete for 1", "begin 2 of a"]
    assert story.report("a", 2, 0.2) == ["finish 2 complete for 2 for 3"]


def test_no_member_is_late_while_many_still_report_up_to_a_bound() -> None:
    names = [f"m{number:02}" for number in range(60)]
    story = Story(*names, timing=replace(TIMING, give_up_seconds=2.0))
    story.tell(story.initiator.asked(1, 0.0))
    for at, name in enumerate(names[:30]):
        assert story.report(name, 1, 0.1 * at) == []
    assert story.initiator.due(2.9) == pytest.approx(2.9 + COMING_SECONDS)
    assert story.tell(story.initiator.ticked(3.3)) == []
    assert story.tell(story.initiator.ticked(3.5))[0].startswith("finish 1 incomplete without m30")
    story.tell(story.initiator.asked(2, 4.0))
    for at, name in enumerate(names[:40]):
        assert story.report(name, 2, 4.0 + 0.25 * at) == []
    assert story.initiator.due(13.9) == 14.0
    assert story.tell(story.initiator.ticked(14.0))[0].startswith("finish 2 incomplete")


def test_the_last_few_of_many_late_members_are_waited_for_as_briefly() -> None:
    for late in (3.3, 3.6):
        names = [f"m{number:02}" for number in range(60)]
        story = Story(*names, timing=replace(TIMING, give_up_seconds=2.0))
        story.tell(story.initiator.asked(1, 0.0))
        for at, name in enumerate(names[:55]):
            assert story.report(name, 1, min(3.0, 0.1 * at)) == []
        assert story.tell(story.initiator.ticked(3.1)) == []
        ends = story.tell(story.initiator.ticked(late))
        if late < 3.0 + COMING_SECONDS:
            ends = [said for name in names[55:] for said in story.report(name, 1, late)]
            assert ends == ["finish 1 complete for 1"]
        else:
            assert ends[0].startswith("finish 1 incomplete without m55")


def test_a_few_late_members_do_not_delay_the_snapshot() -> None:
    story = Story(*(f"m{number:02}" for number in range(20)))
    story.tell(story.initiator.asked(1, 0.0))
    for number in range(15):
        assert story.report(f"m{number:02}", 1, 1.9) == []
    assert story.tell(story.initiator.ticked(2.0))[0].startswith("finish 1 incomplete")


def test_a_pause_follows_a_long_snapshot() -> None:
    story = Story("a", "b", timing=replace(TIMING, period_seconds=1.0))
    assert story.tell(story.initiator.ticked(5.0)) == ["begin 1 of a b"]
    story.report("a", 1, 5.1)
    assert story.report("b", 1, 6.5) == ["finish 1 complete"]
    assert story.initiator.due(6.5) == 7.5
    assert story.tell(story.initiator.ticked(7.5)) == ["begin 2 of a b"]


def test_while_many_join_only_a_question_begins_a_snapshot() -> None:
    rush = Timing(period_seconds=1.0, rush_members=3, rush_seconds=0.5, rush_seconds_max=2.0)
    story = Story("a", timing=rush)
    story.join("b", now=0.1)
    assert story.tell(story.initiator.ticked(0.1)) == ["begin 1 of a b"]  # two are not a rush
    story.join("c", now=1.0)
    story.join("d", now=1.1)
    story.join("e", now=1.2)
    assert story.tell(story.initiator.ticked(1.3)) == []
    assert story.tell(story.initiator.requested(ProcessName("a"), 1.4)) == []
    assert story.tell(story.initiator.asked(7, 1.5)) == ["begin 2 of a b c d e"]


def test_a_snapshot_is_delayed_while_members_join_but_not_for_long() -> None:
    rush = Timing(period_seconds=1.0, rush_members=2, rush_seconds=0.5, rush_seconds_max=2.0)
    story = Story("a", "b", timing=rush)
    assert story.tell(story.initiator.ticked(0.4)) == []
    assert story.initiator.due(0.4) == 0.5
    assert story.tell(story.initiator.ticked(0.5)) == ["begin 1 of a b"]
    story = Story("a", timing=rush)
    for number in range(1, 10):
        story.join(f"b{number}", now=number / 4)
    assert story.initiator.due(2.0) == 2.0, "they still join, but a snapshot is not put off for ever"
    assert story.tell(story.initiator.ticked(2.0))[0].startswith("begin 1")


def test_many_questions_share_snapshots() -> None:
    story = Story("a")
    crowd = TIMING.crowd_questions
    assert story.tell(story.initiator.asked(1, 0.0)) == ["begin 1 of a"]
    assert story.tell(story.initiator.asked(2, 0.01, waiting=crowd)) == []
    assert story.report("a", 1, 0.02) == ["finish 1 complete for 1"]
    assert story.tell(story.initiator.asked(3, 0.03, waiting=2)) == [], "a crowd is not over at once"
    assert story.initiator.due(0.03) == TIMING.crowd_seconds
    assert story.tell(story.initiator.ticked(TIMING.crowd_seconds)) == ["begin 2 of a"]
    assert story.report("a", 2, 0.21) == ["finish 2 complete for 2 for 3"]


def test_a_few_questions_are_not_delayed() -> None:
    story, crowd = Story("a"), TIMING.crowd_questions
    for number in range(1, 20):
        now = number / 100
        assert story.tell(story.initiator.asked(number, now, waiting=crowd - 1)) == [f"begin {number} of a"]
        assert story.report("a", number, now) == [f"finish {number} complete for {number}"]


def test_a_snapshot_is_not_overtaken_and_a_pause_follows_a_long_one() -> None:
    story = Story("a", timing=Timing(period_seconds=1.0, give_up_seconds=9.0))
    assert story.tell(story.initiator.ticked(0.0)) == ["begin 1 of a"]
    assert story.tell(story.initiator.ticked(1.0)) == []
    story.initiator.evaluating()
    assert story.tell(story.initiator.asked(1, 1.1)) == ["begin 2 of a"], "but by a question"
    assert story.report("a", 2, 1.4) == ["finish 1 complete", "finish 2 complete for 1"]
    assert story.tell(story.initiator.ticked(2.2)) == [], "it is being judged"
    story.initiator.evaluated(2.5)
    assert story.tell(story.initiator.ticked(3.0)) == []
    assert story.initiator.due(3.0) == 3.5
    assert story.tell(story.initiator.ticked(3.5)) == ["begin 3 of a"]


def test_only_a_tick_makes_a_member_late() -> None:
    story = Story("a", "b")
    assert story.tell(story.initiator.asked(1, 0.0)) == ["begin 1 of a b"]
    assert story.report("a", 1, 2.5) == [], "what is read late may have come in time"
    assert story.report("b", 1, 2.6) == ["finish 1 complete for 1"]
