"""The predicates about processes, messages and facts: each answer, its near miss, and the answer in doubt."""

from __future__ import annotations

from typing import Any

import pytest

from detector.core.document.reader import read_document
from detector.core.predicate import Predicate
from detector.core.registry import ask
from detector.predicates.evidence.process_verdict import ALL_WAIT, MAY_ACT
from detector.predicates.lost_message import LostMessage
from detector.predicates.phase_ended import PhaseEnded
from detector.predicates.quiescence import Quiescence
from detector.predicates.termination import Termination
from detector.predicates.token import TokenDuplicated, TokenLost
from stilltrue.model import Holds

T, F, U = Holds.TRUE, Holds.FALSE, Holds.UNDETERMINED
IDLE, ACTIVE, BLOCKED = {"activity": "idle"}, {"activity": "active"}, {"activity": "blocked"}
RING = [{"waiter": "a/1", "among": ["b/1"]}, {"waiter": "b/1", "among": ["a/1"]}]
A_TO_B = [{"source": "a", "target": "b"}]
MISSING = {"missing": ["z"]}


def has(**facts: Any) -> dict[str, Any]:
    return {"activity": "idle", "facts": facts}


def check(predicate: Predicate, processes: dict[str, Any], more: dict[str, Any], holds: Holds) -> None:
    verdict = ask(predicate, read_document({"processes": processes, **more}))
    assert verdict.holds is holds, verdict.witness.text
    assert verdict.witness.text
    assert verdict.decisive == (("z",) if holds is U and more.get("missing") else ())


@pytest.mark.parametrize(
    ("processes", "more", "holds"),
    [
        ({"a": IDLE, "b": IDLE}, {}, T),
        ({}, {}, T),
        ({"a": IDLE, "b": ACTIVE}, {}, F),
        ({"a": IDLE, "b": BLOCKED}, {}, F),
        ({"a": IDLE, "b": IDLE}, {"in_transit": A_TO_B}, F),
        ({"a": IDLE}, {"waits": [{"waiter": "a/1", "among": ["b/1"]}]}, F),
        ({"a": IDLE, "b": IDLE}, {"waits": RING}, F),
        ({"a": IDLE, "b": IDLE}, {"waits": [{**wait, "uncoloured": True} for wait in RING]}, U),
        ({"a": IDLE, "b": IDLE}, {"waits": RING[:1]}, T),
        ({"a": IDLE}, MISSING, U),
        ({"a": ACTIVE}, MISSING, F),
        ({"a": IDLE, "z": ACTIVE}, MISSING, U),
    ],
)
def test_termination(processes: dict[str, Any], more: dict[str, Any], holds: Holds) -> None:
    check(Termination(), processes, more, holds)


def test_a_termination_that_does_not_hold_says_why_each_process_is_not_idle() -> None:
    verdict = ask(Termination(), read_document({"processes": {"c": BLOCKED, "a": ACTIVE, "b": IDLE}}))
    assert verdict.holds is F
    assert verdict.explanation == (f"a: {MAY_ACT}", f"c: {ALL_WAIT}")
    crowd = ask(Termination(), read_document({"processes": {f"p{number}": ACTIVE for number in range(30)}}))
    assert len(crowd.explanation) == 9
    assert crowd.explanation[-1] == "and 22 more"


