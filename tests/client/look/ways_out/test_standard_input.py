"""Code that watches standard input goes on by itself if it does so with a timeout."""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from stilltrue import Agent
from tests.client.look.ways_out.closing import FAR_SECONDS
from tests.client.look.worlds import Stuck, holders, look_at, of, report_when, serving

WARM = 100
"""Rounds after which CPython has specialised an instruction."""


def selects_with_a_timeout(channel: Any) -> None:
    select.select([sys.stdin], [], [], FAR_SECONDS)
    channel.close()


def selects_often(channel: Any) -> None:
    for seconds in (*[0.0] * WARM, FAR_SECONDS):
        select.select([sys.stdin], [], [], seconds)
    channel.close()


def selects_without(channel: Any) -> None:
    select.select([sys.stdin], [], [])
    channel.close()


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], object]]:
    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield lambda: os.write(writing, b"end")
    os.close(writing)


@pytest.mark.parametrize(("act", "expected"), [(selects_with_a_timeout, ["-"]), (selects_often, ["-"]), (selects_without, [])])
def test_whether_code_that_watches_standard_input_may_close_the_channel(
    alone: Callable[..., Agent], stuck: Stuck, feed: Callable[[], object], act: Callable[[Any], None], expected: list[str]
) -> None:
    front, back = alone("front"), alone("back")
    with serving(back, Get=stuck) as address, grpc.insecure_channel(address) as plain:
        channel = front.channel(plain)
        caller = threading.Thread(target=channel.unary_unary("/s/Get"), args=(b"",), name="caller")
        beside = threading.Thread(target=act, args=(channel,))
        beside.start()
        caller.start()
        stuck.wait_for_callers()
        report = report_when(front, lambda report: any(wait.waiter == "front/thread:caller" for wait in report.waits))
        seen = of(look_at(front, report), "front/thread:caller")
        stuck.go.set()
        caller.join()
        feed()
        beside.join()
    assert holders(seen) == expected
