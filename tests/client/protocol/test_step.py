"""Rule 7: an atomic step of the recorder changes facts together with its one message."""

from __future__ import annotations

import pytest

from stilltrue.model import UNKNOWN_FACT, CallNumber, PartyName, ProcessId, ProcessName, SnapshotId
from stilltrue.protocol.step import Step, StepError
from tests.client.recorders import CHANNEL, cut, recorder, stamp


def test_rule_7_facts_change_in_the_step_of_their_message() -> None:
    a, b = recorder("a"), recorder("b")
    a.fact({"token": 1})
    step = Step()
    step.fact(token=0)
    step.carries(token=1)
    made, sent = a.sent(method="/b/Take", channel=CHANNEL, now=0.0, step=step)
    a.closed(step, 0.0)
    report = cut(a, 1)
    assert (report.facts, report.made[0].facts) == ({"token": 0}, {"token": 1})
    served, _ = b.arrived(sent, method="/b/Take", now=0.0)
    b.started(served)
    assert not cut(b, 2).served[0].taken
    taking = Step(served)
    taking.fact(token=1)
    taking.takes()
    b.closed(taking, 0.0)
    taken = cut(b, 3)
    assert (taken.served[0].taken, taken.facts) == (True, {"token": 1})
    assert a.settled(made, None, 0.0) is None


def test_the_outcome_of_a_steps_message_counts_from_the_end_of_the_step_but_its_colour_at_once() -> None:
    a, step = recorder(), Step()
    step.fact(token=0)
    step.carries(token=1)
    made, _ = a.sent(method="/s/M", channel=CHANNEL, now=0.0, party=PartyName("a/x"), waiting=True, step=step)
    report = a.settled(made, stamp(colour=4), 0.0)
    assert report is not None, "rule 2: a reply of a newer colour cuts, step or not"
    assert (report.waits != (), report.facts) == (True, {"token": 0})
    held = cut(a, 5)
    assert ([call.number for call in held.made], held.waits) == ([1], ())
    step.fact(token=1)
    a.closed(step, 0.0)
    assert (cut(a, 6).made, cut(a, 7).facts) == ((), {"token": 1})


def test_an_open_step_holds_back_the_reply_to_its_own_message_only() -> None:
    a, step = recorder(), Step()
    a.sent(method="/s/M", channel=CHANNEL, now=0.0, step=step)
    other, _ = a.sent(method="/s/M", channel=CHANNEL, now=0.0)
    a.settled(other, stamp(2), 0.0)
    assert [call.number for call in cut(a, 1).made] == [1]


def test_the_end_of_a_step_makes_no_cut_for_a_colour_that_was_refused_with_its_reply() -> None:
    a, step = recorder(), Step()
    made, _ = a.sent(method="/s/M", channel=CHANNEL, now=0.0, step=step)
    forged = stamp(1)._replace(colour=SnapshotId(2 * 10**9))
    assert a.settled(made, forged, 0.0) is None
    a.closed(step, 10.0**9)
    assert (a.colour, a.refused) == (0, 1)
    assert cut(a, 1).made == ()


def test_facts_travel_with_one_message_of_a_step() -> None:
    a, step = recorder(), Step()
    step.carries(token=1)
    a.sent(method="/s/M", channel=CHANNEL, now=0.0, step=step)
    with pytest.raises(StepError, match="second message"):
        a.sent(method="/s/M", channel=CHANNEL, now=0.0, step=step)
    assert [(call.number, call.facts) for call in cut(a, 1).made] == [(1, {"token": 1})]


def test_facts_of_a_request_return_with_a_refusal_and_stay_with_a_reply() -> None:
    a = recorder()
    for number, (takes, failed) in enumerate([(False, False), (False, True), (True, True)], start=1):
        served, _ = a.arrived(stamp(number), method="/s/M", now=0.0)
        a.started(served)
        if takes:
            step = Step(served)
            step.takes()
            a.closed(step, 0.0)
        a.replied(served, failed=failed)
    (seen,) = cut(a, 1).seen
    answers = [seen.answer(CallNumber(number)) for number in (1, 2, 3)]
    assert [answer and answer.taken for answer in answers] == [True, False, True]


def test_facts_of_a_failed_request_may_have_returned_once_its_step_ends() -> None:
    a, step = recorder(), Step()
    a.fact({"token": 1, "phase": "warm"})
    step.fact(token=0)
    step.carries(token=1)
    made, _ = a.sent(method="/s/M", channel=CHANNEL, now=0.0, step=step)
    a.facts_lost(made)
    assert cut(a, 1).facts["token"] == 0, "the step itself sets the fact"
    a.closed(step, 0.0)
    a.facts_lost(made)
    a.settled(made, None, 0.0)
    assert cut(a, 2).facts == {"token": UNKNOWN_FACT, "phase": "warm"}
    a.fact({"token": 1})
    a.facts_lost(made)
    assert cut(a, 3).facts["token"] == 1, "a call that is over is reported once"


