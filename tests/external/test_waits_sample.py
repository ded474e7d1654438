"""Eight wait graphs from reported bugs and papers, through `evaluate --jsonl`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from detector.commands.archives.evaluate import evaluate
from tests.external.shared import published


@pytest.fixture
def suite() -> Path:
    return published("suites/waits-sample.jsonl")


def test_every_published_case_is_right(suite: Path) -> None:
    result = CliRunner().invoke(evaluate, ["deadlock", "--jsonl", str(suite)])
    assert result.exit_code == 0, result.output
    documents = [json.loads(line) for line in suite.read_text(encoding="utf-8").splitlines()]
    verdicts = [json.loads(line) for line in result.stdout.splitlines()]
    assert [verdict["id"] for verdict in verdicts] == [document["id"] for document in documents]
    for document, verdict in zip(documents, verdicts, strict=True):
        assert {key: verdict[key] for key in document["expect"]} == document["expect"], document["id"]
