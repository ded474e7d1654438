"""A snapshot as text: on a terminal no line is too long, in a pipe each wait is one line."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from detector.commands.live.show import _print_snapshot
from detector.commands.shared.render import PIPE_WIDTH
from detector.core.document.reader import parse_document
from stilltrue.v1 import detector_pb2 as pb

CALL = "the reply of orders-7c9f8b6d5-x2x8k to /shop.orders.v1.Orders/ConfirmReservation"
MISSING = [f"billing-{number}" for number in range(12)]
DOCUMENT = {
    "processes": {"stock-vm-15700": {"service": "stock"}, "orders-7c9f8b6d5-x2x8k": {"service": "orders"}},
    "waits": [{"waiter": "stock-vm-15700/Reserve#1", "among": ["orders-7c9f8b6d5-x2x8k/Confirm#17"], "what": CALL}],
    "in_transit": [{"source": "stock-vm-15700", "target": "orders-7c9f8b6d5-x2x8k", "what": "request Note of " + CALL}],
    "missing": MISSING,
}


def printed(width: int) -> list[str]:
    answer = pb.GetSnapshotResponse()
    answer.summary.ref.id = 7
    answer.summary.missing.extend(MISSING)
    _, snapshot = parse_document(json.dumps(DOCUMENT), file="snapshot 7")
    out = Console(file=io.StringIO(), width=width, color_system=None, soft_wrap=True)
    with out.capture() as text:
        _print_snapshot(answer, snapshot, out)
    return text.get().splitlines()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_wait_and_a_message_are_wrapped_between_words_on_a_terminal(width: int) -> None:
    lines = [line.rstrip() for line in printed(width)[1:]]
    assert max(map(len, lines)) <= width
    assert any(line.startswith("    ") and "ConfirmReservation" in line for line in lines)


def test_a_wait_is_one_line_in_a_pipe() -> None:
    (wait,) = (line for line in printed(PIPE_WIDTH) if line.startswith("  stock-vm-15700/Reserve#1 "))
    assert "orders-7c9f8b6d5-x2x8k/Confirm#17" in wait
