"""The open waits of a reduction in progress: parties freed by their numbering alone, and the waits left at the end."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from detector.graph import open_waits as opened
from detector.graph import reachability as closure
from detector.graph.columns import Bools, WaitColumns
from detector.graph.open_waits import OpenWaits
from detector.graph.reduction import reduce, remainder
from stilltrue.model import PartyName, Wait


def columns(**waits: str) -> WaitColumns:
    """``a="bc"``: a waits for both b and c; ``a="b|c"`` for one of them; ``a="b c"`` has two waits."""
    rows = []
    for waiter, said in waits.items():
        for each in said.split():
            among = tuple(map(PartyName, each.replace("|", "")))
            rows.append(Wait(waiter=PartyName(waiter), among=among, needs=1 if "|" in each else len(among)))
    return WaitColumns.of(rows)


def free(waits: WaitColumns, names: str) -> Bools:
    return np.array([name in names for name in waits.names])


@pytest.mark.parametrize(
    ("waits", "one_way"),
    [
        ({"b": "a", "c": "ab", "d": "a|c"}, True),
        ({"a": "bc", "b": "c"}, True),
        ({"a": "b", "c": "b"}, False),
        ({"b": "ac", "c": "a"}, False),
        ({"a": "a"}, False),
        ({"a": "b", "b": "a"}, False),
    ],
)
def test_ascending_numbers_prove_that_there_is_no_cycle(waits: dict[str, str], one_way: bool) -> None:
    assert OpenWaits.of(columns(**waits)).one_way() is one_way


def test_a_descending_wait_beyond_the_first_sample_is_found() -> None:
    names = [PartyName(f"{at:04}") for at in range(2 * opened.SAMPLE_WAITS)]
    line = [Wait(waiter=later, among=(earlier,)) for earlier, later in pairwise(names)]
    assert len(remainder(WaitColumns.of(line))) == 0
    pair = WaitColumns.of([*line, Wait(waiter=names[-2], among=(names[-1],))])
    assert pair.named(remainder(pair)) == tuple(names[-2:])


def test_the_remaining_waits_have_no_ended_waits_and_no_free_targets() -> None:
    waits = columns(a="bx|c bx", b="a", c="x", d="xy|e", e="e")
    left = OpenWaits.of(waits).settled(free(waits, "cxyd"))
    told = [
        (waits.names[waiter], int(short), [waits.names[at] for at in left.targets[begin:end]])
        for waiter, short, begin, end in zip(left.waiter, left.short, left.indptr, left.indptr[1:], strict=False)
    ]
    assert told == [("a", 1, ["b"]), ("b", 1, ["a"]), ("e", 1, ["e"])]


def test_nothing_is_copied_if_no_party_was_freed() -> None:
    waits = columns(a="b", b="a")
    ring = OpenWaits.of(waits)
    assert ring.settled(free(waits, "")) is ring


def test_a_held_party_is_not_freed_by_a_shortcut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closure, "WAITS_MIN", 0)
    waits = columns(b="a", c="b", d="c|e", e="f")
    held = free(waits, "b")
    assert waits.named(reduce(waits, held=held).remainder()) == ("b", "c")
    assert reduce(waits, held=held).further(released=held).free.all()
