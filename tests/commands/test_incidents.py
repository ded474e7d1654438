"""The list of incidents: no wider than a terminal, whatever the names; who, since when, how long until seen, how it ended."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence

from rich.console import Console

from detector.commands.incidents import WIDTH_MAX, incident_table
from stilltrue.v1 import detector_pb2 as pb

LONG = [f"checkout-service-7d9f8c6b5-x2kq{at}/PlaceOrder#{at}" for at in range(9)]


def drawn(found: Sequence[pb.Incident], width: int = WIDTH_MAX) -> list[str]:
    """The list as lines."""
    out = Console(file=io.StringIO(), width=1000, color_system=None)
    with out.capture() as text:
        out.print(incident_table(found, width))
    return text.get().splitlines()


def incident(core: list[str], **rest: object) -> pb.Incident:
    now = time.time()
    given = {"id": "i-3fa9c2b1d0", "predicate": "deadlock", "opened": now - 60, "formed": now - 60.193, "core": core} | rest
    return pb.Incident(**given)  # type: ignore[arg-type]


def test_it_fits_in_a_terminal_of_100_columns_whatever_the_names() -> None:
    ended = "checkout-service-7d9f8c6b5-x2kq0 is no longer a member: its lease ran out without a word"
    rows = [
        incident(LONG, behind=LONG[:4]),
        incident(LONG[:2], opened=time.time() - 90 * 86400, formed=time.time() - 91 * 86400, closed=time.time(), ending=ended),
        incident(["x" * 300], predicate="gridlock"),
    ]
    assert max(map(len, drawn(rows))) <= WIDTH_MAX


def test_a_row_says_who_since_when_how_long_unseen_and_whether_it_is_open() -> None:
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
    assert len(drawn([incident(LONG), incident(LONG, closed=time.time(), ending=ended)], width=1000)) == 3
