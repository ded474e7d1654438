"""When a recorder had to forget something, no answer that may depend on it is TRUE, and none about sums is FALSE."""

from __future__ import annotations

import pytest

from detector.core.predicate import Predicate
from detector.core.protocol.assembler import Assembled, PendingSnapshot
from detector.core.registry import ask
from detector.predicates.deadlock import Deadlock
from detector.predicates.quiescence import Quiescence
from detector.predicates.termination import Termination
from detector.predicates.token import TokenDuplicated, TokenLost
from stilltrue.model import CallNumber, Holds, ProcessId, ProcessName, SnapshotId
from stilltrue.protocol.books.ledger import ChannelRecord
from stilltrue.protocol.recorder import Bounds, Recorder
from stilltrue.protocol.stamp import Stamp

COUNTING: list[Predicate] = [Termination(), Quiescence(), TokenLost(expected=1), TokenDuplicated(expected=1)]


class Pair:
    """A caller and a server, both reactive."""

    def __init__(self, bounds: Bounds) -> None:
        self.ids = [ProcessId(service="s", instance=ProcessName(name), incarnation=1) for name in ("a", "b")]
        self.a, self.b = (Recorder(process=one, reactive=True, bounds=bounds) for one in self.ids)
        self.a.fact({"token": 1})
        self.b.fact({"token": 0})
        self.channel = ChannelRecord("b:1")

    def fails(self, now: float = 0.0) -> Stamp:
        made, stamp = self.a.sent(method="/s/Do", channel=self.channel, now=now)
        self.a.settled(made, None, now, in_doubt=True)
        return stamp

    def assembled(self, now: float = 1.0) -> Assembled:
        members = {one.instance: one for one in self.ids}
        pending = PendingSnapshot(snapshot=SnapshotId(1), members=members, begun=now, begun_by="ask")
        for recorder in (self.a, self.b):
            report = recorder.marked(SnapshotId(1), now)
            assert report is not None
            pending.offer(report)
        return pending.assembled(now)

    def answers(self, now: float = 1.0) -> dict[str, Holds]:
        snapshot = self.assembled(now).snapshot
        return {predicate.name: ask(predicate, snapshot).holds for predicate in (*COUNTING, Deadlock())}


def test_a_snapshot_with_nothing_forgotten_has_an_answer() -> None:
    answers = Pair(Bounds()).answers()
    assert answers["termination"] is Holds.TRUE
    assert answers["token-lost"] is Holds.FALSE


@pytest.mark.parametrize("name", [predicate.name for predicate in COUNTING])
def test_a_doubt_dropped_for_space_makes_the_answer_undetermined(name: str) -> None:
    pair = Pair(Bounds(doubts_max=1))
    pair.fails()
    pair.fails()
    pair.a.doubts_settled([CallNumber(2)])  # no process knows the first one any longer
    assert pair.answers()[name] is Holds.UNDETERMINED


def test_the_verdict_names_the_members_that_had_to_forget() -> None:
    pair = Pair(Bounds(doubts_max=1))
    pair.fails()
    pair.fails()
    pair.a.doubts_settled([CallNumber(2)])
    snapshot = pair.assembled().snapshot
    assert snapshot.forgetful == ("a",)
    verdict = ask(Termination(), snapshot)
    assert verdict.witness.text == "a reached a bound and had to forget calls: the answer depends on them"


def test_a_dropped_doubt_is_forgotten_for_good_when_its_time_has_passed() -> None:
    pair = Pair(Bounds(doubts_max=1, doubt_seconds_max=30.0))
    pair.fails()
    pair.fails()
    assert pair.answers(now=31.0)["termination"] is Holds.TRUE


def test_a_forgotten_answer_leaves_its_facts_unknown() -> None:
    pair = Pair(Bounds(answered_max=1))
    for _ in range(2):  # both replies are in transit
        _, stamp = pair.a.sent(method="/s/Do", channel=pair.channel, now=0.0)
        served, _ = pair.b.arrived(stamp, method="/s/Do", now=0.0)
        pair.b.started(served)
        pair.b.replied(served)
    assert pair.assembled().snapshot.forgetful == ("b",)


@pytest.mark.parametrize(("there", "lost"), [(0, Holds.UNDETERMINED), (1, Holds.FALSE)])
def test_a_queued_calls_facts_are_unknown_once_its_callers_doubt_has_expired(there: int, lost: Holds) -> None:
    pair = Pair(Bounds(doubt_seconds_max=30.0))
    stamp = pair.fails()
    pair.b.arrived(stamp, method="/s/Do", now=0.0, pool="full")
    pair.a.fact({"token": there})
    answers = pair.answers(now=31.0)
    assert (answers["token-lost"], answers["token-duplicated"]) == (lost, Holds.UNDETERMINED)
    assert answers["termination"] is Holds.FALSE


def test_deadlock_does_not_depend_on_forgotten_calls() -> None:
    pair = Pair(Bounds(doubts_max=1))
    pair.fails()
    pair.fails()
    assert pair.answers()["deadlock"] is Holds.FALSE


class Counts:
    """A third-party predicate that does not handle forgetting."""

    name = "counts"

    def evaluate(self, snapshot: object) -> object:
        raise AssertionError("it is not asked")


def test_a_predicate_that_does_not_treat_forgotten_calls_is_not_asked() -> None:
    pair = Pair(Bounds(doubts_max=1))
    pair.fails()
    pair.fails()
    assert ask(Counts(), pair.assembled().snapshot).holds is Holds.UNDETERMINED  # type: ignore[arg-type]
