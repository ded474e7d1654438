"""Resolves local states to waits between parties: fan-outs, deadlines of awaited calls, auxiliary parties."""

from __future__ import annotations

from dataclasses import replace

import pytest

from detector.core.snapshot import Snapshot
from detector.core.waits.resolution import Resolution
from detector.graph.columns import WaitColumns
from detector.predicates.deadlock import Deadlock
from stilltrue.model import PartyName, ProcessId, ProcessName, SnapshotId, Wait
from stilltrue.protocol.books.ledger import ChannelRecord, ClientCall, ServerCall
from stilltrue.protocol.recorder import Recorder
from stilltrue.protocol.report import (
    CallerTarget,
    CallTarget,
    Hold,
    PartyTarget,
    Report,
    ResourceTarget,
    Target,
    next_request_of,
)
from stilltrue.protocol.step import Step

A, B = ProcessName("a"), ProcessName("b")


class Pair:
    """Process a makes several concurrent calls to process b, each served at once."""

    def __init__(self, copies_max: int = 1) -> None:
        self.a = Recorder(process=ProcessId(service="a", instance=A, incarnation=1), reactive=True)
        self.b = Recorder(process=ProcessId(service="b", instance=B, incarnation=1), reactive=True)
        self.channel = ChannelRecord("b", copies_max=copies_max)
        self.waiter = PartyName("a/task")

    def call(self, deadline: float | None = None, *, known_to_server: float | None = None, method: str = "/b/Do") -> ClientCall:
        made, stamp = self.a.sent(method="/b/Do", channel=self.channel, now=0.0, party=self.waiter, deadline=deadline)
        served, _ = self.b.arrived(stamp, method=method, now=0.0)
        self.b.started(served, deadline=known_to_server)
        return made

    def waits(self, *calls: ClientCall, needs: int) -> None:
        self.a.waits(self.waiter, [CallTarget(number=call.number) for call in calls], 0.0, needs=needs)

    def resolved(self) -> list[Wait]:
        return list(Resolution({A: _report(self.a), B: _report(self.b)}, []).waits())


def _report(recorder: Recorder, snapshot: int = 1) -> Report:
    report = recorder.marked(SnapshotId(snapshot), 1.0)
    assert report is not None
    return report


def said(waits: list[Wait]) -> list[tuple[str, int, tuple[str, ...], float | None]]:
    return [(wait.waiter, wait.needs, wait.among, wait.deadline) for wait in waits]


def test_one_of_two_calls_ends_by_itself_at_the_first_deadline() -> None:
    pair = Pair()
    pair.waits(pair.call(deadline=5.0), pair.call(), needs=1)
    assert said(pair.resolved()) == [("a/task", 1, ("b/Do#1", "b/Do#2"), 5.0)]


def test_a_deadline_that_only_the_server_knows_ends_the_wait() -> None:
    """An interceptor below the caller's wrapper, or a service config, has set the deadline."""
    pair = Pair()
    pair.waits(pair.call(known_to_server=7.0), needs=1)
    assert said(pair.resolved()) == [("a/task", 1, ("b/Do#1",), 7.0)]
    pair = Pair()
    pair.waits(pair.call(deadline=5.0, known_to_server=7.0), needs=1)
    assert said(pair.resolved()) == [("a/task", 1, ("b/Do#1",), 5.0)]


def test_the_text_names_the_call_once_and_then_the_parties_that_may_end_the_wait() -> None:
    """A sibling's failure cancels the task that awaits the call."""
    pair = Pair()
    call = pair.call()
    targets: list[Target] = [CallTarget(number=call.number), PartyTarget(party=PartyName("a/task:parent"))]
    pair.a.waits(pair.waiter, targets, 0.0, what="the reply to /b/Do")
    (wait,) = pair.resolved()
    assert (wait.what, wait.among) == ("the reply of b to /b/Do or an action of a/task:parent", ("b/Do#1", "a/task:parent"))