@pytest.mark.parametrize(
    ("processes", "more", "holds"),
    [
        ({"a": IDLE, "b": IDLE}, {}, T),
        ({"a": BLOCKED, "b": BLOCKED, "c": IDLE}, {"waits": RING}, T),
        ({"a": BLOCKED, "b": BLOCKED, "c": IDLE}, {"waits": RING, "in_transit": A_TO_B}, T),
        ({"a": BLOCKED, "b": BLOCKED, "c": IDLE}, {"waits": RING, "in_transit": [{"source": "a", "target": "c"}]}, F),
        ({"a": BLOCKED, "b": BLOCKED, "c": IDLE}, {"waits": RING, "in_transit": [{"source": "a"}]}, F),
        ({"a": BLOCKED, "b": BLOCKED, "c": ACTIVE}, {"waits": RING}, F),
        ({"a": BLOCKED, "b": BLOCKED}, {"waits": RING[:1]}, F),
        ({"a": BLOCKED}, {}, F),
        ({"a": BLOCKED, "b": BLOCKED}, {"waits": [RING[0] | {"uncoloured": True}, RING[1]]}, U),
        ({"a": BLOCKED, "b": BLOCKED}, {"waits": RING} | MISSING, U),
        ({"a": BLOCKED}, {"waits": [{"waiter": "a/1", "among": ["z/1"]}]} | MISSING, U),
        ({"a": ACTIVE}, MISSING, F),
    ],
)
def test_quiescence(processes: dict[str, Any], more: dict[str, Any], holds: Holds) -> None:
    check(Quiescence(), processes, more, holds)


def test_quiescence_counts_equal_messages_in_transit_once() -> None:
    message = {"source": "a", "target": "b"}
    verdict = ask(Quiescence(), read_document({"processes": {"a": IDLE, "b": IDLE}, "in_transit": [message, message]}))
    assert verdict.witness.text == "2 in transit (a to b (2)), when the snapshot began"


@pytest.mark.parametrize(
    ("processes", "more", "text"),
    [
        ({"a": IDLE}, {}, "the only process is idle"),
        ({"a": IDLE, "b": IDLE}, {}, "both processes are idle"),
        ({"a": BLOCKED, "b": BLOCKED}, {"waits": RING}, "both processes are deadlocked"),
        ({"a": BLOCKED, "b": BLOCKED, "c": IDLE}, {"waits": RING}, "1 process is idle and 2 are deadlocked"),
        ({"a": IDLE}, MISSING, "the only reporting process cannot move, but z did not report"),
        ({"a": IDLE, "b": IDLE}, MISSING, "none of the 2 reporting processes can move, but z did not report"),
    ],
)
def test_quiescence_counts_the_processes_in_words(processes: dict[str, Any], more: dict[str, Any], text: str) -> None:
    assert ask(Quiescence(), read_document({"processes": processes} | more)).witness.text == text


def test_quiescence_says_of_each_process_why_it_can_move() -> None:
    """A deadlocked program is rarely quiescent: the answer says whether a wait can end, or only a thread may still act."""
    waits = [
        *RING,
        {"waiter": "c/1", "among": ["c/2"]},
        {"waiter": "c/3", "among": ["a/1"]},
        {"waiter": "f/1", "among": ["z/1"]},
    ]
    processes = {"a": ACTIVE, "b": BLOCKED, "c": BLOCKED, "d": BLOCKED, "e": IDLE, "f": ACTIVE}
    document = {"processes": processes, "waits": waits, "missing": ["z"]}
    verdict = ask(Quiescence(), read_document(document))
    assert verdict.holds is F
    assert verdict.witness.text == "4 can move (a, c, d, f), when the snapshot began"
    assert verdict.explanation == (
        f"a: {MAY_ACT}; the only waiting party is deadlocked",
        "c: of its 2 waiting, 1 can proceed (c/1)",
        "d: none of its parties is known to wait",
        f"f: {MAY_ACT}; the only waiting party may be deadlocked",
    )
    crowd = ask(Quiescence(), read_document({"processes": {f"p{number}": ACTIVE for number in range(30)}}))
    assert len(crowd.explanation) == 9
    assert crowd.explanation[-1] == "and 22 more"


