"""Watches: the newest of the changed verdicts, once, however slow the watcher is."""

from __future__ import annotations

import pytest

from detector.service.detection.current_verdicts import CurrentVerdicts, TooManyWatchersError, Watch
from stilltrue.model import Holds, PartyName, SnapshotRef, Verdict, Witness


def verdict(holds: Holds, *core: str, predicate: str = "deadlock", scope: str = "all") -> Verdict:
    witness = Witness(kind="", parties=(), text="")
    return Verdict(
        predicate=predicate, holds=holds, witness=witness, core=tuple(map(PartyName, core)), snapshot=SnapshotRef(scope=scope)
    )


async def test_only_a_changed_answer_or_core_is_sent() -> None:
    current = CurrentVerdicts(watchers_max=1)
    free, stuck, more = verdict(Holds.FALSE), verdict(Holds.TRUE, "a"), verdict(Holds.TRUE, "a", "b")
    assert [current.update(one) for one in (free, free, stuck, stuck, more, free)] == [True, False, True, False, True, True]
    assert current.all() == [free]


async def test_a_watch_begins_with_the_current_verdicts() -> None:
    current = CurrentVerdicts(watchers_max=1)
    current.update(verdict(Holds.FALSE))
    with current.watching(lambda key: True) as watch:
        assert await watch.news(1) == [verdict(Holds.FALSE)]
        assert await watch.news(0.01) == []


async def test_a_slow_watcher_gets_only_the_newest_verdict_and_only_if_it_differs() -> None:
    watch = Watch(lambda key: True)
    watch.offer(verdict(Holds.FALSE))
    await watch.news(1)
    for holds in (Holds.TRUE, Holds.UNDETERMINED, Holds.FALSE):
        watch.offer(verdict(holds))
    assert await watch.news(0.01) == []
    watch.offer(verdict(Holds.UNDETERMINED))
    watch.offer(verdict(Holds.TRUE))
    assert [one.holds for one in await watch.news(1)] == [Holds.TRUE]


async def test_a_watch_gets_only_the_wanted_predicates() -> None:
    watch = Watch(lambda key: key == ("deadlock", "shop"))
    for scope in ("all", "shop"):
        watch.offer(verdict(Holds.TRUE, scope=scope))
    assert [one.snapshot.scope for one in await watch.news(1)] == ["shop"]


async def test_an_ended_watch_no_longer_counts_towards_the_bound() -> None:
    current = CurrentVerdicts(watchers_max=1)
    with current.watching(lambda key: True), pytest.raises(TooManyWatchersError), current.watching(lambda key: True):
        pass
    with current.watching(lambda key: True):
        pass
