"""The agent's connection: hello, markers (answered even if the application is blocked), leases, requests, goodbye."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio
import pytest

from stilltrue import Agent
from stilltrue.model import PartyName, SnapshotId
from stilltrue.protocol.report import CallTarget, PartyTarget
from stilltrue.protocol.requests.look import Look, LookRequest, Suspect
from stilltrue.protocol.wire.look import request_to_wire
from stilltrue.runtime.membership import connection
from stilltrue.runtime.own_threads import all_threads
from stilltrue.v1 import agent_pb2 as pb

Join = Callable[..., Agent]


def test_an_agent_says_hello_leases_and_goodbye(detector: Any, join: Join) -> None:
    agent = join("orders", labels={"zone": "a"}, reactive=True)
    hello = detector.heard[0][1].hello
    assert (hello.process.service, hello.process.instance, dict(hello.labels)) == ("orders", "orders", {"zone": "a"})
    assert hello.reactive
    assert hello.process.incarnation == agent.process.incarnation
    detector.wait_for(lambda: "lease" in detector.kinds("orders"))
    agent.close()
    detector.wait_for(lambda: "goodbye" in detector.kinds("orders"))


def test_a_goodbye_waits_for_a_search_and_ends_it(detector: Any, join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search takes a second where the processor is shared; a process that did not wait ended without a goodbye."""
    agent = join("searching")
    leaving, searching, goes_on = agent._connection, threading.Event(), list[str]()
    assert leaving is not None

    def first() -> None:
        searching.set()
        time.sleep(1.0)

    searchers = agent._observer.searchers
    monkeypatch.setattr(searchers.signals, "search", first)
    monkeypatch.setattr(searchers.reached, "search", lambda: goes_on.append("went on"))
    detector.mark(1)
    assert searching.wait(20)
    agent.close()
    assert leaving._goodbye_sent.is_set()
    detector.wait_for(lambda: detector.kinds("searching")[-1:] == ["goodbye"])
    assert not goes_on


