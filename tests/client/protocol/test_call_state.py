"""The table of a call's states: valid transitions are made, and any other is a bug of ours."""

from __future__ import annotations

from typing import Any

import pytest

from stilltrue.model import CallNumber, PartyName, ProcessId, ProcessName, SnapshotId
from stilltrue.protocol.books.call_state import (
    DOUBT,
    END,
    FORGET,
    HANG_UP,
    HOLD_BACK,
    SETTLE,
    START,
    TAKE,
    ClientState,
    IllegalTransitionError,
    ServerState,
    Transitions,
)
from stilltrue.protocol.recorder import Recorder
from stilltrue.protocol.stamp import Stamp
from stilltrue.protocol.step import Step

C, S = ClientState, ServerState

ILLEGAL: list[tuple[Transitions[Any], ClientState | ServerState]] = [
    (SETTLE, C.OVER),
    (SETTLE, C.IN_DOUBT),
    (DOUBT, C.OVER),
    (DOUBT, C.IN_DOUBT),
    (FORGET, C.SENT),
    (FORGET, C.OVER),
    (HOLD_BACK, C.OVER),
    (HOLD_BACK, C.IN_DOUBT),
    (START, S.SERVED),
    (START, S.UNHEARD),
    (START, S.OVER),
    (TAKE, S.QUEUED),
    (TAKE, S.ABANDONED),
    (END, S.OVER),
]


@pytest.mark.parametrize(("event", "state"), ILLEGAL)
def test_an_illegal_transition_is_an_internal_error(event: Transitions[Any], state: ClientState | ServerState) -> None:
    with pytest.raises(IllegalTransitionError, match=state.name):
        event[state]
    assert issubclass(IllegalTransitionError, AssertionError)


def recorder() -> Recorder:
    return Recorder(process=ProcessId(service="a", instance=ProcessName("a"), incarnation=1), reactive=True)


def test_only_one_worker_takes_a_call() -> None:
    a = recorder()
    served, _ = a.arrived(None, method="/s/M", now=0.0)
    a.started(served)
    with pytest.raises(IllegalTransitionError):
        a.started(served)


def test_facts_of_an_unserved_request_are_not_taken() -> None:
    a = recorder()
    served, _ = a.arrived(None, method="/s/M", now=0.0)
    step = Step(served)
    step.takes()
    with pytest.raises(IllegalTransitionError):
        a.closed(step, 0.0)


def test_a_caller_that_hangs_up_while_the_call_is_queued_is_gone_once_it_is_served() -> None:
    a = recorder()
    served, _ = a.arrived(None, method="/s/M", now=0.0)
    a.hung_up(served)
    assert (served.serving, served.hung_up) == (False, True)
    a.started(served)
    assert (served.state, served.serving, served.hung_up) == (S.UNHEARD, True, True)
    a.replied(served)
    a.hung_up(served)  # gRPC reports the end of every call so
    assert served.state is S.OVER is HANG_UP[S.OVER]


def test_the_story_of_a_call_has_its_events_and_the_cuts() -> None:
    a = recorder()
    stamp = Stamp(ProcessName("b"), 1, CallNumber(1), SnapshotId(0), CallNumber(1))
    served, _ = a.arrived(stamp, method="/s/M", now=0.0)
    other, _ = a.arrived(stamp, method="/s/M", now=0.0)
    a.marked(SnapshotId(4), 0.0)
    a.started(served)
    a.replied(served)
    assert a.story(served.party) == [
        "#1 colour 0: arrived a/M#1, call 1 of b to /s/M",
        "#2 colour 4: cut",
        "#3 colour 4: started a/M#1, call 1 of b to /s/M",
        "#4 colour 4: replied a/M#1, call 1 of b to /s/M",
    ]
    assert a.story(PartyName("a/nobody")) == ["#2 colour 4: cut"]
    assert other.state is S.QUEUED
