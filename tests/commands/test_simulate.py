"""`stilltrue simulate`: the summary, one world's run and picture, a scenario file, and invalid options."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from detector.commands.trial.simulate import _COLUMNS, _table, simulate
from detector.simulator.campaign import Summary

SCENARIOS = Path(__file__).parents[1] / "scenarios"


def run(*args: str) -> Result:
    return CliRunner().invoke(simulate, list(args))


def test_the_summary_counts_worlds_and_snapshots() -> None:
    result = run("--seeds", "0..20", "--cores", "1")
    assert result.exit_code == 0, result.output
    assert "20 worlds" in result.output
    assert "every promise was kept" in result.output


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (80, ["world", "worlds", "snapshots", "incomplete", "deadlocks", "undetermined", "broken"]),
        (200, list(_COLUMNS)),
    ],
)
def test_a_narrow_terminal_shows_the_columns_that_fit(width: int, shown: list[str]) -> None:
    summary = Summary(name="fleet-locks", runs=1_000, steps=1_234_567, snapshots=12_345)
    out = Console(file=io.StringIO(), width=width, color_system=None)
    with out.capture() as text:
        out.print(_table([summary], width))
    head, row = text.get().splitlines()
    assert re.split(r"\s{2,}", head.strip()) == shown
    assert row.split()[:2] == ["fleet-locks", "1,000"]
    assert max(len(head.rstrip()), len(row.rstrip())) <= width
    assert "…" not in text.get()


def test_one_world_is_printed_step_by_step_and_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "out.svg"
    result = run("--world", "tokens", "--seed", "4", "--trace", "--diagram", str(picture))
    assert result.exit_code == 0, result.output
    assert "begins snapshot 1 of" in result.output
    assert picture.read_text(encoding="utf-8").startswith("<svg")


def test_the_same_seed_prints_the_same_run() -> None:
    assert run("--world", "fans", "--seed", "2", "--trace").output == run("--world", "fans", "--seed", "2", "--trace").output


def test_a_scenario_file_is_run(tmp_path: Path) -> None:
    result = run(str(SCENARIOS / "single_token.txt"), "--diagram", str(tmp_path / "token.svg"))
    assert result.exit_code == 0, result.output
    assert (tmp_path / "token.svg").exists()


def test_an_invalid_scenario_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_text("fly a b\n", encoding="utf-8")
    result = run(str(tmp_path / "bad.txt"))
    assert result.exit_code == 1
    assert "bad.txt: line 1" in result.output


def test_an_invalid_range_of_seeds_is_refused() -> None:
    result = run("--seeds", "9..3")
    assert result.exit_code == 2
    assert "A..B with A less than B" in result.output
