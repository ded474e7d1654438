"""The rules of the recorder, in order, as its reports show them."""

from __future__ import annotations

from stilltrue.model import Activity, CallNumber, PartyName, ProcessId, ProcessName, SnapshotId, WaitNumber
from stilltrue.protocol.books.ledger import ChannelRecord
from stilltrue.protocol.observation import Observation
from stilltrue.protocol.recorder import Bounds, Recorder
from stilltrue.protocol.report import OBSERVED_MIN, CallTarget, LocalWait, PartyTarget, Report, ResourceTarget
from stilltrue.protocol.requests.look import Look, LookRequest, Suspect
from stilltrue.protocol.stamp import Stamp, decode, encode, mark_of
from tests.client.recorders import CHANNEL, cut, recorder, stamp


def test_rule_1_every_message_carries_its_senders_current_colour() -> None:
    a = recorder()
    assert a.sent(method="/s/M", channel=CHANNEL, now=0.0)[1].colour == 0
    cut(a, 7)
    assert a.sent(method="/s/M", channel=CHANNEL, now=0.0)[1].colour == 7
    served, _ = a.arrived(stamp(), method="/s/M", now=0.0)
    reply = a.replied(served)
    assert reply is not None
    assert reply.colour == 7


def test_rule_1_a_reply_needs_no_stamp_if_it_tells_its_caller_nothing_new() -> None:
    a, b, channel = recorder("a"), recorder("b"), ChannelRecord("b:1")

    def exchange(*, failed: bool = False, cut_for: int = 0) -> Stamp | None:
        made, request = a.sent(method="/s/M", channel=channel, now=0.0)
        served, _ = b.arrived(decode(encode(request)), method="/s/M", now=0.0)
        if cut_for:
            cut(b, cut_for)
        reply = b.replied(served, failed=failed)
        a.settled(made, reply, 0.0)
        return reply

    assert exchange() is not None  # now a knows b
    assert exchange() is None
    assert channel.servers == {"b": 1}
    assert not channel.strangers
    assert exchange(failed=True) is not None
    reply = exchange(cut_for=5)
    assert reply is not None
    assert (reply.colour, a.colour) == (5, 5)
    assert exchange() is None


def test_rule_1_another_process_or_incarnation_behind_the_same_address_stamps_its_first_reply() -> None:
    a, channel = recorder("a"), ChannelRecord("b:1")
    again = Recorder(process=ProcessId(service="b", instance=ProcessName("b"), incarnation=2))
    replies = []
    for server in (recorder("b"), recorder("c"), again):
        made, request = a.sent(method="/s/M", channel=channel, now=0.0)
        reply = server.replied(server.arrived(request, method="/s/M", now=0.0)[0])
        a.settled(made, reply, 0.0)
        replies.append(reply)
    assert None not in replies
    assert channel.servers == {"b": 2, "c": 1}


def test_rule_1_every_reply_to_a_hedged_call_is_stamped() -> None:
    a, b, channel = recorder("a"), recorder("b"), ChannelRecord("b:1", copies_max=2, hedged=True)
    for _ in range(2):
        made, request = a.sent(method="/s/M", channel=channel, now=0.0)
        reply = b.replied(b.arrived(request, method="/s/M", now=0.0)[0])
        a.settled(made, reply, 0.0)
        assert reply is not None


def test_a_request_names_the_servers_its_sender_knows_and_other_suffixes_are_ignored() -> None:
    one = stamp()._replace(known=mark_of(ProcessName("b"), 1))
    assert decode(encode(one)) == one
    assert decode(f"{encode(stamp())};{'0' * 32}") == stamp()
    assert decode(f"{encode(stamp())};~{'0' * 300}~") == stamp()
    assert decode(f"{encode(one)};{'0' * 32}") is None


def test_rule_2_a_message_of_a_newer_colour_makes_the_process_cut_before_it_is_handled() -> None:
    a = recorder()
    cut(a, 3)
    _, report = a.arrived(stamp(colour=5), method="/s/M", now=0.0)
    assert report is not None
    assert (report.after, report.snapshot, report.served, report.seen) == (3, 5, (), ())