def test_the_text_of_a_declared_wait_names_the_resource_once_and_then_the_parties_that_may_end_the_wait() -> None:
    pair = Pair()
    pair.b.holds(PartyName("b/task:writer"), "ledger:bob", 1)
    targets: list[Target] = [ResourceTarget(resource="ledger:bob"), PartyTarget(party=PartyName("a/task:parent"))]
    pair.a.waits(pair.waiter, targets, 0.0, what="the writer of bob")
    (wait,) = pair.resolved()
    assert wait.what == "the writer of bob (ledger:bob) or an action of a/task:parent"
    assert wait.among == ("b/task:writer", "a/task:parent")


def test_the_text_of_a_wait_for_a_resource_begins_with_the_waiters_words() -> None:
    """A file's path says more to people than the numbers by which all processes of the machine know it."""
    pair = Pair()
    pair.b.holds(PartyName("b/main"), "file lock 8:1:17", 1)
    pair.a.waits(pair.waiter, [ResourceTarget(resource="file lock 8:1:17")], 0.0, what="the lock of the file stock.lock")
    pair.a.waits(PartyName("a/2"), [ResourceTarget(resource="file lock 8:1:17")], 0.0, what="file lock 8:1:17")
    assert [wait.what for wait in pair.resolved()] == ["the lock of the file stock.lock (file lock 8:1:17)", "file lock 8:1:17"]


def test_a_wait_for_several_resources_names_each_of_them_only() -> None:
    pair = Pair()
    for row in ("row:1", "row:2"):
        pair.b.holds(PartyName("b/main"), row, 1)
    pair.a.waits(pair.waiter, [ResourceTarget(resource="row:1"), ResourceTarget(resource="row:2")], 0.0, what="a row")
    assert [wait.what for wait in pair.resolved()] == ["row:1 or row:2"]


def test_the_text_does_not_name_the_holder_again_as_a_party_that_may_end_the_wait_besides() -> None:
    pair = Pair()
    pair.b.holds(PartyName("b/task:writer"), "b/lock:order", 1)
    targets: list[Target] = [ResourceTarget(resource="b/lock:order"), PartyTarget(party=PartyName("b/task:writer"))]
    pair.a.waits(pair.waiter, targets, 0.0, what="the lock")
    (wait,) = pair.resolved()
    assert (wait.what, set(wait.among)) == ("the lock (b/lock:order)", {"b/task:writer"})


def test_a_stamp_on_a_call_of_another_method_was_passed_on_and_is_not_the_callers() -> None:
    pair = Pair()
    pair.waits(pair.call(method="/b/Other"), needs=1)
    assert said(pair.resolved()) == []


def test_all_of_two_calls_are_two_waits_and_only_one_ends_by_itself() -> None:
    pair = Pair()
    pair.waits(pair.call(deadline=5.0), pair.call(), needs=2)
    assert said(pair.resolved()) == [("a/task", 1, ("b/Do#1",), 5.0), ("a/task", 1, ("b/Do#2",), None)]


def test_two_of_three_calls_with_one_deadline_become_one_of_two_after_it() -> None:
    pair = Pair()
    pair.waits(pair.call(deadline=5.0), pair.call(), pair.call(), needs=2)
    assert said(pair.resolved()) == [
        ("a/task", 2, ("b/Do#1", "b/Do#2", "b/Do#3"), 5.0),
        ("a/task", 1, ("b/Do#2", "b/Do#3"), None),
    ]


def test_two_of_three_calls_with_two_deadlines_end_at_the_second() -> None:
    pair = Pair()
    pair.waits(pair.call(deadline=7.0), pair.call(deadline=5.0), pair.call(), needs=2)
    assert said(pair.resolved()) == [("a/task", 2, ("b/Do#1", "b/Do#2", "b/Do#3"), 7.0)]


@pytest.mark.parametrize("needs", [1, 2])
def test_a_completed_call_counts_towards_needs(needs: int) -> None:
    pair = Pair()
    first, second, third = pair.call(), pair.call(), pair.call()
    pair.waits(first, second, third, needs=needs)
    pair.a.settled(first, None, 0.5)
    expected = [] if needs == 1 else [("a/task", 1, ("b/Do#2", "b/Do#3"), None)]
    assert said(pair.resolved()) == expected


