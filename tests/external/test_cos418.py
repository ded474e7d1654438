"""The 21 golden snapshots of COS 418, exact: through the real marker recorder, and from reports by difference."""

from __future__ import annotations

from pathlib import Path

import pytest

from detector.core.protocol.assembler import Outcome
from detector.predicates.token import TokenDuplicated, TokenLost
from stilltrue.model import Holds
from tests.external.cos418 import RUNS, SUITE, Golden, goldens, played
from tests.external.shared import published


@pytest.fixture(scope="module")
def suite() -> Path:
    return published(SUITE)


@pytest.mark.parametrize("run", RUNS)
def test_golden_snapshots_of_the_run_are_exact(suite: Path, run: str) -> None:
    servers = played(suite, run)
    assert sorted(servers.completed) == list(range(RUNS[run][1]))
    for golden in goldens(suite, run):
        snapshot = servers.completed[golden.snapshot]
        assert dict(snapshot.states) == golden.states, golden.name
        for one, tokens in snapshot.channels.items():
            expected = [count for source, target, count in golden.messages if (source, target) == (one.source, one.target)]
            assert list(tokens) == expected, f"{golden.name}: {one}"
        assert {(one.source, one.target) for one in snapshot.channels} >= {message[:2] for message in golden.messages}
        assert golden.total == servers.beside.total


@pytest.mark.parametrize("run", RUNS)
def test_reports_of_the_same_cuts_give_the_golden_snapshots_by_difference(suite: Path, run: str) -> None:
    for golden in goldens(suite, run):
        beside = played(suite, run, golden.snapshot).beside
        made = beside.assembled().assembled
        assert made.outcome is Outcome.COMPLETE
        snapshot = made.snapshot
        assert {name: state.facts["tokens"] for name, state in snapshot.processes.items()} == golden.states, golden.name
        found = [(message.source, message.what, message.facts["tokens"]) for message in snapshot.in_transit if message.facts]
        assert found == _in_transit(golden), golden.name
        for predicate in (TokenLost, TokenDuplicated):
            assert predicate(fact="tokens", expected=golden.total).evaluate(snapshot).holds is Holds.FALSE


def _in_transit(golden: Golden) -> list[tuple[str, str, int]]:
    """As the assembler says it: by source and text, each channel's messages in their order."""
    told = [(source, f"request /{target}/Give", tokens) for source, target, tokens in golden.messages]
    return sorted(told, key=lambda message: message[:2])


def test_the_suite_has_21_golden_snapshots_and_all_are_compared(suite: Path) -> None:
    assert len({golden.name for run in RUNS for golden in goldens(suite, run)}) == 21
    assert len(list(suite.glob("*.snap"))) == 21
