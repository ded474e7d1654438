"""The list of incidents: no wider than a terminal; core, times, time to detection, and how each ended."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence

import pytest
from rich.console import Console

from detector.commands.live.incidents import incident_table, print_incident
from detector.commands.shared.render import PIPE_WIDTH
from stilltrue.v1 import detector_pb2 as pb

LONG = [f"checkout-service-7d9f8c6b5-x2kq{at}/PlaceOrder#{at}" for at in range(9)]


def drawn(found: Sequence[pb.Incident], width: int = 1000, *, all_names: bool = False) -> list[str]:
    """The list as lines."""
    out = Console(file=io.StringIO(), width=width, color_system=None)
    with out.capture() as text:
        out.print(incident_table(found, all_names=all_names))
    return text.get().splitlines()


def incident(core: list[str], **rest: object) -> pb.Incident:
    now = time.time()
    given = {"id": "i-3fa9c2b1d0", "predicate": "deadlock", "opened": now - 60, "formed": now - 60.193, "core": core} | rest
    return pb.Incident(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [80, 100, 132])
def test_the_list_of_incidents_fits_a_terminal_without_broken_words(width: int) -> None:
    ended = "checkout-service-7d9f8c6b5-x2kq0 is no longer a member: its lease ran out without a word"
    rows = [
        incident(LONG, behind=LONG[:4]),
        incident(LONG[:2], opened=time.time() - 90 * 86400, formed=time.time() - 91 * 86400, closed=time.time(), ending=ended),
        incident(["x" * 300], predicate="gridlock"),
        incident(["orders/Place#49", "stock/Reserve#50"]),
    ]
    lines = drawn(rows, width)
    assert max(map(len, lines)) <= width
    words = {word for line in lines for word in line.split()}
    assert {"i-3fa9c2b1d0", "orders/Place#49,", "stock/Reserve#50"} <= words


def test_a_row_has_core_times_time_to_detection_and_state() -> None:
    head, row = drawn([incident(["a/1", "b/2"], behind=["c"])])
    assert head.split("  ")[0] == "id"
    assert row.startswith("i-3fa9c2b1d0")
    for said in ("1 min 0 s", "193 ms", "a/1, b/2 (1 more behind)", "open"):
        assert said in row
    (_, other) = drawn([incident(["a"], predicate="gridlock", closed=time.time(), ending="a went on")])
    assert "gridlock: a" in other
    assert "a went on" in other
    assert "open" not in other


def test_a_long_core_is_cut_and_counted() -> None:
    text = " ".join(" ".join(drawn([incident(LONG)])).split())
    assert "and 6 more" in text
    assert "PlaceOrder#2" in text.replace(" ", "")
    assert "PlaceOrder#3" not in text.replace(" ", "")


def test_in_a_pipe_an_incident_is_one_line() -> None:
    ended = "checkout-service-7d9f8c6b5-x2kq0 is no longer a member: its lease ran out without a word"
    found = [incident(LONG), incident(LONG, closed=time.time(), ending=ended)]
    lines = drawn(found, PIPE_WIDTH, all_names=True)
    assert len(lines) == 3
    assert all(name in line for line in lines[1:] for name in LONG)


@pytest.mark.parametrize(
    ("rest", "said"), [({}, False), ({"lost": ["a"]}, True), ({"closed": 2.0, "ending": "they went on"}, True)]
)
def test_unconfirmed_waits_are_shown_as_they_were(
    rest: dict[str, object], said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    print_incident(incident(["a", "b"], waits=["a has waited 1.2 s for b"], **rest))
    lines = capsys.readouterr().out.splitlines()
    assert ("  when it was first seen:" in lines) is said
    assert "  - a has waited 1.2 s for b" in lines
