"""A plug-in that raises or never ends affects only its own answer, and the error names it."""

from __future__ import annotations

import json
import signal
from contextlib import suppress

import pytest
from click.testing import CliRunner

from detector.commands.archives.evaluate import evaluate
from detector.commands.evaluation import offline
from detector.commands.evaluation.time_limit import OverrunError, time_limit
from detector.core.predicate import Predicate
from detector.core.snapshot import Snapshot
from detector.predicates.deadlock import Deadlock
from stilltrue.model import Verdict

FAR_SECONDS = 600.0


class Moody:
    """Raises over snapshot 1, never ends over snapshot 2, answers over all others."""

    name = "moody"

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        if snapshot.ref.id == 1:
            raise ValueError("not this one")
        while snapshot.ref.id == 2:
            with suppress(Exception):
                "".join(["stubborn"])
        return Deadlock().evaluate(snapshot)


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str, settings: object) -> Predicate:
        return Moody()

    monkeypatch.setattr(offline, "find_predicate", find)


def test_a_plug_ins_fault_leaves_the_other_lines_answered_with_exit_code_2() -> None:
    lines = "".join(json.dumps({"id": at}) + "\n" for at in range(4))
    result = CliRunner().invoke(evaluate, ["moody", "--jsonl", "--seconds-max", "2", "-"], input=lines)
    assert result.exit_code == 2
    verdicts = [json.loads(line) for line in result.stdout.splitlines()]
    assert {verdict["predicate"] for verdict in verdicts} == {"moody"}, "also where it passes on the answer of another one"
    assert [(verdict["id"], verdict["holds"], verdict["witness"]["kind"]) for verdict in verdicts] == [
        (0, False, "free"),
        (1, None, "failed"),
        (2, None, "overrun"),
        (3, False, "free"),
    ]
    assert result.stderr.splitlines() == [
        "stilltrue: -: 2: predicate 'moody' failed: ValueError: not this one (test_plugin_faults.py:30 in evaluate)",
        "stilltrue: -: 3: moody took longer than 2 s",
    ]


def test_a_document_that_was_not_evaluated_is_one_line_with_exit_code_2() -> None:
    result = CliRunner().invoke(evaluate, ["moody", "-", "--json"], input='{"id": 1}')
    assert (result.exit_code, result.stderr) == (
        2,
        "stilltrue: -: predicate 'moody' failed: ValueError: not this one (test_plugin_faults.py:30 in evaluate)\n",
    )


def forever() -> None:
    with time_limit(0.01):
        while True:
            pass


def test_a_time_limit_is_removed_afterwards() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(OverrunError, match=r"took longer than 0.01 s"):
        forever()
    with time_limit(FAR_SECONDS):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) == before


def test_one_that_is_up_before_the_block_begins_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGALRM)
    with monkeypatch.context() as patch:
        patch.setattr(signal, "setitimer", lambda *_: signal.raise_signal(signal.SIGALRM))
        with pytest.raises(OverrunError), time_limit(FAR_SECONDS):
            pytest.fail("the block has begun")
    assert signal.getsignal(signal.SIGALRM) == before
