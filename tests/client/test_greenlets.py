"""Programs whose threads are greenlets: the agent blocks none of them; if gRPC would, it does not join and logs that."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from stilltrue.agent import Agent
from tests.client.test_launch import joined, started

pytest.importorskip("gevent")
pytestmark = pytest.mark.slow  # each starts a process

ASKS = """
import gevent.monkey
gevent.monkey.patch_all()
{first}
import requests
from gevent.pywsgi import WSGIServer

def serve(environ, start_response):
    start_response("200 OK", [])
    return [b"served"]

server = WSGIServer(("127.0.0.1", 0), serve, log=None)
server.start()
asked = [gevent.spawn(requests.get, f"http://127.0.0.1:{{server.server_port}}") for _ in range(20)]
gevent.joinall(asked)
print({{one.value.text for one in asked}})
{last}
"""
NOT_JOINED = "gevent has replaced the threads"


def test_a_program_with_greenlets_does_not_join_and_logs_why(detector: Any, tmp_path: Path) -> None:
    program = tmp_path / "asks.py"
    program.write_text(ASKS.format(first="", last=""))
    attached = started([sys.executable, str(program)], detector=detector.address)
    assert (attached.returncode, attached.stdout) == (0, "{'served'}\n"), attached.stderr
    assert NOT_JOINED in attached.stderr
    assert "not watched" in attached.stderr
    assert joined(detector) == []


@pytest.mark.longer
def test_an_instrumented_program_with_greenlets_does_not_join_either(detector: Any, tmp_path: Path) -> None:
    after = "import stilltrue\nstilltrue.instrument('after')"
    for code in (ASKS.format(first=after, last=""), f"{after}\n{ASKS.format(first='', last='stilltrue.instrument().start()')}"):
        program = tmp_path / "asks.py"
        program.write_text(code)
        attached = started([sys.executable, str(program)], detector=detector.address)
        assert (attached.returncode, attached.stdout) == (0, "{'served'}\n"), attached.stderr
        assert attached.stderr.count(NOT_JOINED) == 1
    assert joined(detector) == []


def test_a_program_with_grpc_gevent_support_joins(detector: Any, tmp_path: Path) -> None:
    program = tmp_path / "asks.py"
    first = "import grpc.experimental.gevent\ngrpc.experimental.gevent.init_gevent()"
    last = "import stilltrue\nprint(stilltrue.instrument().wait_until_joined(20))"
    program.write_text(ASKS.format(first=first, last=last))
    attached = started([sys.executable, str(program)], detector=detector.address)
    assert (attached.returncode, attached.stdout) == (0, "{'served'}\nTrue\n"), attached.stderr
    assert joined(detector) == ["asks"]


def test_a_program_with_real_threads_is_unaffected(caplog: pytest.LogCaptureFixture) -> None:
    agent = Agent("plain", detector="127.0.0.1:1")
    assert agent.settings.enabled
    agent.start().close()
    assert NOT_JOINED not in caplog.text
