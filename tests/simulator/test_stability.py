"""check-predicate: an unstable predicate is detected and its run shrunk; a stable one passes."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from detector.commands.trial.check_predicate import check_predicate
from detector.core.snapshot import Snapshot
from detector.predicates.termination import Termination
from detector.simulator.checks.stability import WORLDS, check
from stilltrue.model import Holds, Verdict, Witness


class SomebodyWaits:
    """Holds while any party waits, so it is not stable."""

    name = "somebody-waits"

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        """TRUE if there is a wait."""
        holds = Holds.TRUE if len(snapshot.waits) else Holds.FALSE
        witness = Witness(kind="count", parties=(), text=f"{len(snapshot.waits)} waits")
        return Verdict(predicate=self.name, holds=holds, witness=witness, snapshot=snapshot.ref)


def test_an_unstable_predicate_is_detected_in_a_small_run() -> None:
    found = check(SomebodyWaits, worlds=50)
    assert found is not None
    assert (found.held.holds, found.fell.holds) == (Holds.TRUE, Holds.FALSE)
    assert len(found.plan.roots) == 1
    assert any("somebody-waits true" in line for line in found.story)
    assert found.events


def test_a_stable_predicate_never_falls() -> None:
    counted: list[int] = []
    assert check(Termination, worlds=2 * len(WORLDS), progress=counted.append) is None
    assert counted == list(range(1, 2 * len(WORLDS) + 1))


def test_the_command_prints_the_run_and_draws_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(__file__).read_text(encoding="utf-8").split("def test_")[0]
    (tmp_path / "waiting_predicate.py").write_text(source, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    result = CliRunner().invoke(check_predicate, ["waiting_predicate:SomebodyWaits", "--diagram", "why.svg"])
    assert result.exit_code == 1, result.output
    assert "is not stable: it held in snapshot" in result.output
    assert (tmp_path / "why.svg").read_text(encoding="utf-8").startswith("<svg")


def test_a_predicate_that_raises_is_one_line_that_names_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "class Fails:\n    name = 'fails'\n\n    def evaluate(self, snapshot):\n        return snapshot.wates\n"
    (tmp_path / "failing_predicate.py").write_text(source, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    result = CliRunner().invoke(check_predicate, ["failing_predicate:Fails"])
    assert result.exit_code == 2
    assert result.stderr.startswith("stilltrue: failing_predicate:Fails: predicate 'fails' failed: AttributeError: ")
    assert result.stderr.endswith(" (failing_predicate.py:5 in evaluate)\n")


def test_an_invalid_entry_point_is_refused_in_one_line() -> None:
    for place, said in (
        ("nothing", "is not a valid MODULE:CLASS"),
        ("no_such_module:X", "cannot import"),
        ("json:JSONDecoder", "is not a predicate"),
    ):
        result = CliRunner().invoke(check_predicate, [place])
        assert result.exit_code == 2
        assert said in result.output
