"""Calls on a server that ends connections by age: their waits are known to end by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stilltrue import Agent
from stilltrue.runtime.calls.server_options import call_seconds_max
from tests.client.shells import SHELLS, make_world

Alone = Callable[..., Agent]
AGE = ("grpc.max_connection_age_ms", 40_000)
GRACE = ("grpc.max_connection_age_grace_ms", 4_000)


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        ([], None),
        ([AGE], None),  # connections are closed gracefully, and their calls go on
        ([GRACE], None),
        ([AGE, GRACE], 48.0),
        ([AGE, ("grpc.max_connection_age_grace_ms", 2**31 - 1)], None),
        (["what is this"], None),
    ],
)
def test_only_an_age_with_a_grace_ends_calls(options: list[Any], seconds: float | None) -> None:
    assert call_seconds_max(options) == seconds


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("options", "ends"), [([AGE, GRACE], True), ([("grpc.so_reuseport", 0)], False)])
def test_a_call_on_a_connection_of_bounded_age_has_a_deadline(
    shell: str, alone: Alone, options: list[tuple[str, int]], ends: bool
) -> None:
    world = make_world(shell, alone, options=options)
    calls = [world.start("Do", b"x"), world.start("Do", b"y", timeout=20)]
    world.until(lambda: len(world.served()) == 2 and any(serving for serving, _ in world.served()))
    report = world.report(world.server)
    left = {call.number: call.deadline and call.deadline - report.cut_at for call in report.served}
    left_of_first, left_of_second = sorted(left.values(), key=lambda seconds: seconds or 100.0, reverse=True)
    assert (left_of_first is not None) == ends
    assert left_of_first is None or 20 < left_of_first <= 48
    assert left_of_second is None or left_of_second <= 48
    world.go.set()
    assert [call.result() for call in calls] == [b"x", b"y"]
    world.settle()
    world.close()
