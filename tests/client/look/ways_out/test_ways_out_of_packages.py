"""Ways out in packages whose names begin like gRPC's, the agent's or the standard library's folder."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

import stilltrue
from stilltrue import Agent
from stilltrue.runtime.introspection.origins import Origin, origin_of_file
from tests.client.look.worlds import Stuck, holders, look_at_caller

SOURCE = """
def sweep(go, calls):
    if not go.wait(60):
        for call in calls.open:
            call.cancel()
"""


def beside(module: Any, name: str) -> str:
    """A file of the package ``name`` in the folder that has ``module``."""
    return str(Path(module.__file__).parent.with_name(name) / "watch.py")


FILES = [
    pytest.param(beside(grpc, "grpc_clients"), id="grpc_clients"),
    pytest.param(beside(grpc, "grpclib"), id="grpclib"),
    pytest.param(beside(stilltrue, "stilltrue_watchdogs"), id="stilltrue_watchdogs"),
    pytest.param(f"{Path(threading.__file__).parent}-apps/watch.py", id="a folder beside the standard library's"),
]


class Calls:
    """Calls in an object."""

    def __init__(self, call: Any) -> None:
        self.open = [call]


@pytest.mark.parametrize("file", FILES)
def test_a_watchdog_of_a_package_with_such_a_name_is_a_way_out(alone: Callable[..., Agent], stuck: Stuck, file: str) -> None:
    names: dict[str, Any] = {}
    exec(compile(SOURCE, file, "exec"), names)  # a file that is nowhere

    def caller(get: Any) -> None:
        call = get.future(b"")
        watcher = threading.Thread(target=names["sweep"], args=(stuck.go, Calls(call)))
        watcher.start()
        call.result()
        watcher.join()

    assert "-" in holders(look_at_caller(alone, stuck, caller))


@pytest.mark.parametrize("name", ["grpc", "grpc_health", "grpc_reflection", "grpc_status"])
def test_the_packages_of_grpc_are_grpcs(name: str) -> None:
    assert origin_of_file(beside(grpc, name)) is Origin.GRPC


@pytest.mark.parametrize("file", FILES)
def test_a_package_with_such_a_name_is_the_applications(file: str) -> None:
    assert origin_of_file(file) is Origin.APPLICATION


def test_the_agent_and_the_standard_library_are_not_the_application() -> None:
    assert origin_of_file(str(Path(stilltrue.__file__))) is Origin.OURS
    assert origin_of_file(threading.__file__) is Origin.LIBRARY