def test_a_search_with_more_to_do_goes_on_between_reports_until_it_has_done_all(
    detector: Any, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched, done = list[float](), threading.Event()

    def search(_: Agent) -> bool:
        searched.append(time.monotonic())
        if len(searched) == 4:
            done.set()
        return not done.is_set()

    monkeypatch.setattr(Agent, "_search", search)
    join("one")
    time.sleep(0.5)
    assert not searched, "nothing is searched before the first cut"
    detector.mark(1)
    detector.report("one", 1)
    assert done.wait(20)
    time.sleep(1.0)
    assert len(searched) == 4, "after one report and at three ticks, and no more"


def test_a_process_that_is_welcomed_while_it_leaves_is_not_shown_as_a_member(join: Join) -> None:
    agent = join("leaving")
    leaving = agent._connection
    assert leaving is not None
    agent.close()
    leaving._handle(pb.ConnectResponse(welcome=pb.Welcome(detector="test", lease_seconds=1.0)), threading.Event())
    assert leaving.mark._descriptor is None


def test_a_marker_is_answered_with_a_report_and_an_old_one_with_a_lease(detector: Any, join: Join) -> None:
    join("orders")
    detector.mark(7)
    report = detector.report("orders", 7)
    assert (report.after, report.snapshot) == (0, 7)
    heard = len(detector.heard)
    detector.mark(5)
    detector.wait_for(lambda: any(r.lease.colour == 7 for _, r in detector.heard[heard:]))


def test_a_detector_that_accepts_differences_gets_only_the_changes(detector: Any, join: Join) -> None:
    detector.differences = True
    live = join("orders").live
    told: list[Any] = []

    def mark(snapshot: int) -> Any:
        detector.mark(snapshot)
        told[:] = detector.wait_for(lambda: [r.difference for _, r in detector.heard if r.difference.snapshot >= snapshot])
        return told[-1]

    first = mark(1)
    assert (first.base, first.after, len(first.pieces)) == (0, 0, 1)
    second = mark(2)
    assert (second.base, second.after, len(second.pieces)) == (1, 1, 0)
    live.waits(PartyName("orders/x"), (PartyTarget(party=PartyName("orders/x")),))
    third = mark(3)
    assert third.base == 2
    assert b"orders/x" in b"".join(piece.fields for piece in third.pieces)
    assert "report" not in detector.kinds("orders")


def test_a_process_answers_a_request_to_look_again(detector: Any, join: Join) -> None:
    live = join("orders").live
    assert detector.heard[0][1].hello.looks
    party = PartyName("orders/x")
    number = live.waits(party, (PartyTarget(party=party),), deadline=1_000.0)
    request = LookRequest(snapshot=SnapshotId(1), suspects=(Suspect(party=party, waits=(number,)),))
    (seen,) = detector.look("orders", request).parties
    assert (seen.unchanged, seen.deadline) == (True, 1_000.0)
    live.resumes(number)
    (seen,) = detector.look("orders", replace(request, snapshot=SnapshotId(2))).parties
    assert not seen.unchanged


def test_a_failing_look_sends_no_answer_and_keeps_the_stream(
    detector: Any, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    join("orders")
    monkeypatch.setattr("stilltrue.runtime.look.looker.Look", None)
    suspect = Suspect(party=PartyName("orders/x"), waits=())
    assert detector.look("orders", LookRequest(snapshot=SnapshotId(1), suspects=(suspect,))).parties == ()
    detector.mark(7)
    assert detector.report("orders", 7).snapshot == 7


class SlowLook:
    """Stands in a look until it may go on."""

    def __init__(self, agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        connected = agent._connection
        assert connected is not None
        self._real = connected._detector_requests._look
        monkeypatch.setattr(connected._detector_requests, "_look", self)

    def __call__(self, request: LookRequest) -> Look:
        self.begun.set()
        assert self.go_on.wait(10)
        return self._real(request)


def test_a_marker_does_not_wait_for_a_look(detector: Any, join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    look = SlowLook(join("orders"), monkeypatch)
    for snapshot in (1, 2):
        detector.marks["orders"].put(request_to_wire(LookRequest(snapshot=SnapshotId(snapshot), suspects=())))
    assert look.begun.wait(10)
    detector.mark(7)
    assert detector.report("orders", 7).snapshot == 7
    assert "looked" not in detector.kinds("orders")
    look.go_on.set()
    detector.wait_for(lambda: detector.kinds("orders").count("looked") == 2)


def test_a_fork_waits_for_the_look(detector: Any, join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = join("orders")
    look, connected = SlowLook(agent, monkeypatch), agent._connection
    assert connected is not None
    detector.marks["orders"].put(request_to_wire(LookRequest(snapshot=SnapshotId(1), suspects=())))
    assert look.begun.wait(10)
    locks = connected.pause(0.1)
    assert locks == [connected._session_lock], "the look has not ended"
    connected.resume(locks)
    threading.Timer(0.1, look.go_on.set).start()
    locks = connected.pause(10.0)
    assert len(locks) == 2
    connected.resume(locks)


def one_method(behaviour: Any) -> grpc.GenericRpcHandler:
    return grpc.method_handlers_generic_handler("t.T", {"Do": grpc.unary_unary_rpc_method_handler(behaviour)})


def test_markers_are_answered_while_the_pool_is_full_with_its_queue(detector: Any, join: Join) -> None:
    caller, server = join("caller"), join("server")
    go = threading.Event()

    def behaviour(request: bytes, context: Any) -> bytes:
        assert go.wait(10)
        return request

    served = grpc.server(
        server.pool(ThreadPoolExecutor(1)), handlers=[one_method(behaviour)], interceptors=[server.server_interceptor()]
    )
    port = served.add_insecure_port("127.0.0.1:0")
    served.start()
    with caller.channel(grpc.insecure_channel(f"127.0.0.1:{port}")) as channel:
        threads = [threading.Thread(target=channel.unary_unary("/t.T/Do"), args=(b"x",)) for _ in range(2)]
        for thread in threads:
            thread.start()
        wait_until(lambda: sorted(call.serving for call in list(server.live.recorder.calls_served.values())) == [False, True])
        detector.mark(1)
        report, made = detector.report("server", 1), detector.report("caller", 1)
        go.set()
        for thread in threads:
            thread.join()
    served.stop(0)
    assert sorted(call.serving for call in report.served) == [False, True]
    assert {call.pool for call in report.served} == {"pool-1"}
    assert [(pool.size, pool.queued) for pool in report.pools] == [(1, 1)]
    assert {target for wait in made.waits for target in wait.among} == {CallTarget(number=c.number) for c in made.made}
    assert {wait.waiter for wait in made.waits} == {call.party for call in made.made}
    assert len(made.waits) == 2


def wait_until(found: Callable[[], Any]) -> None:
    end = time.monotonic() + 10
    while not found():
        assert time.monotonic() < end
        time.sleep(0.002)


async def test_markers_are_answered_while_the_event_loop_is_blocked(detector: Any, join: Join) -> None:
    join("orders")
    detector.mark(3)
    # this line blocks the loop until the report has arrived
    assert detector.report("orders", 3).snapshot == 3


def test_a_long_wait_requests_snapshots_again_and_again(detector: Any, join: Join) -> None:
    caller = join("caller", block_seconds_max=0.05)
    listening = socket.create_server(("127.0.0.1", 0))
    with caller.channel(grpc.insecure_channel(f"127.0.0.1:{listening.getsockname()[1]}")) as channel:
        thread = threading.Thread(target=ignoring_errors, args=(channel.unary_unary("/t.T/Do"),))
        thread.start()
        detector.wait_for(lambda: detector.kinds("caller").count("wish") >= 2)
    thread.join()
    listening.close()


def ignoring_errors(call: Callable[..., Any]) -> None:
    with contextlib.suppress(grpc.RpcError, ValueError):  # its channel was closed
        call(b"x")


def test_a_short_wait_requests_none(detector: Any, join: Join) -> None:
    caller = join("caller", block_seconds_max=3600)
    number = caller.live.waits(PartyName("caller/x"), ())
    detector.wait_for(lambda: detector.kinds("caller").count("lease") >= 3)
    caller.live.resumes(number)
    assert "wish" not in detector.kinds("caller")


def test_an_agent_leaves_a_detector_that_never_answers() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{listening.getsockname()[1]}"
    agent = Agent("orders", instance="orders", detector=address, welcome_seconds_max=0.1, backoff_seconds_max=0.1)
    try:
        agent.start()
        for _ in range(2):  # connected, disconnected, connected again
            listening.settimeout(10)
            listening.accept()
        server = grpc.server(ThreadPoolExecutor(1), handlers=[one_method(lambda request, context: request)])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        with agent.channel(grpc.insecure_channel(f"127.0.0.1:{port}")) as channel:
            do: Any = channel.unary_unary("/t.T/Do")
            assert do(b"x") == b"x"
        server.stop(0)
    finally:
        agent.close()
        listening.close()


def test_an_agent_rejoins_a_detector_that_returns(detector: Any, join: Join) -> None:
    agent = join("orders", backoff_seconds_max=0.1)
    port = int(detector.address.rsplit(":", 1)[1])
    detector.server.stop(0).wait()
    back = type(detector)(port)
    try:
        back.wait_for(lambda: "hello" in back.kinds("orders"))
        assert agent.wait_until_joined(10)
        back.mark(4)
        assert back.report("orders", 4).snapshot == 4
    finally:
        back.server.stop(0)


def test_the_absence_of_a_detector_begins_when_it_leaves(
    detector: Any, join: Join, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each restart of a detector made all agents warn at once that there is none, if they had been joined for long."""
    monkeypatch.setattr(connection, "ABSENT_SECONDS_MAX", 0.1)

    def told() -> list[logging.LogRecord]:
        return [one for one in caplog.records if detector.address in one.getMessage() and one.levelname != "INFO"]

    with caplog.at_level("DEBUG", "stilltrue"):
        join("orders", backoff_seconds_max=0.05)
        detector.wait_for(lambda: detector.kinds("orders").count("lease") >= 3)
        detector.server.stop(0).wait()
        wait_until(lambda: any(record.levelname == "WARNING" for record in told()))
    assert told()[0].levelname == "DEBUG"


def test_the_outbox_is_bounded_and_counts_dropped_reports(alone: Join) -> None:
    agent = alone("orders", reports_max=2)
    for snapshot in range(1, 5):
        report = agent.live.marked(SnapshotId(snapshot))
        assert report is not None
        agent.live.post(report)
    assert [report.snapshot for report in agent.live.reports] == [3, 4]
    assert agent.live.dropped == 2


def test_a_report_beyond_the_bound_is_dropped_and_logged_once(
    detector: Any, join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    detector.report_bytes_max = 10
    live = join("orders").live
    for snapshot in (1, 2):
        detector.mark(snapshot)
        wait_until(lambda: live.dropped >= snapshot)  # noqa: B023 - is over before the next one
    wait_until(lambda: any("report dropped" in record.getMessage() for record in caplog.records))
    assert "report" not in detector.kinds("orders")
    (logged,) = [record.getMessage() for record in caplog.records if "report dropped" in record.getMessage()]
    assert "bytes_max=10 (raise --report-bytes-max" in logged


def test_own_traffic_and_health_checks_are_left_out(detector: Any, join: Join) -> None:
    agent = join("orders")
    for method in ("/grpc.health.v1.Health/Check", "/stilltrue.v1.AgentService/Connect"):
        with agent.channel(grpc.insecure_channel("127.0.0.1:1")) as channel:
            ignoring_errors(channel.unary_unary(method))
    detector.mark(1)
    report = detector.report("orders", 1)
    assert (report.made, report.next_number) == ((), 1)


async def test_an_agent_never_touches_the_loop(detector: Any, join: Join) -> None:
    before = asyncio.all_tasks()
    join("orders")
    detector.mark(1)
    detector.report("orders", 1)
    assert asyncio.all_tasks() == before
    assert isinstance(
        Agent("x", detector="127.0.0.1:1", enabled=False).channel(grpc.aio.insecure_channel("a")), grpc.aio.Channel
    )


def test_a_detector_that_refuses_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    server = grpc.server(ThreadPoolExecutor(2))  # without an AgentService
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    agent = Agent("orders", instance="orders", detector=f"127.0.0.1:{port}", backoff_seconds_max=0.05)

    def told() -> list[logging.LogRecord]:  # about this detector: another test's agent may still be looking for its own
        return [record for record in caplog.records if f"127.0.0.1:{port}" in record.getMessage()]

    with caplog.at_level("DEBUG", "stilltrue"):
        agent.start()
        wait_until(lambda: len(told()) >= 3)
    agent.close()
    server.stop(None).wait()
    assert [record.levelname for record in told()[:3]] == ["WARNING", "DEBUG", "DEBUG"]
    assert "UNIMPLEMENTED" in told()[0].message


def test_a_long_absence_of_the_detector_is_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "ABSENT_SECONDS_MAX", 0.1)
    agent = Agent("orders", instance="orders", detector="127.0.0.1:1", backoff_seconds_max=0.05)

    def told() -> list[logging.LogRecord]:
        return [record for record in caplog.records if "127.0.0.1:1 " in record.getMessage()]

    with caplog.at_level("DEBUG", "stilltrue"):
        agent.start()
        wait_until(lambda: "WARNING" in [record.levelname for record in told()[:-3]])
    agent.close()
    warnings = [record.getMessage() for record in told() if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "UNAVAILABLE" in warnings[0]
    assert "Connection refused" in warnings[0]  # otherwise a wrong port looks like a wrong certificate
    assert "keeps trying" in warnings[0]


def test_the_next_address_is_dialled_when_one_fails(detector: Any) -> None:
    agent = Agent("a", instance="a", detector=f"127.0.0.1:1, {detector.address}")
    try:
        agent.start()
        assert agent.wait_until_joined(10)
    finally:
        agent.close()


def test_the_agents_wait_for_a_welcome_is_no_timer_of_the_application() -> None:
    """A timer that cancels a call is a way out of a deadlock, and work that is left to do."""
    listening = socket.create_server(("127.0.0.1", 0))
    agent = Agent("orders", instance="orders", detector=f"127.0.0.1:{listening.getsockname()[1]}", welcome_seconds_max=600)
    before = set(all_threads())
    try:
        agent.start()
        accepted, _ = listening.accept()
        end = time.monotonic() + 10
        while not (waiting := [one for one in all_threads() if one.name == "stilltrue-agent-welcome"]):
            assert time.monotonic() < end
        assert not [one for one in {*all_threads()} - before if isinstance(one, threading.Timer)]
        look = agent.looker().look(LookRequest(snapshot=SnapshotId(1), activity=True))
        assert not [text for text in look.unaccounted if "timer" in text or "stilltrue-agent" in text]
        accepted.close()
    finally:
        agent.close()
        listening.close()
    waiting[0].join(10)
    assert not waiting[0].is_alive(), "it ends with the attempt"