@pytest.mark.parametrize(
    ("processes", "more", "lost", "duplicated"),
    [
        ({"a": has(token=1), "b": has(token=0)}, {}, F, F),
        ({"a": has(token=0), "b": IDLE}, {}, T, F),
        ({"a": has(token=0)}, {"in_transit": [{"source": "a", "target": "b", "facts": {"token": 1}}]}, F, F),
        ({"a": has(token=1)}, {"in_transit": [{"source": "a", "target": "b", "facts": {"token": 1}}]}, F, T),
        ({"a": has(token=True), "b": has(token=True)}, {}, F, T),
        ({"a": IDLE}, {}, U, U),
        ({"a": has(token="yes")}, {}, U, U),
        ({"a": has(token="unknown"), "b": has(token=0)}, {}, U, U),
        ({"a": has(token="unknown"), "b": has(token=1)}, {}, F, U),
        ({"a": has(token="unknown"), "b": has(token=2)}, {}, F, T),
        ({"a": has(token=1)}, {"in_transit": [{"source": "a", "target": "b", "facts": {"token": "unknown"}}]}, F, U),
        ({"a": has(token=-1), "b": has(token=2)}, {}, U, U),
        ({"a": has(token=0)}, MISSING, U, U),
        ({"a": has(token=1)}, MISSING, F, U),
        ({"a": has(token=2)}, MISSING, F, T),
        ({"a": has(token=0), "z": has(token=1)}, MISSING, U, U),
    ],
)
def test_tokens(processes: dict[str, Any], more: dict[str, Any], lost: Holds, duplicated: Holds) -> None:
    check(TokenLost(), processes, more, lost)
    check(TokenDuplicated(), processes, more, duplicated)


def test_amounts_may_be_fractions_and_other_facts() -> None:
    processes = {name: has(share=0.1) for name in "abcdefghij"}
    check(TokenLost(fact="share", expected=1), processes, {}, F)
    check(TokenDuplicated(fact="share", expected=1), processes, {}, F)
    check(TokenLost(fact="share", expected=1.5), processes, {}, T)
    thirds = {name: has(share=0.1) for name in "abc"}  # a little more than 0.3 in total, in floating point
    check(TokenDuplicated(fact="share", expected=0.3), thirds, {}, F)
    check(TokenLost(fact="share", expected=0.8), {"a": has(share=0.1), "b": has(share=0.7)}, {}, F)


@pytest.mark.parametrize(
    ("processes", "more", "phase", "holds"),
    [
        ({"a": has(phase=2), "b": has(phase=2)}, {}, 2, T),
        ({"a": has(phase=2), "b": has(phase=2)}, {}, None, T),
        ({"a": has(phase=3) | ACTIVE, "b": has(phase=2)}, {}, 2, T),
        ({"a": has(phase=3) | ACTIVE, "b": has(phase=2)}, {}, 3, F),
        ({"a": has(phase=2) | ACTIVE, "b": has(phase=2)}, {}, 2, F),
        ({"a": has(phase=2), "b": has(phase=1)}, {}, 2, F),
        ({"a": has(phase=2), "b": IDLE}, {}, 2, F),
        ({"a": has(phase=2)}, {"in_transit": [{"source": "a", "target": "a", "facts": {"phase": 2}}]}, 2, F),
        ({"a": has(phase=3)}, {"in_transit": [{"source": "a", "target": "a", "facts": {"phase": 3}}]}, 2, T),
        ({"a": has(phase=3)}, {"in_transit": [{"source": "a", "target": "a"}]}, 2, F),
        ({"a": IDLE}, {}, 2, U),
        ({"a": has(phase=2)}, MISSING, 2, U),
        ({"a": has(phase=2) | ACTIVE}, MISSING, 2, F),
    ],
)
def test_phase_ended(processes: dict[str, Any], more: dict[str, Any], phase: int | None, holds: Holds) -> None:
    check(PhaseEnded(phase=phase), processes, more, holds)


def test_a_phase_that_is_no_integer_is_named_not_called_undeclared() -> None:
    verdict = ask(PhaseEnded(), read_document({"processes": {"a": has(phase="warm"), "b": IDLE}}))
    assert (verdict.holds, verdict.witness.text) == (U, "the fact 'phase' of a is not an integer")
    verdict = ask(PhaseEnded(), read_document({"processes": {"b": IDLE}}))
    assert verdict.witness.text == "no process and no message declares the fact 'phase'"


