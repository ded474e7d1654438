"""The quick part of the transparency matrix: the usual outcomes, alone and with some neighbours. `make matrix` runs all."""

from __future__ import annotations

import re

import pytest

from tests.transparency import matrix
from tests.transparency.neighbours import NEIGHBOURS
from tests.transparency.words import in_words

pytestmark = pytest.mark.slow


def test_an_application_cannot_tell_whether_the_agent_is_there() -> None:
    different, count = matrix.differences(
        "none", matrix.cells(outcomes=("ok", "status", "abort", "raise", "cancel", "never read"))
    )
    assert different == {}
    assert count > 200


@pytest.mark.parametrize(
    "neighbour", ["OpenTelemetry, then the agent", "the agent, then OpenTelemetry", "an interceptor that yields"]
)
def test_an_application_cannot_tell_beside_other_instrumentation_either(neighbour: str) -> None:
    told = matrix.cells(styles=("threads", "loop"), outcomes=("ok", "abort"))
    assert matrix.differences(neighbour, told) == ({}, len(told))


def test_the_published_table_covers_these_calls_and_neighbours() -> None:
    found: matrix.Results = {name: ({}, len(matrix.cells_beside(name))) for name in NEIGHBOURS}
    published = matrix.DOCUMENT.read_text()
    runtimes = re.findall(r"\| differences, ([^|]+?) (?=\|)", published)
    assert published == matrix.table(dict.fromkeys(runtimes, found))
    oldest = re.findall(r"(grpcio|protobuf)>=([\d.]+)", (matrix.ROOT / "clients/python/pyproject.toml").read_text())
    assert runtimes[0] == ", ".join(" ".join(each) for each in oldest)
    assert len(runtimes) == 2


def test_the_oldest_runtime_of_the_matrix_is_the_one_declared() -> None:
    made = re.findall(r"(grpcio|protobuf)==([\d.]+)", (matrix.ROOT / "Makefile").read_text())
    declared = re.findall(r"(grpcio|protobuf)>=([\d.]+)", (matrix.ROOT / "clients/python/pyproject.toml").read_text())
    assert made == declared


def test_a_difference_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(name: str, kind: str, cells: list[matrix.Cell], python: str) -> dict[str, object]:
        return {**{cell.key: ["same", kind] for cell in cells}, "left": [], "faults": 0}

    monkeypatch.setattr(matrix, "in_process", told)
    cell = matrix.Cell("threads", "loop", "unary_unary", "ok", "task")
    different, _ = matrix.differences("none", [cell])
    assert list(different) == [cell.key]
    assert matrix.first_difference(["same", "plain"], ["same", "attached"]) == 'plain "plain" | attached "attached"'


def test_normalised_texts_omit_only_what_varies() -> None:
    assert in_words((("key", "value"), ("user-agent", "1"))) == ["key='value'"]
    assert in_words((("stilltrue-stamp", "1"),)) != []
    assert in_words("at 127.0.0.1:4711, 0xdeadbeef") == "'at ADDRESS, 0x'"
    assert in_words([True, None, 3, 2.5]) == [True, None, 3, "a time"]
