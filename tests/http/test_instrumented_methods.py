"""The replaced methods of HTTP libraries exist, are restored, and are replaced in later imports, too."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from typing import Any

import pytest

import stilltrue
from stilltrue.http import instrumented_methods

WHERE = [(module, place) for module, places in instrumented_methods.PLACES.items() for place in places]


def method_of(module: str, place: str) -> Any:
    owner, _, name = place.partition(".")
    return inspect.getattr_static(getattr(importlib.import_module(module), owner), name)


@pytest.mark.parametrize(("module", "place"), WHERE)
def test_each_place_exists_in_the_libraries_and_is_restored(module: str, place: str) -> None:
    pytest.importorskip(module, reason="a library that the tests do not install")
    before = method_of(module, place)
    stilltrue.instrument(service="here", instance="here", detector="127.0.0.1:1")
    try:
        during = method_of(module, place)
        assert during is not before
        assert during.__wrapped__ is before
        assert inspect.iscoroutinefunction(during) == inspect.iscoroutinefunction(before)
    finally:
        stilltrue.uninstrument()
    assert method_of(module, place) is before


LATE = """
import sys, stilltrue
stilltrue.instrument(service="here", detector="127.0.0.1:1")
loaded = [name for name in {names} if name in sys.modules]
assert not loaded, loaded
import requests, httpx, aiohttp, flask
from requests.adapters import HTTPAdapter
assert hasattr(HTTPAdapter.send, "__wrapped__") and hasattr(httpx.HTTPTransport.handle_request, "__wrapped__")
assert hasattr(aiohttp.ClientSession._request, "__wrapped__") and hasattr(flask.Flask.__call__, "__wrapped__")
stilltrue.uninstrument()
assert not hasattr(HTTPAdapter.send, "__wrapped__") and not hasattr(flask.Flask.__call__, "__wrapped__")
"""


def test_no_library_is_imported_and_later_imports_are_hooked() -> None:
    names = [name for name in instrumented_methods.PLACES if not name.startswith("urllib3")]
    done = subprocess.run(
        [sys.executable, "-c", LATE.format(names=names)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr


JOINS = """
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ForkingMixIn
from stilltrue.http import instrumented_methods
joined = []
instrumented_methods.join_when_used(lambda: joined.append(True))
class Forking(ForkingMixIn, HTTPServer):
    pass
forking = Forking(("127.0.0.1", 0), BaseHTTPRequestHandler)
connection = HTTPConnection("127.0.0.1", forking.server_port)
connection.request("GET", "/")
assert not joined
HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
assert joined == [True]
"""


def test_a_process_joins_when_it_makes_a_server_that_does_not_fork_for_each_request() -> None:
    """Nor does a request by ``http.client`` make it join: the tools that a program starts make them, too."""
    done = subprocess.run([sys.executable, "-c", JOINS], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
