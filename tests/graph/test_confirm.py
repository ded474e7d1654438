"""Which waits the previous snapshot shows as well, against comparing them name by name."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from detector.graph.columns import WaitColumns
from detector.graph.confirm import confirmed
from stilltrue.model import PartyName, Wait, WaitNumber

NAMES = st.sampled_from([PartyName(name) for name in "abcde"])


@st.composite
def waits(draw: st.DrawFn) -> Wait:
    among = tuple(sorted(draw(st.sets(NAMES, min_size=1, max_size=2))))
    number = draw(st.none() | st.integers(0, 1).map(WaitNumber))
    return Wait(waiter=draw(NAMES), among=among, needs=draw(st.integers(1, len(among))), number=number, uncoloured=True)


@settings(max_examples=200, deadline=None)
@given(st.lists(waits(), max_size=6), st.lists(waits(), max_size=6))
def test_a_wait_counts_that_was_there_before_and_is_stuck_by_such_waits_alone(now: list[Wait], before: list[Wait]) -> None:
    columns = WaitColumns.of(now)
    lasting = [wait.number is not None and wait in before for wait in columns.waits()]
    stuck = {wait.waiter for wait, lasts in zip(columns.waits(), lasting, strict=True) if lasts}
    while True:
        left = {
            wait.waiter
            for wait, lasts in zip(columns.waits(), lasting, strict=True)
            if lasts and wait.waiter in stuck and len(set(wait.among) - stuck) < wait.needs
        }
        if left == stuck:
            break
        stuck = left
    expected = [lasts and wait.waiter in stuck for wait, lasts in zip(columns.waits(), lasting, strict=True)]
    assert confirmed(columns, WaitColumns.of(before), np.zeros(len(columns), np.bool_)).tolist() == expected