def test_a_phase_that_has_not_ended_names_what_is_left_of_it() -> None:
    message = {"source": "a", "target": "b", "facts": {"phase": 2}}
    processes = {"a": has(phase=2) | ACTIVE, "b": has(phase=3)}
    verdict = ask(PhaseEnded(phase=2), read_document({"processes": processes, "in_transit": [message]}))
    assert verdict.witness is not None
    assert verdict.witness.text.endswith(": 1 still in it (a) and 1 of its messages in transit (a to b)")


@pytest.mark.parametrize(
    ("processes", "more", "holds"),
    [
        ({"a": has(sent=3, received=0), "b": has(sent=0, received=3)}, {}, F),
        ({"a": has(sent=3), "b": has(received=2)}, {}, T),
        ({"a": has(sent=3), "b": has(received=2)}, {"in_transit": A_TO_B}, F),
        ({"a": has(sent=3), "b": has(received=1)}, {"in_transit": A_TO_B}, T),
        ({"a": has(sent=3), "b": has(received=1)}, {"in_transit": [A_TO_B[0] | {"facts": {"count": 2}}]}, F),
        ({"a": has(sent=3) | ACTIVE, "b": has(received=2)}, {}, F),
        ({"a": has(sent=2), "b": has(received=3)}, {}, U),
        ({"a": IDLE}, {}, U),
        ({"a": has(sent=3)}, MISSING, U),
    ],
)
def test_lost_message(processes: dict[str, Any], more: dict[str, Any], holds: Holds) -> None:
    check(LostMessage(), processes, more, holds)


def test_a_lost_message_names_its_channel_if_counted_there() -> None:
    processes = {
        "a": has(**{"sent": 3, "sent:b": 1, "sent:c": 2}),
        "b": has(received=0),
        "c": has(**{"received": 2, "received:a": 2}),
    }
    verdict = LostMessage().evaluate(read_document({"processes": processes}))
    assert (verdict.holds, verdict.witness.parties) == (T, ("a", "b"))
    assert verdict.explanation == ("a sent b 1 more than b received",)


@pytest.mark.parametrize(
    ("carried", "told"),
    [
        ([], ("a sent b 2 more than b received", "a sent c 1 more than c received")),
        ([{"source": "a", "target": "b"}], ("a sent b 1 more than b received", "a sent c 1 more than c received")),
        ([{"source": "a", "target": "b", "facts": {"count": 2}}], ("a sent c 1 more than c received",)),
        ([{"source": "c", "target": "b"}], ("a sent b 2 more than b received", "a sent c 1 more than c received")),
        ([{"source": "a"}], ("a sent b 1 more than b received",)),
    ],
)
def test_a_message_in_transit_on_a_channel_is_not_lost(carried: list[dict[str, Any]], told: tuple[str, ...]) -> None:
    """A message with an unknown target may be on any of its sender's channels."""
    processes = {
        "a": has(**{"sent": 9, "sent:b": 2, "sent:c": 1}),
        "b": has(**{"received": 0, "received:a": 0}),
        "c": has(received=0),
    }
    verdict = LostMessage().evaluate(read_document({"processes": processes, "in_transit": carried}))
    assert (verdict.holds, verdict.explanation) == (T, told)


@pytest.mark.parametrize("predicate", [TokenLost(), TokenDuplicated()])
def test_an_unknown_amount_names_the_process_that_has_to_set_it(predicate: Predicate) -> None:
    verdict = ask(predicate, read_document({"processes": {"a": has(token="unknown"), "b": has(token=0)}}))
    assert (
        "the amount at a is unknown: a call that carried some has failed or was abandoned, and the fact has not been set since"
        in (verdict.witness.text)
    )


@pytest.mark.parametrize("predicate", [Termination(), Quiescence()], ids=lambda predicate: predicate.name)
def test_without_any_report_no_process_is_said_to_be_idle(predicate: Predicate) -> None:
    assert ask(predicate, read_document({**MISSING})).witness.text == "no process has reported; missing: z"
    some = ask(predicate, read_document({"processes": {"a": IDLE}, **MISSING})).witness.text
    assert some.endswith(", but z did not report")