def test_rule_2_a_reply_of_a_newer_colour_forces_a_cut_in_which_its_call_is_outstanding() -> None:
    a = recorder()
    made, _ = a.sent(method="/s/M", channel=CHANNEL, now=0.0, party=PartyName("a/x"), waiting=True)
    report = a.settled(made, stamp(colour=4), 0.0)
    assert report is not None
    assert [call.number for call in report.made] == [1]
    assert report.waits[0].among == (CallTarget(number=CallNumber(1)),)
    assert cut(a, 5).made == ()


def test_rule_2_a_marker_that_a_cut_already_serves_does_nothing() -> None:
    a = recorder()
    cut(a, 5)
    assert a.marked(SnapshotId(5), 0.0) is None
    assert a.marked(SnapshotId(4), 0.0) is None
    assert a.colour == 5


def test_a_forged_colour_does_not_use_up_snapshot_numbers() -> None:
    a = recorder(bounds=Bounds(colour_jump_max=10))
    _, report = a.arrived(stamp(colour=11), method="/s/M", now=0.0)
    assert (report, a.colour, a.refused, a.lost) == (None, 0, 1, 0)


def test_rule_3_the_floor_is_the_lowest_call_still_outstanding() -> None:
    a = recorder()
    first, one = a.sent(method="/s/M", channel=CHANNEL, now=0.0)
    _, two = a.sent(method="/s/M", channel=CHANNEL, now=0.0)
    assert (one.floor, two.floor) == (1, 1)
    a.settled(first, stamp(), 0.0)
    assert a.sent(method="/s/M", channel=CHANNEL, now=0.0)[1].floor == 2


def test_rule_3_the_server_forgets_calls_below_the_floor_and_remembers_the_rest() -> None:
    a = recorder()
    for number in (1, 2, 3):
        served, _ = a.arrived(stamp(number), method="/s/M", now=0.0)
        a.replied(served)
    a.arrived(stamp(4, floor=3), method="/s/M", now=0.0)
    (seen,) = cut(a, 1).seen
    assert seen.numbers == (3,)
    assert (seen.highest, seen.forgotten) == (4, 0)


def test_rule_4_a_call_is_queued_then_served_by_a_party_then_answered() -> None:
    a = recorder()
    a.pool_opened("workers", 1)
    served, _ = a.arrived(stamp(9, floor=9), method="/s/Place", now=0.0, pool="workers")
    assert [(call.serving, call.pool) for call in cut(a, 1).served] == [(False, "workers")]
    a.started(served)
    (serving,) = cut(a, 2).served
    assert (serving.party, serving.serving, serving.number) == ("a/Place#1", True, 9)
    a.replied(served)
    report = cut(a, 3)
    assert report.served == ()
    assert report.seen[0].numbers == (9,)


def test_rule_5_the_report_says_which_number_comes_next() -> None:
    a = recorder()
    a.sent(method="/s/M", channel=CHANNEL, now=0.0)
    assert cut(a, 1).next_number == 2


def test_rule_8_a_failed_call_is_in_doubt_for_a_stated_time_and_no_longer_a_wait() -> None:
    a = recorder(bounds=Bounds(doubt_seconds_max=30.0))
    made, _ = a.sent(method="/s/M", channel=CHANNEL, now=0.0, party=PartyName("a/x"), waiting=True)
    a.settled(made, None, 10.0, in_doubt=True)
    report = cut(a, 1, now=39.0)
    assert ([call.doubtful for call in report.made], report.waits) == ([True], ())
    assert a.sent(method="/s/M", channel=CHANNEL, now=39.0)[1].floor == 1, "its number must be remembered by the server"
    assert [call.doubtful for call in cut(a, 2, now=40.0).made] == [False]


