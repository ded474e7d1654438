"""The shorter way in which most requests are recorded: the same record as by the general way, for all others none."""

from __future__ import annotations

from random import Random

import pytest

from stilltrue.model import ProcessName
from stilltrue.protocol.books.ledger import ServerCall
from stilltrue.protocol.recorder import Bounds, Recorder
from stilltrue.protocol.stamp import KNOWN_LENGTH_MAX, decode, mark_of
from tests.client.recorders import cut, recorder

MARK = mark_of(ProcessName("a"), 1)


def arrive(at: Recorder, text: str, method: str) -> ServerCall:
    """As the general way alone does it."""
    return at.arrived(decode(text), method, 0.0)[0]


def greet(at: Recorder, source: str = "b", method: str = "/s/M") -> None:
    """The first call of this caller, and of this method: it is over."""
    at.replied(arrive(at, f"{source};1;1;0;1", method))


def random_text(random: Random, number: int) -> str:
    """A stamp as members send it or, in one part of it, a broken or forged one."""
    parts = [random.choice("bc"), "1", str(number), "0", str(max(1, number - random.randrange(3))), MARK]
    odd: tuple[tuple[str, ...], ...] = (
        ("d", "", "e" * 300),
        ("2", "01", "-1"),
        ("0", "-1", str(2**53), str(2**54), "x"),
        ("1", "2", "-1", "3" * 20, ""),
        ("-5", "x", str(number + 1), str(2**54)),
        ("", MARK[1:], "~0123456789abcdef~", f"{'~0123456789abcdef' * 12}{MARK}", "0123456789abcdef0123456789abcdef"),
    )
    if random.random() < 0.4:
        at = random.randrange(len(parts))
        parts[at] = random.choice(odd[at])
    return ";".join(parts[: random.choice((5, 6, 6, 6, 6))])


@pytest.mark.parametrize("seed", range(30))
def test_the_shorter_way_makes_the_same_record(seed: int) -> None:
    random, shorter = Random(seed), 0
    bounds = Bounds(callers_max=random.choice((2, 10)), answered_max=5)
    both, general = recorder(bounds=bounds), recorder(bounds=bounds)
    open_calls: list[tuple[ServerCall, ServerCall]] = []
    for number in range(1, 200):
        text, method = random_text(random, number), random.choice(("/s/M", "/s/N"))
        served = both.arrived_again(text, method, 0.0, number % 2 == 0)
        if served is None:
            served, _ = both.arrived(decode(text), method, 0.0, number % 2 == 0)
        else:
            shorter += 1
        open_calls.append((served, general.arrived(decode(text), method, 0.0, number % 2 == 0)[0]))
        assert (both.colour, both.refused) == (general.colour, general.refused)
        if random.random() < 0.8:
            mine, others = open_calls.pop(random.randrange(len(open_calls)))
            both.started(mine)
            general.started(others)
            assert both.replied(mine) == general.replied(others)
        if random.random() < 0.05:
            assert cut(both, both.colour + 1) == cut(general, general.colour + 1)
    assert cut(both, both.colour + 1) == cut(general, general.colour + 1)
    assert all(both.story(mine.party) == general.story(others.party) for mine, others in open_calls)
    assert 20 < shorter < 180


def test_a_request_that_requires_a_cut_is_left_to_the_general_way() -> None:
    a = recorder()
    greet(a)
    before = a.happenings
    assert a.arrived_again(f"b;1;2;1;2;{MARK}", "/s/M", 0.0) is None
    assert (a.colour, a.happenings) == (0, before)
    cut(a, 1)
    assert a.arrived_again(f"b;1;2;1;2;{MARK}", "/s/M", 0.0) is not None


def test_a_new_caller_and_a_new_method_are_left_to_the_general_way() -> None:
    a = recorder()
    greet(a)
    assert a.arrived_again(f"c;1;2;0;2;{MARK}", "/s/M", 0.0) is None
    assert a.arrived_again(f"b;2;2;0;2;{MARK}", "/s/M", 0.0) is None
    assert a.arrived_again(f"b;1;2;0;2;{MARK}", "/s/N", 0.0) is None
    assert a.arrived_again("b;1;2;0;2", "/s/M", 0.0) is None  # it knows no server


def test_a_forgotten_caller_is_new() -> None:
    a = recorder(bounds=Bounds(callers_max=1))
    greet(a)
    greet(a, "c")
    assert a.arrived_again(f"b;1;2;0;2;{MARK}", "/s/M", 0.0) is None
    for run in (2, 3):
        arrive(a, f"c;{run};1;0;1", "/s/M")
    assert a.arrived_again(f"c;1;2;0;2;{MARK}", "/s/M", 0.0) is None


def test_marks_that_decode_would_ignore_are_left_to_it() -> None:
    a = recorder()
    greet(a)
    assert a.arrived_again(f"b;1;2;0;2;{MARK[1:]}", "/s/M", 0.0) is None
    assert a.arrived_again(f"b;1;2;0;2;{'~' * KNOWN_LENGTH_MAX}{MARK}", "/s/M", 0.0) is None
    served = a.arrived_again(f"b;1;2;0;2;{MARK}", "/s/M", 0.0)
    assert served is not None
    assert a.replied(served) is None
