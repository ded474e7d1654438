"""The recorder's bounds: reports say when something was forgotten for space."""

from __future__ import annotations

from stilltrue.model import Activity, PartyName, ProcessId, ProcessName
from stilltrue.protocol.books.ledger import SERVERS_PER_CHANNEL_MAX, ChannelRecord
from stilltrue.protocol.recorder import Bounds
from stilltrue.protocol.report import CallTarget
from tests.client.recorders import CHANNEL, cut, recorder, stamp


def test_rule_3_answers_forgotten_for_space_are_reported_as_forgotten() -> None:
    a = recorder(bounds=Bounds(answered_max=2))
    for number in (1, 2, 3):
        served, _ = a.arrived(stamp(number), method="/s/M", now=0.0)
        a.replied(served)
    (seen,) = cut(a, 1).seen
    assert (seen.numbers, seen.forgotten) == ((2, 3), 1)


def test_parties_carry_the_current_name_of_their_process() -> None:
    a = recorder()
    assert [a.arrived(None, method="/s/M", now=0.0)[0].party for _ in range(2)] == ["a/M#1", "a/M#2"]
    a.renamed(ProcessId(service="s", instance=ProcessName("b"), incarnation=9))
    assert a.arrived(None, method="/s/M", now=0.0)[0].party == "b/M#3"
    assert a.arrived(None, method="/s/M", now=0.0, label="GET:m")[0].party == "b/GET:m#4"
    assert a.arrived(None, method="/s/M", now=0.0)[0].party == "b/M#5"


def test_a_renamed_process_omits_earlier_calls_and_is_active_until_they_end() -> None:
    a = recorder()
    a.fact({"token": 1})
    made, _ = a.sent(method="/s/M", channel=CHANNEL, now=0.0, party=PartyName("a/x"), waiting=True)
    served, _ = a.arrived(stamp(), method="/s/M", now=0.0)
    a.started(served)
    a.waits(served.party, [CallTarget(number=made.number)], 0.0)
    a.holds(served.party, "a/lock")
    a.renamed(ProcessId(service="s", instance=ProcessName("b"), incarnation=9))
    report = cut(a, 1)
    assert (report.process.instance, report.made, report.served, report.waits, report.holds) == ("b", (), (), (), ())
    assert (report.facts, report.activity, report.next_number) == ({"token": 1}, Activity.ACTIVE, 2)
    a.settled(made, stamp(), 0.0)
    assert cut(a, 2).activity is Activity.ACTIVE
    a.replied(served)
    assert cut(a, 3).activity is Activity.IDLE
    _, sent = a.sent(method="/s/M", channel=CHANNEL, now=0.0)
    assert (sent.source, sent.incarnation, sent.number) == ("b", 9, 2)


def test_the_two_newest_incarnations_of_a_name_are_remembered() -> None:
    a = recorder()
    for run in (7, 3, 5):
        served, _ = a.arrived(stamp()._replace(incarnation=run), method="/s/M", now=0.0)
        a.replied(served)
    assert [seen.caller.incarnation for seen in cut(a, 1).seen] == [3, 5]


def test_doubts_dropped_for_space_are_reported_until_they_would_have_expired() -> None:
    a = recorder(bounds=Bounds(doubts_max=2, doubt_seconds_max=30.0))
    for at in range(4):
        made, _ = a.sent(method="/s/M", channel=CHANNEL, now=float(at))
        a.settled(made, None, float(at), in_doubt=True)
    report = cut(a, 1, now=4.0)
    assert ([call.number for call in report.made], report.lost) == ([3, 4], 2)
    assert cut(a, 2, now=30.5).lost == 2, "the last dropped call may still arrive"
    assert cut(a, 3, now=31.0).lost == 0


def test_a_caller_forgotten_for_space_is_reported() -> None:
    a = recorder(bounds=Bounds(callers_max=1))
    for source in ("b", "c"):
        a.arrived(stamp(source=source), method="/s/M", now=0.0)
    report = cut(a, 1)
    assert ([seen.caller.process for seen in report.seen], report.lost) == (["c"], 1)


def test_a_channel_with_more_servers_than_the_bound_has_strangers() -> None:
    channel = ChannelRecord("b")
    for number in range(SERVERS_PER_CHANNEL_MAX + 1):
        assert not channel.strangers
        channel.answered_by(ProcessName(f"b{number}"), 1)
    assert (len(channel.servers), channel.strangers) == (SERVERS_PER_CHANNEL_MAX, True)
    channel = ChannelRecord("b")
    channel.answered_by(ProcessName("b"), 1)
    channel.answered_by(ProcessName("b"), 2)
    assert (channel.servers, channel.strangers) == ({"b": 2}, False)


def test_the_highest_number_seen_is_not_the_last_one() -> None:
    a = recorder()
    a.arrived(stamp(5), method="/s/M", now=0.0)
    a.arrived(stamp(3), method="/s/M", now=0.0)
    assert [seen.highest for seen in cut(a, 1).seen] == [5]