def test_two_fan_outs_of_one_party_have_distinct_stand_ins() -> None:
    pair = Pair(copies_max=2)
    calls = [pair.call() for _ in range(6)]
    for made in calls[:3]:
        _serve_twice(pair, made)
    pair.waits(*calls[:3], needs=2)
    for made in calls[3:]:
        _serve_twice(pair, made)
    pair.waits(*calls[3:], needs=2)
    waits = pair.resolved()
    assert len(waits) == 8
    assert len({wait.waiter for wait in waits}) == 7


def test_a_call_claimed_by_two_servers_is_at_one_of_them() -> None:
    """A stamp is forged, or a mesh mirrors requests: each server may be the true one, with its own deadline."""
    pair = Pair()
    made = pair.call()
    forged, _ = pair.b.arrived(pair.a._stamp(made.number), method="/b/Do", now=0.0)
    pair.b.started(forged, deadline=9.0)
    pair.waits(made, needs=1)
    waits = pair.resolved()
    assert said(waits) == [
        ("a/task", 1, ("b/Do#1", "b/Do#2"), 9.0),
        ("a/task", 1, ("b/Do#1",), None),
        ("a/task", 1, ("b/Do#2",), 9.0),
    ]
    assert [wait.uncoloured for wait in waits] == [False, True, True]


def test_a_call_that_may_be_retried_waits_for_any_of_its_servers() -> None:
    pair = Pair(copies_max=2)
    made = pair.call()
    _serve_twice(pair, made)
    pair.waits(made, needs=1)
    assert said(pair.resolved()) == [("a/task", 1, ("b/Do#1", "b/Do#2"), None)]


def _serve_twice(pair: Pair, made: ClientCall) -> None:
    """A retry of the call arrives under the same number."""
    stamp = pair.a._stamp(made.number)
    served, _ = pair.b.arrived(stamp, method="/b/Do", now=0.0)
    pair.b.started(served)


def test_a_fact_is_unknown_if_its_request_may_be_at_a_missing_member() -> None:
    pair = Pair()
    made, stamp = pair.a.sent(method="/b/Do", channel=pair.channel, now=0.0)
    served, _ = pair.b.arrived(stamp, method="/b/Do", now=0.0)
    pair.a.settled(made, pair.b.replied(served), 0.0)
    step = Step()
    step.carries(token=1)
    pair.a.sent(method="/b/Do", channel=pair.channel, now=0.0, step=step)
    with_b, without_b = {A: _report(pair.a), B: _report(pair.b)}, [pair.b.process]
    (known,) = Resolution(with_b, []).in_transit()
    (unknown,) = Resolution({A: with_b[A]}, without_b).in_transit()
    assert (known.facts, unknown.facts) == ({"token": 1}, {"token": "unknown"})


def _carried(pair: Pair) -> tuple[ClientCall, ServerCall]:
    """A call that carries a token and has arrived."""
    step = Step()
    step.carries(token=1)
    made, stamp = pair.a.sent(method="/b/Do", channel=pair.channel, now=0.0, step=step)
    served, _ = pair.b.arrived(stamp, method="/b/Do", now=0.0)
    pair.a.closed(step, 0.0)
    return made, served


def test_the_facts_of_a_failed_call_are_unknown_until_its_server_takes_them() -> None:
    """The caller may have set them again, while the request is in a queue or before ``takes()``."""
    pair = Pair()
    made, served = _carried(pair)
    pair.a.settled(made, None, 0.0, in_doubt=True)
    (queued,) = Resolution({A: _report(pair.a), B: _report(pair.b)}, []).in_transit()
    assert queued.facts == {"token": "unknown"}
    served.taken = True
    assert list(Resolution({A: _report(pair.a, 2), B: _report(pair.b, 2)}, []).in_transit()) == []


def test_the_facts_of_a_cancelled_call_are_its_servers_once_taken() -> None:
    """The handler goes on after its caller has gone; a ring whose calls are dropped would never know where its token is."""
    pair = Pair()
    made, served = _carried(pair)
    pair.b.started(served)
    pair.b.hung_up(served)
    pair.a.settled(made, None, 0.0, in_doubt=True)
    (before,) = Resolution({A: _report(pair.a), B: _report(pair.b)}, []).in_transit()
    assert before.facts == {"token": "unknown"}
    served.taken = True
    assert list(Resolution({A: _report(pair.a, 2), B: _report(pair.b, 2)}, []).in_transit()) == []


