"""The waits that a sidecar reports: when a call is awaited, by which caller, and the program's pool."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from detector.sidecar.attribution import TraceFilter, trace_of, trace_of_b3
from detector.sidecar.tracking.calls import InboundCall
from detector.sidecar.tracking.pool import GRACE_SECONDS
from detector.sidecar.tracking.program import SETTLING_SECONDS, STANDING_SECONDS, UNKNOWN_SECONDS
from stilltrue.model import ProcessName, SnapshotId
from stilltrue.protocol.requests.look import LookRequest, Suspect
from stilltrue.protocol.stamp import Stamp
from stilltrue.v1 import agent_pb2
from tests.sidecar.beside import Beside


def test_a_call_belongs_to_the_inbound_one_of_its_trace() -> None:
    beside = Beside()
    beside.comes("t1")
    beside.comes("t2")
    beside.calls("t2")
    assert beside.waits == {"orders/Place#2": (1, {1})}


def test_a_forwarded_party_identifies_the_caller_exactly() -> None:
    beside = Beside()
    first, second = beside.comes("t1"), beside.comes("t1")
    beside.calls("t1", party=first.party)
    assert beside.waits == {first.party: (1, {1})}
    beside.calls("t1", party=second.party)
    assert beside.waits == {first.party: (1, {1}), second.party: (1, {2})}


def test_a_request_id_identifies_the_caller_if_the_trace_does_not() -> None:
    beside = Beside()
    beside.comes("t1 r1")
    beside.comes("t1 r2")
    beside.calls("t1 r2")
    beside.calls("new r1")
    assert beside.waits == {"orders/Place#2": (1, {1}), "orders/Place#1": (1, {2})}


def test_ids_of_two_inbound_calls_identify_neither() -> None:
    beside = Beside()
    beside.comes("t1 r1")
    beside.comes("t2 r2")
    beside.calls("t1 r2")
    assert beside.waits == {}
    assert beside.program.callers["ambiguous"] == 1


def test_an_id_of_a_call_that_was_answered_and_another_one_identify_no_caller() -> None:
    beside = Beside()
    beside.program.ends(beside.comes("t1 r1"))
    beside.comes("t2 r2")
    beside.calls("t2 r1")
    assert beside.waits == {}


def test_an_id_of_the_programs_own_spoils_no_trace() -> None:
    beside = Beside()
    beside.calls("own")
    for trace in ("t1", "t2"):
        beside.comes(trace)
        beside.calls(f"{trace} own")
    assert beside.waits == {"orders/Place#1": (1, {2}), "orders/Place#2": (1, {3})}


def test_two_inbound_calls_of_one_trace_make_the_caller_unknown() -> None:
    beside = Beside()
    first, _ = beside.comes("t1"), beside.comes("t1")
    beside.calls("t1", party=first.party)
    beside.calls("t1")
    assert beside.waits == {}
    assert beside.program.callers["ambiguous"] == 1


def test_a_wait_that_has_just_begun_proves_nothing() -> None:
    beside = Beside()
    caller = beside.comes("t1")
    beside.calls("t1")
    beside.later(1)
    assert _doubt(beside, caller) == ""
    beside.calls("t1")
    assert "may be about to make another call" in _doubt(beside, caller)
    beside.later(SETTLING_SECONDS)
    assert _doubt(beside, caller) == ""


def _doubt(beside: Beside, caller: InboundCall) -> str:
    """Why the second look cannot rely on the wait of ``caller`` (empty: it can)."""
    assert caller.wait is not None
    request = LookRequest(snapshot=SnapshotId(1), suspects=(Suspect(party=caller.party, waits=(caller.wait,)),))
    (look,) = beside.program.look(request, "").parties
    assert look.unchanged
    return look.doubt


def test_a_call_without_a_trace_has_no_known_caller() -> None:
    beside = Beside()
    beside.comes("t1")
    call = beside.calls()
    assert beside.waits == {}
    assert call.made.party is None


def test_a_trace_used_elsewhere_in_the_program_identifies_no_caller() -> None:
    beside = Beside()
    beside.calls("t1")  # a job of the program's own begins the trace
    beside.comes("t1")  # and is called back under it
    beside.calls("t1")
    assert beside.waits == {}


def _answered(beside: Beside, inbound: InboundCall) -> None:
    beside.program.ends(inbound)


def _abandoned(beside: Beside, inbound: InboundCall) -> None:
    beside.program.leaves(inbound)


@pytest.mark.parametrize("over", [_answered, _abandoned])
def test_a_trace_that_an_earlier_call_carried_identifies_no_caller(over: Callable[[Beside, InboundCall], None]) -> None:
    """A job left behind by the first call, or a handler whose caller asked again, may make the call."""
    beside = Beside()
    over(beside, beside.comes("t1"))
    beside.comes("t1")
    call = beside.calls("t1")
    assert call.made.party is None
    assert beside.waits == {}
    assert beside.program.callers["ambiguous"] == 1


def test_a_trace_that_another_call_carried_meanwhile_identifies_no_caller() -> None:
    beside = Beside()
    beside.comes("t1")
    beside.program.ends(beside.comes("t1"))
    assert beside.calls("t1").made.party is None
    assert beside.waits == {}


def test_a_forwarded_party_waits_whatever_else_carried_its_trace() -> None:
    beside = Beside()
    beside.program.ends(beside.comes("t1"))
    second = beside.comes("t1")
    beside.calls("t1", party=second.party)
    assert beside.waits == {second.party: (1, {1})}


def test_traces_are_remembered_in_bounded_memory() -> None:
    known = TraceFilter(traces_max=100)
    for number in range(150):
        known.add(b"%032x" % number)
    assert all(b"%032x" % number in known for number in range(50, 150))
    assert sum(b"%032x" % number in known for number in range(1_000, 2_000)) < 50
    for number in range(10_000, 10_300):
        known.add(b"%032x" % number)
    assert sum(b"%032x" % number in known for number in range(50)) < 10


def test_a_wait_lasts_from_the_whole_request_to_the_first_of_the_reply() -> None:
    beside = Beside()
    beside.comes("t1")
    call = beside.calls("t1", asked=False)
    assert beside.waits == {}
    beside.program.asked(call)
    assert beside.waits == {"orders/Place#1": (1, {1})}
    beside.program.answering(call)
    assert beside.waits == {}


def test_one_of_several_calls_is_needed_and_after_one_reply_the_wait_is_unknown() -> None:
    beside = Beside()
    beside.comes("t1")
    first = beside.calls("t1")
    beside.calls("t1")
    assert beside.waits == {"orders/Place#1": (1, {1, 2})}
    beside.program.settles(first, None, in_doubt=False)
    assert beside.waits == {}
    assert beside.warnings == []


def test_with_the_option_that_handlers_need_all_the_remaining_calls_are_waited_for() -> None:
    beside = Beside(needs_all=True)
    beside.comes("t1")
    first = beside.calls("t1")
    beside.calls("t1")
    assert beside.waits == {"orders/Place#1": (2, {1, 2})}
    beside.program.settles(first, None, in_doubt=False)
    assert beside.waits == {"orders/Place#1": (1, {2})}


def test_a_continuing_wait_keeps_its_number_and_a_new_one_gets_another() -> None:
    beside = Beside()
    beside.comes("t1")
    call = beside.calls("t1")
    first, again = beside.cut().waits[0].number, beside.cut().waits[0].number
    beside.program.settles(call, None, in_doubt=False)
    beside.calls("t1")
    assert first == again != beside.cut().waits[0].number


def test_the_deadlines_of_both_calls_end_the_wait() -> None:
    beside = Beside()
    beside.comes("t1", timeout=5.0)
    call = beside.calls("t1", timeout=9.0)
    assert beside.cut().waits[0].deadline == 1005.0
    beside.program.settles(call, None, in_doubt=False)
    beside.calls("t1", timeout=2.0)
    assert beside.cut().waits[0].deadline == 1002.0


@pytest.mark.parametrize(("timeout", "latest"), [(None, 30.0), (60.0, 30.0), (5.0, 5.0)])
def test_a_wait_ends_with_the_longest_time_that_the_program_lets_a_call_run(timeout: float | None, latest: float) -> None:
    beside = Beside(call_seconds_max=30.0)
    beside.comes("t1", timeout=timeout)
    beside.calls("t1")
    assert beside.cut().waits[0].deadline == 1000.0 + latest


def test_nothing_is_certain_while_the_program_is_closing_a_connection_with_calls() -> None:
    """It may end them once their grace period is over: then a caller goes on that the others wait for."""
    beside = Beside()
    inbound, other = beside.comes("t1"), beside.comes("t2")
    beside.calls("t1")
    beside.later()
    assert not beside.doubt(inbound.party)
    beside.program.may_end(other)
    assert beside.doubt(inbound.party) == "the program is closing connections, and may end 1 call on them"
    beside.program.leaves(other)
    beside.program.may_end(other)
    assert not beside.doubt(inbound.party), "it has ended"


# -- what disproves that a handler waits for its call -------------------------------------------------------------------


def _answers_at_once(beside: Beside, inbound: InboundCall) -> None:
    beside.program.ends(inbound)


def _calls_after_its_answer(beside: Beside, inbound: InboundCall) -> None:
    for call in list(inbound.made):
        beside.program.settles(call, None, in_doubt=False)
    beside.program.ends(inbound)
    beside.calls("t1")


def _gives_up_its_call(beside: Beside, inbound: InboundCall) -> None:
    beside.program.cancels(inbound.made[0])


@pytest.mark.parametrize("evidence", [_answers_at_once, _calls_after_its_answer, _gives_up_its_call])
def test_a_method_once_seen_not_to_be_awaited_never_counts_again(evidence: Callable[[Beside, InboundCall], None]) -> None:
    beside = Beside()
    inbound = beside.comes("t1")
    beside.calls("t1")
    evidence(beside, inbound)
    beside.later()
    assert beside.program.distrusted == ["/s/Reserve"]
    assert len(beside.warnings) == 1
    beside.comes("t2")
    assert beside.calls("t2").made.party is None
    assert beside.waits == {}


def test_an_answer_just_before_its_call_is_cancelled_is_no_evidence() -> None:
    beside = Beside()
    inbound = beside.comes("t1")
    call = beside.calls("t1")
    beside.program.ends(inbound)
    beside.program.cancels(call)
    beside.later()
    assert beside.program.distrusted == []


def test_cancelling_at_the_deadline_is_no_evidence() -> None:
    beside = Beside()
    beside.comes("t1")
    call = beside.calls("t1", timeout=2.0)
    beside.now += 2.0
    beside.program.cancels(call)
    beside.later()
    assert beside.program.distrusted == []


def test_cancelling_the_slower_of_two_calls_is_no_evidence() -> None:
    beside = Beside()
    beside.comes("t1")
    first, second = beside.calls("t1"), beside.calls("t1")
    beside.program.settles(first, None, in_doubt=False)
    beside.program.cancels(second)
    beside.later()
    assert beside.program.distrusted == []


def test_a_call_that_streams_its_reply_does_not_wait() -> None:
    beside = Beside()
    inbound = beside.comes("t1")
    beside.calls("t1")
    beside.program.answers(inbound)
    assert beside.waits == {}


def test_methods_declared_as_not_awaited_are_never_waited_for() -> None:
    beside = Beside(never_awaited=["/s/Reserve"])
    beside.comes("t1")
    beside.calls("t1")
    assert beside.waits == {}


# -- stamps ------------------------------------------------------------------------------------------------------------


def test_a_request_of_a_newer_colour_makes_the_process_cut_before_it_is_handled() -> None:
    beside = Beside()
    stamp = Stamp(ProcessName("web"), 1, 1, SnapshotId(5), 1)  # type: ignore[arg-type]
    beside.program.arrives("/s/Place", stamp, None, ())
    (report,) = beside.live.reports
    assert report.served == ()
    assert report.snapshot == 5


def test_a_b3_header_has_the_same_trace_id_as_a_traceparent() -> None:
    trace = b"4bf92f3577b34da6a3ce929d0e0e4736"
    assert trace_of(b"00-" + trace + b"-00f067aa0ba902b7-01") == trace
    assert [trace_of_b3(value) for value in (trace.upper(), trace + b"-00f067aa0ba902b7-1", b"0", b"")] == [
        trace,
        trace,
        b"",
        b"",
    ]
    assert trace_of_b3(b"a3ce929d0e0e4736") == b"0" * 16 + b"a3ce929d0e0e4736"


@pytest.mark.parametrize(
    ("header", "trace"),
    [
        (b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", b"4bf92f3577b34da6a3ce929d0e0e4736"),
        (b"00-" + 32 * b"0" + b"-00f067aa0ba902b7-01", b""),
        (b"nonsense", b""),
        (b"", b""),
    ],
)
def test_the_trace_id_of_a_traceparent(header: bytes, trace: bytes) -> None:
    assert trace_of(header) == trace


def test_a_long_call_of_an_unknown_caller_is_a_blind_spot() -> None:
    beside = Beside(workers=1)
    job = beside.calls()  # a job of the program's own: it serves nothing
    beside.comes("t1")
    call = beside.calls()
    beside.calls("t1")
    assert _blind(beside) == [], "they may end soon"
    beside.later(UNKNOWN_SECONDS)
    assert _blind(beside) == ["2 outgoing calls whose caller is unknown (/s/Reserve)"]
    sight = agent_pb2.Sight(**beside.program.counts())
    assert (list(sight.blind), sight.servers, sight.calls) == (_blind(beside), 1, 4)
    beside.program.settles(call, None, in_doubt=False)
    assert _blind(beside) == ["1 outgoing call whose caller is unknown (/s/Reserve)"]
    beside.program.settles(job, None, in_doubt=False)
    assert _blind(beside) == []


def test_the_call_of_a_handler_whose_caller_gave_up_is_a_blind_spot() -> None:
    beside = Beside(workers=1)
    inbound = beside.comes("t1")
    beside.calls("t1")
    beside.program.leaves(inbound)
    beside.later(UNKNOWN_SECONDS)
    assert _blind(beside) == ["1 outgoing call whose caller is unknown (/s/Reserve)"]


def test_a_call_that_nobody_waits_for_is_no_blind_spot() -> None:
    declared, streaming = Beside(never_awaited=["/s/Reserve"]), Beside()
    declared.calls()
    streaming.program.answering(streaming.calls())
    for beside in (declared, streaming):
        beside.later(UNKNOWN_SECONDS)
        assert _blind(beside) == []


def test_programs_that_forward_their_callers_have_no_blind_spots() -> None:
    beside = Beside(workers=3)
    for trace in ("t1", "t2", "t3", "t4"):
        beside.comes(trace)
        beside.calls(trace) if trace != "t4" else None
    beside.later(60 * UNKNOWN_SECONDS)
    assert _blind(beside) == []


def test_calls_of_which_it_is_unknown_which_are_served_are_a_blind_spot_once_they_stand_still() -> None:
    beside = Beside(workers=2)
    first = beside.comes()
    for _ in range(3):
        beside.comes()
    beside.later(UNKNOWN_SECONDS)
    assert _blind(beside) == [], "two are served, and the others queued"
    beside.program.ends(first)
    assert _blind(beside) == []
    beside.later(UNKNOWN_SECONDS)
    assert _blind(beside) == ["which of 3 calls in progress are served is unknown (--workers 2)"]


@pytest.mark.parametrize("needs_all", [False, True])
def test_a_fan_out_that_may_need_all_its_calls_is_a_blind_spot(needs_all: bool) -> None:
    beside = Beside(needs_all=needs_all)
    beside.comes("t1")
    beside.calls("t1")
    beside.calls("t1")
    assert _blind(beside) == []
    beside.later(UNKNOWN_SECONDS)
    text = "1 party with several outgoing calls, assumed to wait for any one of them"
    assert _blind(beside) == ([] if needs_all else [text])


def test_calls_that_have_not_moved_for_long_and_are_in_no_known_wait_are_unexplained() -> None:
    beside = Beside(workers=9)
    beside.comes()  # waits for a lock, say
    beside.comes("t1")
    beside.calls("t1")
    streams = beside.comes()
    beside.program.answers(streams)
    moving = beside.comes()
    beside.later(STANDING_SECONDS)
    beside.program.item_arrived(moving)
    assert [beside.program.counts()[name] for name in ("unexplained", "unexplained_calls")] == [1, 1]


def test_a_call_that_is_known_to_be_queued_is_not_unexplained() -> None:
    beside = Beside(workers=1)
    beside.comes("t1")
    beside.comes("t2")
    beside.calls("t2")
    beside.later(STANDING_SECONDS)
    assert beside.program.counts()["unexplained"] == 0


def test_the_first_message_of_a_stream_is_counted_with_the_second_or_once_the_call_outlasts_it() -> None:
    beside = Beside()
    unary, one, several = beside.comes(), beside.comes(), beside.comes()
    for call in (unary, one, several):
        beside.program.item_sent(call, 1)
    beside.program.item_sent(several, 2)
    beside.program.ends(unary)
    assert [call.sent for call in beside.cut().served] == [0, 2]
    beside.later(GRACE_SECONDS)
    assert [call.sent for call in beside.cut().served] == [1, 2]
    beside.program.item_sent(one, 2)
    assert [call.sent for call in beside.cut().served] == [2, 2]


def test_the_size_of_the_pool_matters_only_to_a_program_that_makes_calls() -> None:
    beside = Beside()
    beside.comes("t1")
    assert beside.cut().pools == ()
    beside.calls("t1")
    assert [pool.size for pool in beside.cut().pools] == [None]


def _blind(beside: Beside) -> list[str]:
    return list(beside.program.counts()["blind"])