@pytest.mark.parametrize(("within", "beside", "found"), [({}, {}, UNKNOWN_FACT), ({"token": 1}, {}, 1), ({}, {"token": 1}, 1)])
def test_facts_of_a_request_that_fails_in_its_step_are_unknown_unless_set_again(
    within: dict[str, int], beside: dict[str, int], found: object
) -> None:
    a, step = recorder(), Step()
    a.fact({"token": 1})
    step.fact(token=0)
    step.carries(token=1)
    made, _ = a.sent(method="/s/M", channel=CHANNEL, now=0.0, step=step)
    a.facts_lost(made)
    a.settled(made, None, 0.0)
    step.fact(**within)
    a.fact(beside)
    a.closed(step, 0.0)
    assert cut(a, 1).facts == {"token": found}


def test_a_step_with_the_reply_is_dropped_if_the_handler_fails() -> None:
    for failed, facts in ((True, {}), (False, {"token": 0})):
        a = recorder()
        served, _ = a.arrived(stamp(), method="/s/M", now=0.0)
        a.started(served)
        step = Step(served)
        step.fact(token=0)
        step.carries(token=1)
        step.with_reply()
        a.closed(step, 0.0)
        a.replied(served, failed=failed)
        report = cut(a, 1)
        answer = report.seen[0].answer(CallNumber(1))
        assert answer is not None
        assert (report.facts, dict(answer.facts)) == (facts, {} if failed else {"token": 1})


def test_several_steps_with_the_reply_take_effect_together() -> None:
    a = recorder()
    a.fact({"token": 1, "served": 4})
    served, _ = a.arrived(stamp(), method="/s/M", now=0.0)
    a.started(served)
    for changes, carried in (({"token": 0}, {"token": 1}), ({"served": 5}, {}), ({}, {"page": 2})):
        step = Step(served)
        step.fact(**changes)
        step.carries(**carried)
        step.with_reply()
        a.closed(step, 0.0)
    assert cut(a, 1).facts == {"token": 1, "served": 4}
    a.replied(served)
    report = cut(a, 2)
    answer = report.seen[0].answer(CallNumber(1))
    assert answer is not None
    assert (report.facts, dict(answer.facts)) == ({"token": 0, "served": 5}, {"token": 1, "page": 2})


@pytest.mark.parametrize("failed", [False, True])
def test_what_came_with_the_request_and_returns_with_the_reply_stays_in_transit(failed: bool) -> None:
    a = recorder()
    served, _ = a.arrived(stamp(), method="/s/M", now=0.0)
    a.started(served)
    step = Step(served)
    step.takes()
    step.fact(token=0)
    step.carries(token=1)
    step.with_reply()
    a.closed(step, 0.0)
    before = cut(a, 1)
    assert (before.served[0].taken, before.facts) == (False, {}), "still with the request"
    a.replied(served, failed=failed)
    answer = cut(a, 2).seen[0].answer(CallNumber(1))
    assert answer is not None
    assert (answer.taken, dict(answer.facts)) == ((False, {}) if failed else (True, {"token": 1}))


@pytest.mark.parametrize("in_doubt", [False, True])
def test_facts_that_an_open_call_carries_are_unknown_after_a_renaming(in_doubt: bool) -> None:
    """The call is not reported under the new name: its token seemed lost."""
    a, step = recorder(), Step()
    a.fact({"token": 1, "phase": 2})
    step.fact(token=0)
    step.carries(token=1)
    made, _ = a.sent(method="/s/M", channel=CHANNEL, now=0.0, step=step)
    a.closed(step, 0.0)
    if in_doubt:
        a.settled(made, None, 0.0, in_doubt=True)
    a.renamed(ProcessId(service="a", instance=ProcessName("a-2"), incarnation=7))
    report = cut(a, 1)
    assert (report.made, report.facts) == ((), {"token": UNKNOWN_FACT, "phase": 2})
    a.fact({"token": 0})
    assert cut(a, 2).facts == {"token": 0, "phase": 2}


@pytest.mark.parametrize(("carried", "sent", "found"), [(True, True, 0), (True, False, UNKNOWN_FACT), (False, False, 0)])
def test_what_changes_with_a_message_that_was_not_recorded_is_unknown(carried: bool, sent: bool, found: object) -> None:
    a, step = recorder(), Step()
    a.fact({"token": 1})
    step.fact(token=0)
    if carried:
        step.carries(token=1)
    if sent:
        a.sent(method="/s/M", channel=CHANNEL, now=0.0, step=step)
    a.closed(step, 0.0)
    assert cut(a, 1).facts == {"token": found}
    a.fact({"token": 1})
    assert cut(a, 2).facts == {"token": 1}


def test_facts_sent_with_a_call_are_not_sent_again_with_the_reply() -> None:
    a = recorder()
    served, _ = a.arrived(stamp(), method="/s/M", now=0.0)
    a.started(served)
    step = Step(served)
    step.carries(token=1)
    step.with_reply()
    a.sent(method="/s/M", channel=CHANNEL, now=0.0, step=step)
    a.closed(step, 0.0)
    a.replied(served)
    (seen,) = cut(a, 1).seen
    assert seen.answered == ()
