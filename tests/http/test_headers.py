"""Names of requests, and addresses of connections, as they appear in headers."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest
from django.core.handlers.wsgi import LimitedStream

from stilltrue.http.headers import _cached_name, _cached_path, address_text, path_of, request_name
from stilltrue.http.incoming_request import receive_request
from stilltrue.http.wsgi import _peer
from stilltrue.model import ProcessId, ProcessName
from stilltrue.protocol.recorder import Recorder
from stilltrue.runtime.locked_recorder import LockedRecorder
from stilltrue.runtime.parties import Parties
from stilltrue.runtime.session import Session


@pytest.mark.parametrize(
    ("target", "method", "label"),
    [
        ("/", "GET /", "GET"),
        ("/orders", "GET /orders", "GET:orders"),
        ("/orders/41/lines/7", "GET /orders/{}/lines/{}", "GET:orders.{}.lines.{}"),
        ("/users/3f2b8c1e-77aa-4b1d-9d3e-0c7a51f0a1b2", "GET /users/{}", "GET:users.{}"),
        ("/files/deadbeef", "GET /files/deadbeef", "GET:files.deadbeef"),
        ("/files/deadbee5", "GET /files/{}", "GET:files.{}"),
        ("/search?q=secret#part", "GET /search", "GET:search"),
        ("/a%20b/c;d", "GET /a-b/c-d", "GET:a-b.c-d"),
        ("/" + "x" * 41, "GET /{}", "GET:{}"),
    ],
)
def test_a_request_is_named_by_its_verb_and_path_without_keys(target: str, method: str, label: str) -> None:
    assert request_name("GET", path_of(target)) == (method, label)


def test_long_paths_are_named_and_not_cached() -> None:
    """A stranger may send thousands of different paths of 64 KB."""
    before = _cached_name.cache_info(), _cached_path.cache_info()
    assert request_name("GET", path_of("/orders/" + "%20" * 20_000)) == ("GET /orders/{}", "GET:orders.{}")
    assert (_cached_name.cache_info(), _cached_path.cache_info()) == before


def test_short_paths_are_cached() -> None:
    for _ in range(2):
        request_name("GET", path_of("/remembered/once"))
    before = _cached_name.cache_info(), _cached_path.cache_info()
    request_name("GET", path_of("/remembered/once"))
    hits = _cached_name.cache_info().hits - before[0].hits, _cached_path.cache_info().hits - before[1].hits
    assert hits == (1, 1)


@pytest.fixture
def session() -> Session:
    name = ProcessName("s")
    live = LockedRecorder(lambda: Recorder(process=ProcessId(service="s", instance=name, incarnation=1)), clock=lambda: 1000.0)
    return Session(live, Parties(name), enabled=True, excluded=("secret.*",))


def test_a_long_verb_is_cut(session: Session) -> None:
    call = receive_request(
        session, "V" * 60_000, "/orders/7", stamps=[], claimed="", peer="", proxied=False, interruptible=False
    )
    assert call is not None
    assert call.served.method == f"{'V' * 20} /orders/{{}}"


def test_exclusion_of_a_long_method_is_not_cached(session: Session) -> None:
    short, long = "/secret.Vault/Open", "/secret.Vault/" + "x" * 10_000
    assert (session.leaves_out(short), session.leaves_out(long), session.leaves_out(long.encode())) == (True, True, True)
    assert (session.leaves_out("/s/M"), session.leaves_out("/s/" + "x" * 10_000)) == (False, False)
    assert session.left_out == {short: True, "/s/M": False}


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (("127.0.0.1", 4711), "127.0.0.1 4711"),
        (("::ffff:127.0.0.1", 4711, 0, 0), "127.0.0.1 4711"),
        (("::1", 4711, 0, 0), "::1 4711"),
        (("fe80::1%eth0", 4711), "fe80::1 4711"),
        (["10.0.0.7", "4711"], "10.0.0.7 4711"),
        (("testclient", 50000), ""),
        (("127.0.0.1", 0), ""),
        ("/run/socket", ""),
        (None, ""),
    ],
)
def test_both_ends_write_an_address_in_the_same_way(address: Any, text: str) -> None:
    assert address_text(address) == text


@pytest.mark.parametrize("around", [lambda body: body, lambda body: LimitedStream(body, 0)], ids=["plain", "Django's"])
def test_without_a_port_in_the_scope_it_is_read_from_the_bodys_socket(around: Callable[[Any], Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()) as caller:
        accepted, address = listening.accept()
        with accepted, accepted.makefile("rb") as body:
            assert _peer({"REMOTE_ADDR": "127.0.0.1", "wsgi.input": around(body)}) == address_text(address)
        assert caller.getsockname() == address
