"""The agent's reading of its connections: both ends give one the same name, and doubtful data is left out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from stilltrue import Agent
from stilltrue.model import SnapshotId
from stilltrue.protocol.report import Connection, Report, SentOver
from stilltrue.runtime.compat import options_of, target_of
from stilltrue.runtime.transport.channelz import SERVERS, TARGETS, peer_address, was_connected_once
from stilltrue.runtime.transport.endpoint import Endpoint
from tests.client.look.worlds import PATIENCE_SECONDS, Stuck, report_of, report_when, serving

Agents = Callable[..., Agent]
OPTIONS = (("grpc.use_local_subchannel_pool", 1),)


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:127.0.0.1:5", "127.0.0.1:5"),
        ("ipv6:%5B::1%5D:5", "[::1]:5"),
        ("ipv6:[::ffff:127.0.0.1]:5", "127.0.0.1:5"),
        ("unix:/tmp/socket", None),
        ("ipv4:nonsense", None),
        ("", None),
    ],
)
def test_an_address_has_one_form(peer: str, address: str | None) -> None:
    assert peer_address(peer) == address


FIRST = "Channel created"
BEGUN = [FIRST, "Channel state change to CONNECTING", "Resolution event: Address list became non-empty"]
READY = "Channel state change to READY"


@pytest.mark.parametrize(
    ("events", "logged", "once"),
    [
        ([*BEGUN, READY], 0, True),
        ([*BEGUN, READY, READY], 5, True),
        (BEGUN, 0, False),
        ([*BEGUN, READY, "Channel state change to IDLE", READY], 0, False),
        ([*BEGUN, READY, "Resolution event: Address list changed"], 0, False),
        ([*BEGUN[1:], READY], 0, False),  # the first events have been dropped
        ([*BEGUN, READY], 9, False),  # some events have been dropped
        ([], 0, False),
    ],
)
def test_a_channels_trace_shows_whether_it_connected_only_once(events: list[str], logged: int, once: bool) -> None:
    trace = {"events": [{"description": event} for event in events], "numEventsLogged": str(logged)}
    assert was_connected_once({"state": {"state": "READY"}, "trace": trace}, FIRST) is once
    assert not was_connected_once({"state": {"state": "IDLE"}, "trace": trace}, FIRST)
    assert not was_connected_once({}, FIRST)


def test_both_ends_of_a_connection_have_its_name_and_its_counts(alone: Agents) -> None:
    server, client = alone("server"), alone("client")
    stuck = Stuck()
    with serving(server, Do=stuck) as address, grpc.insecure_channel(address, options=OPTIONS) as channel:
        method: Any = client.channel(channel, address).unary_unary("/s/Do")
        call = method.future(b"x")
        stuck.wait_for_callers()
        (here,) = (TARGETS.read() or {})[f"dns:///{address}"] or ()
        there = [one for ends in (SERVERS.read() or {}).values() for one in ends.values() if one.name == here.name]
        assert [(one.begun, one.ended) for one in there] == [(here.begun, here.ended)] == [(1, 0)]
        stuck.go.set()
        assert call.result() == b"x"


def test_an_awaited_call_is_reported_with_its_connection_while_it_lasts(alone: Agents) -> None:
    server, client = alone("server"), alone("client")
    stuck = Stuck()

    def told(report: Report) -> tuple[SentOver, ...]:
        return client.transport.with_connections(report).sent_over

    with serving(server, Do=stuck) as address, grpc.insecure_channel(address, options=OPTIONS) as channel:
        waiting = threading.Thread(target=client.channel(channel, address).unary_unary("/s/Do"), args=(b"x",))
        waiting.start()
        stuck.wait_for_callers()
        (sent,) = told(report_when(client, lambda report: bool(told(report))))
        assert [one.name.partition(">")[2] for one in sent.connections] == [address]
        stuck.go.set()
        waiting.join(PATIENCE_SECONDS)
        assert not told(report_of(client)), "nobody waits any more"


def test_a_server_is_found_by_a_call_of_its_own_though_the_first_readings_are_older() -> None:
    endpoint = Endpoint()
    assert endpoint.wants_peer
    endpoint.peer = "127.0.0.1:5"
    there = {3: {"127.0.0.1:5": Connection(name="x")}, 4: {"127.0.0.1:6": Connection(name="y")}}
    endpoint.find({3: {}, 4: there[4]})
    assert (endpoint.server, endpoint.wants_peer) == (None, False), "the reading may be older than the call"
    endpoint.find(there)
    assert (endpoint.server, endpoint.wants_peer) == (3, False)


def test_a_call_without_one_clear_connection_is_replaced_by_a_later_one() -> None:
    endpoint = Endpoint()
    endpoint.peer = "127.0.0.1:5"
    two = {number: {"127.0.0.1:5": Connection(name=f"{number}")} for number in (3, 4)}
    for servers in (two, {}, two):
        endpoint.find(servers)
    assert (endpoint.server, endpoint.wants_peer) == (None, True)


def test_the_target_and_the_options_are_those_of_grpcs_own_channel() -> None:
    class Idle(grpc.UnaryUnaryClientInterceptor):
        def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
            return continuation(details, request)

    with grpc.insecure_channel("127.0.0.1:9", options=(("grpc.x", 1),)) as channel:
        assert target_of(channel) == "dns:///127.0.0.1:9"
        assert ("grpc.x", 1) in (options_of(channel) or ())
        above = grpc.intercept_channel(channel, Idle())
        assert target_of(above) is None
        assert options_of(above) is None
    with grpc.insecure_channel("unix:/tmp/nobody") as channel:
        assert target_of(channel) is None


def test_a_report_without_long_waits_has_no_connections(alone: Agents) -> None:
    agent = alone("alone")
    report = agent.live.marked(SnapshotId(1))
    assert report is not None
    assert agent.transport.with_connections(report) is report
