"""The main algorithm as transcripts: each command prints the recorded output; ``pytest --rewrite-transcripts`` rewrites it."""

from __future__ import annotations

from pathlib import Path

import pytest

from detector.simulator.scenario.language import ScenarioError
from tests.simulator.transcript.play import replayed

FOLDER = Path(__file__).resolve().parent.parent / "transcripts"
FILES = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_transcript_matches_the_run(path: Path, request: pytest.FixtureRequest) -> None:
    written = path.read_text(encoding="utf-8")
    if request.config.getoption("--rewrite-transcripts"):
        path.write_text(replayed(written), encoding="utf-8")
    else:
        assert replayed(written) == written


def test_every_rule_has_its_transcript() -> None:
    text = " ".join(path.read_text(encoding="utf-8").replace("Rules 1 and 2", "Rule 1 and Rule 2") for path in FILES)
    text = text.replace("Rules 3 and 4", "Rule 3 and Rule 4")
    assert [rule for rule in (*range(1, 9), 10) if f"Rule {rule}" not in text] == []


def test_a_wrong_output_is_rewritten() -> None:
    assert replayed("process a\nask\n  nonsense\n") == "process a\nask\n  snapshot 1 begins: markers to a\n"


def test_an_invalid_command_is_named() -> None:
    with pytest.raises(ScenarioError, match=r"^line 2: fly a: unknown command; known: process, "):
        replayed("process a\nfly a\n")
