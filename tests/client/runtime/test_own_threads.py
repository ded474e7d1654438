"""The agent's threads are left out where a program lists its threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

import stilltrue
from stilltrue.runtime import own_threads


@pytest.mark.slow
def test_threads_of_the_agent_and_of_its_channel_are_left_out(detector: Any) -> None:
    before = set(threading.enumerate())
    with stilltrue.Agent("orders", detector=detector.address) as agent:
        agent.start()
        assert agent.wait_until_joined(10)
        listed = threading.enumerate()
        hidden = set(own_threads.all_threads()) - set(listed)
        assert "stilltrue-agent" in {one.name for one in hidden}
        assert (
            len([one for one in hidden if not one.name.startswith("stilltrue-")]) == 2
        )  # gRPC's: its events, and our requests
        assert not [one.name for one in listed if one.name.startswith("stilltrue-")]
        assert before <= set(listed)
        assert threading.active_count() == len(threading.enumerate())


@pytest.mark.slow
def test_threads_of_the_applications_channels_are_listed() -> None:
    """A program may wait for the end of its calls by them, as without the agent."""
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    own_threads.hide()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        before = set(threading.enumerate())
        call: Any = channel.stream_stream("/t.T/Do")(iter(threading.Event().wait, 1))  # type: ignore[arg-type]
        assert set(threading.enumerate()) > before
        call.cancel()
    server.stop(None)


def test_what_another_library_has_put_there_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def listing() -> list[threading.Thread]:
        return []

    monkeypatch.setattr(threading, "enumerate", listing)
    own_threads.hide()
    assert threading.enumerate is listing