def test_the_facts_of_a_retried_call_may_be_at_another_server_than_the_one_that_took_them() -> None:
    pair = Pair(copies_max=2)
    made, served = _carried(pair)
    pair.b.started(served)
    served.taken = True
    pair.b.hung_up(served)
    pair.a.settled(made, None, 0.0, in_doubt=True)
    (other,) = Resolution({A: _report(pair.a), B: _report(pair.b)}, []).in_transit()
    assert other.facts == {"token": "unknown"}


def test_the_facts_of_a_retry_are_unknown_once_an_earlier_attempt_took_them() -> None:
    pair = Pair(copies_max=2)
    made, served = _carried(pair)
    served.taken = True
    pair.b.replied(served, failed=True)
    _serve_twice(pair, made)
    (again,) = Resolution({A: _report(pair.a), B: _report(pair.b)}, []).in_transit()
    assert again.facts == {"token": "unknown"}


@pytest.mark.parametrize("taken", [True, False])
def test_a_refused_call_in_doubt_is_settled_only_if_its_facts_were_taken(taken: bool) -> None:
    pair = Pair()
    made, served = _carried(pair)
    served.taken = taken
    pair.b.replied(served, failed=True)
    pair.a.settled(made, None, 0.0, in_doubt=True)
    settled = Resolution({A: _report(pair.a), B: _report(pair.b)}, []).settled_doubts()
    assert settled == ({pair.a.process: (made.number,)} if taken else {})


def test_a_stand_in_for_a_set_is_in_no_verdict() -> None:
    """A wait for 2 of 3 sets of workers needs three auxiliary parties; people are shown the real parties."""
    names = [PartyName(f"s/w{index}") for index in range(6)]
    sets = [names[0:2], names[2:4], names[4:6]]
    stands = [PartyName(f"a/x~7.{index}") for index in (1, 2, 3)]
    waits = [Wait(waiter=stand, among=tuple(among)) for stand, among in zip(stands, sets, strict=True)]
    waits += [Wait(waiter=PartyName("a/x"), among=tuple(stands), needs=2)]
    waits += [Wait(waiter=name, among=(PartyName("a/x"),)) for name in names]
    verdict = Deadlock().evaluate(Snapshot(waits=WaitColumns.of(waits)))
    assert verdict.remainder == verdict.core == (PartyName("a/x"), *names)


def test_a_reader_waits_for_its_caller_unless_an_item_is_in_transit() -> None:
    pair, reader = Pair(), PartyName("b/Do#1")
    made = pair.call()
    pair.b.waits(reader, [CallerTarget(served=reader)], 0.0, uncoloured=True)
    reports = {A: _report(pair.a), B: _report(pair.b)}
    assert said(list(Resolution(reports, []).waits())) == [(reader, 1, ("a/task",), None)]
    pair.a.item_sent(made)
    sent = pair.a.marked(SnapshotId(2), 2.0)
    assert sent is not None
    assert said(list(Resolution({A: sent, B: reports[B]}, []).waits())) == []


def test_a_reader_waits_for_the_thread_that_feeds_its_stream_and_for_who_waits_for_the_call() -> None:
    """Whoever waits for the call may cancel it; if none does, it is unknown who may."""
    pair, reader, feeder = Pair(), PartyName("b/Do#1"), PartyName("a/thread:feeder")
    pair.waiter = None  # type: ignore[assignment]  # of no party
    made = pair.call()
    pair.b.waits(reader, [CallerTarget(served=reader)], 0.0, uncoloured=True)
    reports = {A: _report(pair.a), B: _report(pair.b)}
    assert said(list(Resolution(reports, []).waits())) == []
    fed = replace(reports[A], holds=(Hold(party=feeder, resource=next_request_of(A, made.number)),))
    assert said(list(Resolution({A: fed, B: reports[B]}, []).waits())) == []
    pair.a.waits(PartyName("a/thread:waiter"), [CallTarget(number=made.number)], 0.0)
    waited = pair.a.marked(SnapshotId(2), 2.0)
    assert waited is not None
    fed = replace(waited, holds=fed.holds)
    assert (reader, 1, (feeder, "a/thread:waiter"), None) in said(list(Resolution({A: fed, B: reports[B]}, []).waits()))
