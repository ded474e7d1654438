"""What the agent counts of its process is counted while other threads make more of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from stilltrue.runtime.compat.references import alive_in


class Thing:
    """A server, say."""


def meanwhile(happens: Callable[[], object], run: Callable[[], Any]) -> Any:
    """What ``run`` returns while ``happens`` is called between any two of its lines, as another thread could."""

    def trace(*_: Any) -> Any:
        happens()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return run()
    finally:
        sys.settrace(before)


def test_a_set_to_which_another_thread_adds_can_be_read() -> None:
    kept = [Thing() for _ in range(5)]
    there = WeakSet(kept)

    def add() -> None:
        kept.append(Thing())
        there.add(kept[-1])

    first = set(map(id, kept))
    assert first <= {id(one) for one in meanwhile(add, lambda: alive_in(there))}
    assert len(there) == len(kept) > len(first)


def test_what_is_gone_is_left_out() -> None:
    kept, gone = Thing(), Thing()
    there = WeakSet([kept, gone])
    del gone
    assert alive_in(there) == [kept]
