"""What is said in headers: names of requests, and addresses of connections, in one form."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest
from django.core.handlers.wsgi import LimitedStream

from stilltrue.http.headers import address_text, named, path_of
from stilltrue.http.wsgi import _peer


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
    assert named("GET", path_of(target)) == (method, label)


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
def test_where_a_server_tells_no_port_it_is_read_of_the_socket_beneath_the_body(around: Callable[[Any], Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()) as caller:
        accepted, address = listening.accept()
        with accepted, accepted.makefile("rb") as body:
            assert _peer({"REMOTE_ADDR": "127.0.0.1", "wsgi.input": around(body)}) == address_text(address)
        assert caller.getsockname() == address