def test_rule_8_a_doubt_ends_when_a_snapshot_shows_that_a_server_has_answered() -> None:
    a = recorder()
    for _ in range(3):
        made, _ = a.sent(method="/s/M", channel=CHANNEL, now=0.0)
        a.settled(made, None, 0.0, in_doubt=True)
    a.doubts_settled([CallNumber(1), CallNumber(3), CallNumber(77)])
    assert [call.number for call in cut(a, 1).made] == [2]
    assert a.sent(method="/s/M", channel=CHANNEL, now=0.0)[1].floor == 2
    a.doubts_settled([CallNumber(2)])
    assert a.sent(method="/s/M", channel=CHANNEL, now=0.0)[1].floor == 4


def test_settling_a_call_twice_does_nothing() -> None:
    a = recorder()
    made, _ = a.sent(method="/s/M", channel=CHANNEL, now=0.0)
    a.settled(made, None, 0.0)
    a.settled(made, None, 0.0, in_doubt=True)
    assert cut(a, 1).made == ()


def test_a_process_is_active_until_it_is_known_to_be_idle() -> None:
    assert cut(recorder(reactive=False), 1).activity is Activity.ACTIVE
    a = recorder(reactive=True)
    assert cut(a, 1).activity is Activity.IDLE
    served, _ = a.arrived(stamp(), method="/s/M", now=0.0)
    a.started(served)
    assert cut(a, 2).activity is Activity.ACTIVE
    a.sent(method="/s/N", channel=CHANNEL, now=0.0, party=served.party, waiting=True)
    assert cut(a, 3).activity is Activity.BLOCKED
    a.sent(method="/s/N", channel=CHANNEL, now=0.0)
    assert cut(a, 4).activity is Activity.ACTIVE, "it is unknown who made that call"


def test_a_party_observed_to_wait_for_one_that_does_not_wait_leaves_the_process_idle() -> None:
    def seen(*pairs: tuple[str, str]) -> Activity:
        waits = tuple(
            LocalWait(
                waiter=PartyName(f"a/{waiter}"),
                number=WaitNumber(OBSERVED_MIN + index),
                among=(PartyTarget(party=PartyName(f"a/{target}")),),
            )
            for index, (waiter, target) in enumerate(pairs)
        )
        return cut(Recorder(process=recorder().process, reactive=True, observe=lambda _: Observation(waits=waits)), 1).activity

    assert seen(("main", "consumer")) is Activity.IDLE
    assert seen(("main", "supervisor"), ("supervisor", "consumer")) is Activity.IDLE
    assert seen(("one", "two"), ("two", "one")) is Activity.BLOCKED
    assert seen(("main", "consumer"), ("main", "one"), ("one", "two"), ("two", "one")) is Activity.BLOCKED


def test_a_party_observed_to_wait_for_a_message_or_the_end_of_another_process_leaves_the_process_idle() -> None:
    def seen(*parked: int) -> Activity:
        among = (ResourceTarget(resource="work of process 7"),)
        waits = [
            LocalWait(waiter=PartyName(f"a/{number}"), number=WaitNumber(OBSERVED_MIN + number), among=among)
            for number in (1, 2)
        ]
        joins = LocalWait(
            waiter=PartyName("a/3"), number=WaitNumber(OBSERVED_MIN + 3), among=(PartyTarget(party=PartyName("a/1")),)
        )
        numbers = frozenset(WaitNumber(OBSERVED_MIN + number) for number in parked)
        observation = Observation(waits=(*waits, joins), parked=numbers)
        return cut(Recorder(process=recorder().process, reactive=True, observe=lambda _: observation), 1).activity

    assert seen(1, 2) is Activity.IDLE
    assert seen(1) is seen(2) is seen() is Activity.BLOCKED


def test_a_wait_lasts_until_it_ends_and_ending_it_twice_does_nothing() -> None:
    a = recorder()
    number = a.waits(PartyName("a/x"), [CallTarget(number=CallNumber(1))], 0.0)
    assert [wait.number for wait in cut(a, 1).waits] == [number]
    a.resumes(number)
    a.resumes(number)
    assert cut(a, 2).waits == ()


