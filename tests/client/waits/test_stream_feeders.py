"""A thread that feeds a request stream waits for the parties that can reach what its iterator waits for."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from stilltrue import Agent
from stilltrue.model import PartyName
from stilltrue.protocol.report import PartyTarget, Report, next_request_of
from stilltrue.protocol.requests.look import PartyLook
from stilltrue.runtime.compat import value_stack
from stilltrue.runtime.waits.reachability import thread_waits
from tests.client.look.worlds import PATIENCE_SECONDS, look_at, report_when, serving

pytestmark = [
    pytest.mark.usefixtures("only_this_file_counts"),
    pytest.mark.skipif(not value_stack._can_read(), reason="this interpreter's frames cannot be read"),
]
Chat = Callable[[Any], None]
LOOKS_SECONDS_MAX = 60.0
"""In a process that has run many tests, a look without bounds may take ten seconds."""


def by_a_queue(stub: Any) -> None:
    """The next request comes from a queue that the reader of the replies fills."""
    requests: queue.Queue[bytes | None] = queue.Queue()
    for reply in stub(iter(requests.get, None)):
        requests.put(reply or None)


def by_a_generator(stub: Any) -> None:
    """The next request is sent once the reader of the replies has set an event."""
    ready = threading.Event()

    def requests() -> Iterator[bytes]:
        ready.wait()
        yield b""

    for _ in stub(requests()):
        ready.set()


def by_another_thread_as_well(stub: Any) -> None:
    """As by a queue, which another thread can fill, too."""
    requests: queue.Queue[bytes | None] = queue.Queue()

    def later() -> None:
        _GO.wait(LOOKS_SECONDS_MAX)
        requests.put(None)

    threading.Thread(target=later, name="other", daemon=True).start()
    for reply in stub(iter(requests.get, None)):
        requests.put(reply or None)


_GO = threading.Event()


def _feeders(report: Report) -> list[str]:
    """The parties that feed a stream, as reported."""
    streams = {next_request_of(report.process.instance, call.number) for call in report.made}
    return [hold.party for hold in report.holds if hold.resource in streams]


def _waits_of_feeders(report: Report) -> list[set[str]]:
    feeders = _feeders(report)
    return [
        {one.party for one in wait.among if isinstance(one, PartyTarget)} for wait in report.waits if wait.waiter in feeders
    ]


def _chatting(alone: Callable[..., Agent], chat: Chat, then: Callable[[Agent], None]) -> None:
    """Run ``then`` while ``chat`` waits for a server that answers only once it is told to."""
    client, server, go = alone("client"), alone("server"), threading.Event()
    _GO.clear()

    def answer(requests: Iterator[bytes], _: Any) -> Iterator[bytes]:
        assert go.wait(LOOKS_SECONDS_MAX)
        yield b"1"
        yield b""

    with serving(server, Chat=("stream_stream", answer)) as address, grpc.insecure_channel(address) as plain:
        reader = threading.Thread(
            target=chat, args=(client.channel(plain).stream_stream("/s/Chat"),), name="reader", daemon=True
        )
        reader.start()
        try:
            then(client)
        finally:
            _GO.set()
            go.set()
            reader.join(PATIENCE_SECONDS)
    assert not reader.is_alive()


def _search_and_find(agent: Agent) -> Callable[[Report], bool]:
    def found(report: Report) -> bool:
        time.sleep(thread_waits.AGAIN_SECONDS)
        agent._observer.searchers.search(time.time())
        return bool(_waits_of_feeders(report))

    return found


def _certain_looks(agent: Agent, report: Report) -> dict[PartyName, PartyLook]:
    """The looks once none of them is in doubt: gRPC's thread may move while one is taken."""
    end = time.monotonic() + LOOKS_SECONDS_MAX
    while True:
        looks = {one.party: one for one in look_at(agent, report).parties}
        if all(one.unchanged and not one.doubt for one in looks.values()):
            return looks
        assert time.monotonic() < end, looks


@pytest.mark.parametrize("chat", [by_a_queue, by_a_generator], ids=lambda chat: chat.__name__)
def test_a_feeder_whose_next_request_only_the_reader_can_provide_waits_for_it(alone: Callable[..., Agent], chat: Chat) -> None:
    def then(client: Agent) -> None:
        report = report_when(client, _search_and_find(client), LOOKS_SECONDS_MAX)
        assert _waits_of_feeders(report) == [{"client/thread:reader"}]
        (feeder,) = _feeders(report)
        for _ in range(2):  # a look leaves nothing behind that the next would count as a reference
            looks = _certain_looks(client, report)
            assert {way.party for way in looks[PartyName("client/thread:reader")].ways_out} == {feeder}
            assert {way.party for way in looks[PartyName(feeder)].ways_out} <= {feeder}

    _chatting(alone, chat, then)


def test_a_feeder_also_waits_for_another_thread_that_can_provide_the_next_request(alone: Callable[..., Agent]) -> None:
    def then(client: Agent) -> None:
        report = report_when(client, _search_and_find(client), LOOKS_SECONDS_MAX)
        assert _waits_of_feeders(report) == [{"client/thread:other", "client/thread:reader"}]

    _chatting(alone, by_another_thread_as_well, then)
