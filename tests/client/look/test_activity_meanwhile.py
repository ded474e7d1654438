"""Work that goes on while a look for termination is taken: a step that is recorded meanwhile, work that changes its place."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from stilltrue import Agent
from stilltrue.model import SnapshotId
from stilltrue.protocol.requests.look import LookRequest
from stilltrue.runtime.look import looker
from stilltrue.runtime.look.termination.activity import unaccounted
from tests.client.look.activity import Gate, acting, echo
from tests.client.look.worlds import PATIENCE_SECONDS, serving


def test_a_call_made_and_answered_while_the_look_reads_counts_as_an_event_since_the_cut(
    alone: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timer that has fired when the look comes to it has left nothing but what was recorded."""
    front, read = alone("front"), unaccounted

    with serving(front, Do=echo) as address, grpc.insecure_channel(address) as channel:
        do: Any = front.channel(channel).unary_unary("/s/Do")
        do(b"")

        def fires_first(*arguments: Any) -> tuple[str, ...]:
            do(b"")
            return read(*arguments)

        monkeypatch.setattr(looker, "unaccounted", fires_first)
        before = front.live.recorder.happenings
        look = front.looker().look(LookRequest(snapshot=SnapshotId(1), activity=True))
        assert look.happenings == front.live.recorder.happenings > before


@pytest.mark.parametrize("to", ["thread", "loop"])
def test_work_that_moves_on_while_the_look_reads_is_found(
    alone: Callable[..., Agent], gate: Gate, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    """A job hands its rest to a thread that had been read already, or to a loop, and is over."""
    front, read, moved = alone("front"), unaccounted, threading.Event()
    loop = asyncio.new_event_loop()
    runs = threading.Thread(target=loop.run_forever)
    runs.start()

    async def rest() -> None:
        moved.set()
        await asyncio.sleep(PATIENCE_SECONDS)

    def moves_after(*arguments: Any) -> tuple[str, ...]:
        found = read(*arguments)
        if not moved.is_set() and to == "thread":
            threading.Thread(target=gate.work, name="rest", daemon=True).start()
            gate.is_reached()
            moved.set()
        elif not moved.is_set():
            asyncio.run_coroutine_threadsafe(rest(), loop)
            assert moved.wait(PATIENCE_SECONDS)
        return found

    with serving(front, Do=echo) as address, grpc.insecure_channel(address) as channel:
        do: Any = channel.unary_unary("/s/Do")
        do(b"")
        assert acting(front) == ()
        monkeypatch.setattr(looker, "unaccounted", moves_after)
        (text,) = acting(front)
        assert "thread rest" in text if to == "thread" else "rest" in text
    for task in asyncio.all_tasks(loop):
        loop.call_soon_threadsafe(task.cancel)
    loop.call_soon_threadsafe(loop.stop)
    runs.join()
    loop.close()