def test_a_stamp_is_parsed_back_and_other_text_is_rejected() -> None:
    one = stamp(12, colour=5, floor=3)
    assert decode(encode(one)) == one
    for text in ("", "a", "a;1;2;3", "a;1;2;3;x", ";1;2;3;4", "a;-1;2;3;4", "a;1;2;3;99999999999999999999", b"\xff;1;2;3;4"):
        assert decode(text) is None


def look(of: Recorder, report: Report) -> Look:
    waiters = dict.fromkeys(wait.waiter for wait in report.waits)
    suspects = [Suspect(party=one, waits=tuple(w.number for w in report.waits if w.waiter == one)) for one in waiters]
    return of.look(LookRequest(snapshot=report.snapshot, suspects=tuple(suspects)), 2.0)


def test_rule_10_a_party_still_in_the_very_same_waits_is_unchanged() -> None:
    a = recorder()
    a.sent(method="/s/M", channel=CHANNEL, now=0.0, party=PartyName("a/x"), waiting=True, deadline=9.0)
    a.waits(PartyName("a/x"), [CallTarget(number=CallNumber(1))], 0.0, deadline=7.0)
    report = cut(a, 1)
    (seen,) = look(a, report).parties
    assert (seen.unchanged, seen.deadline) == (True, 7.0)
    assert look(a, report).happenings == report.happenings


class Ending:
    """A served call's context that reports when the caller is gone."""

    def __init__(self) -> None:
        self.over = False

    def has_ended(self) -> bool:
        return self.over


def test_a_caller_that_left_is_noticed_at_the_cut_as_one_event() -> None:
    a, context = recorder(), Ending()
    served, _ = a.arrived(stamp(), method="/s/M", now=0.0)
    a.started(served, context=context)
    before = cut(a, 1)
    assert [call.hung_up for call in before.served] == [False]
    context.over = True
    gone, again = cut(a, 2), cut(a, 3)
    assert [call.hung_up for call in (*gone.served, *again.served)] == [True, True]
    assert (gone.happenings, again.happenings) == (before.happenings + 1, before.happenings + 1)


def test_rule_10_a_look_checks_for_callers_that_left_since_the_cut() -> None:
    a, context = recorder(), Ending()
    served, _ = a.arrived(stamp(), method="/s/M", now=0.0)
    a.started(served, context=context)
    before = cut(a, 1)
    context.over = True
    assert a.look(LookRequest(snapshot=SnapshotId(1), suspects=()), 0.0).happenings == before.happenings + 1


def test_an_answered_call_is_not_checked_and_keeps_no_reference_to_its_shell() -> None:
    a, context = recorder(), Ending()
    served, _ = a.arrived(stamp(), method="/s/M", now=0.0)
    a.started(served, context=context)
    a.replied(served)
    context.over = True
    assert served.context is None
    assert cut(a, 1).served == ()


def test_rule_10_a_wait_that_ended_and_began_again_has_changed() -> None:
    a = recorder()
    made, _ = a.sent(method="/s/M", channel=CHANNEL, now=0.0, party=PartyName("a/x"), waiting=True)
    report = cut(a, 1)
    a.goes_on(made)
    a.awaits(made, 1.5)
    seen = look(a, report)
    assert [party.unchanged for party in seen.parties] == [False]
    assert seen.happenings > report.happenings


def test_rule_10_the_message_that_forces_a_cut_has_happened_after_it() -> None:
    a = recorder()
    _, report = a.arrived(stamp(colour=5), method="/s/M", now=0.0)
    assert report is not None
    assert look(a, report).happenings == report.happenings + 1
    made, _ = a.sent(method="/s/M", channel=CHANNEL, now=0.0)
    report = a.settled(made, stamp(colour=6), 0.0)
    assert report is not None
    assert look(a, report).happenings == report.happenings + 1


def test_an_answered_hedged_call_is_in_doubt_since_other_copies_may_be_in_transit() -> None:
    a = recorder()
    made, _ = a.sent(method="/s/M", channel=ChannelRecord("b", copies_max=2, hedged=True), now=0.0)
    a.settled(made, stamp(), 0.0)
    assert [(call.number, call.doubtful) for call in cut(a, 1).made] == [(1, True)]


def test_a_process_whose_thread_waits_is_blocked_and_not_idle() -> None:
    a = recorder(reactive=True)
    number = a.waits(PartyName("a/x"), [ResourceTarget(resource="a/lock")], 0.0)
    assert cut(a, 1).activity is Activity.BLOCKED
    a.resumes(number)
    assert cut(a, 2).activity is Activity.IDLE


def test_wait_numbers_are_unique() -> None:
    a = recorder()
    made, _ = a.sent(method="/s/M", channel=CHANNEL, now=0.0, party=PartyName("a/x"), waiting=True)
    other, _ = a.sent(method="/s/M", channel=CHANNEL, now=0.0, party=PartyName("a/y"))
    a.awaits(other, 0.0)
    a.waits(PartyName("a/z"), [CallTarget(number=made.number)], 0.0)
    first = [wait.number for wait in cut(a, 1).waits]
    a.goes_on(other)
    a.awaits(other, 0.0)
    assert len({*first, *(wait.number for wait in cut(a, 2).waits)}) == 4


def test_a_channel_remembers_the_incarnations_that_answered() -> None:
    a, channel = recorder(), ChannelRecord("b:1")
    made, _ = a.sent(method="/s/M", channel=channel, now=0.0)
    a.settled(made, stamp()._replace(incarnation=7), 0.0)
    a.sent(method="/s/M", channel=channel, now=0.0)
    assert cut(a, 1).made[0].servers == {"b": 7}


def test_a_call_from_before_a_fork_settles_nothing_in_the_child() -> None:
    parent, child = recorder(), recorder()
    theirs, _ = parent.sent(method="/s/M", channel=CHANNEL, now=0.0)
    child.sent(method="/s/M", channel=CHANNEL, now=0.0)
    child.settled(theirs, stamp(), 0.0)
    assert [call.number for call in cut(child, 1).made] == [1]


def test_busy_blocks_are_counted_per_party() -> None:
    a, one, two = recorder(reactive=False), PartyName("a/1"), PartyName("a/2")
    a.active(one)
    a.active(two)
    a.idle(one)
    assert cut(a, 1).activity is Activity.ACTIVE, "the other is still active"
    a.idle(two)
    assert cut(a, 2).activity is Activity.IDLE
    a.busy()
    a.busy()
    a.done()
    assert cut(a, 3).activity is Activity.ACTIVE
    a.done()
    assert cut(a, 4).activity is Activity.IDLE


def test_a_k_of_n_wait_ends_by_itself_if_its_way_out_cannot_be_expressed() -> None:
    seen = Observation(ways_out={PartyName("a/x"): (PartyName("a/y"),)})
    a = Recorder(process=recorder().process, observe=lambda _: seen)
    for needs in (1, 2):
        a.waits(PartyName("a/x"), [CallTarget(number=CallNumber(1)), CallTarget(number=CallNumber(2))], 0.0, needs=needs)
    one, two = cut(a, 1, now=5.0).waits
    assert (one.among[-1], one.deadline) == (PartyTarget(party=PartyName("a/y")), None)
    assert (len(two.among), two.deadline) == (2, 5.0)


def test_a_queued_call_ends_at_its_earliest_known_deadline() -> None:
    a = recorder()
    served, _ = a.arrived(stamp(), method="/s/M", now=0.0)
    a.queued(served, "", 5.0)
    assert not served.deadline_known
    a.queued(served, "workers", 9.0, deadline_known=True)
    assert (served.pool, served.deadline, served.deadline_known) == ("workers", 5.0, True)
    a.queued(served, "workers", 3.0, deadline_known=True)
    assert served.deadline == 3.0
