"""The lifecycle of an agent: settings and environment variables, names, fork, exit, and `instrument()`."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

import stilltrue
from stilltrue import Agent, SettingRefusedError
from stilltrue.launch import add_site
from stilltrue.model import SnapshotId
from stilltrue.protocol.report import Report
from stilltrue.settings import read_settings

Join = Callable[..., Agent]


# -- settings ----------------------------------------------------------------------------------------------------------


def test_every_setting_has_an_environment_variable() -> None:
    environment = {
        "STILLTRUE_SERVICE": "orders",
        "STILLTRUE_INSTANCE": "orders-1",
        "STILLTRUE_DETECTOR": "detector:7600",
        "STILLTRUE_LABELS": "zone=a,tier=web",
        "STILLTRUE_REACTIVE": "true",
        "STILLTRUE_ENABLED": "off",
        "STILLTRUE_BLOCK_SECONDS_MAX": "0.5",
        "STILLTRUE_REPORTS_MAX": "7",
    }
    settings = read_settings({}, environment)
    assert (settings.service, settings.instance, settings.detector) == ("orders", "orders-1", "detector:7600")
    assert (settings.labels, settings.reactive, settings.enabled) == ({"zone": "a", "tier": "web"}, True, False)
    assert (settings.block_seconds_max, settings.reports_max) == (0.5, 7)
    assert read_settings({"service": "stock", "reactive": None}, environment).service == "stock"


def test_a_process_without_a_name_gets_one() -> None:
    in_pod = read_settings({"service": "orders", "labels": {"zone": "a"}}, {"POD_NAME": "orders-7f9c"})
    assert in_pod.instance == f"orders-7f9c-{os.getpid()}", "other processes of the pod have other names"
    assert in_pod.labels == {"pod": "orders-7f9c", "zone": "a"}
    assert read_settings({"instance": "one"}, {"POD_NAME": "orders-7f9c"}).instance == "one"
    own = read_settings({"service": "or ders/;"}, {}).instance
    assert own.startswith("or-ders---")
    assert own.endswith(f"-{os.getpid()}")


@pytest.mark.parametrize(
    ("given", "environment", "named"),
    [
        ({"instance": "a/b"}, {}, "instance"),
        ({"instance": "a b"}, {}, "instance"),
        ({"instance": "a;b"}, {}, "instance"),
        ({"instance": "ä"}, {}, "instance"),
        ({"instance": "a" * 254}, {}, "instance"),
        ({"block_seconds_max": 0.0}, {}, "block_seconds_max"),
        ({"reports_max": 0}, {}, "reports_max"),
        ({"tls_ca_file": "/nowhere/ca.pem"}, {}, "tls_ca_file"),
        ({"tls_key_file": __file__}, {}, "tls_cert_file"),
        ({"labels": "zone"}, {}, "STILLTRUE_LABELS"),
        ({"labels": 3}, {}, "labels: 3 is not of the form"),
        ({"labels": {"version": 42}}, {}, "labels: .* is not .* a mapping of texts"),
        ({"excluded_methods": ["/a/b", 3]}, {}, "excluded_methods: .* is not a list"),
        ({"backoff_seconds_max": "x"}, {}, "backoff_seconds_max .*'x' is not a number"),
        ({"backoff_seconds_max": [4]}, {}, "backoff_seconds_max: .* is not a number"),
        ({"reports_max": 1.5}, {}, "reports_max: 1.5 is not a whole number"),
        ({"reactive": 1}, {}, "reactive: 1 is not true or false"),
        ({"block_seconds_max": True}, {}, "block_seconds_max: True is not a number"),
        ({"service": 7}, {}, "service: 7 is not a text"),
        ({"excluded_methods": 7}, {}, "excluded_methods: 7 is not a list"),
    ],
)
def test_an_invalid_setting_is_refused_in_one_line(given: dict[str, Any], environment: dict[str, str], named: str) -> None:
    with pytest.raises(SettingRefusedError, match=named) as refusal:
        read_settings(given, environment)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("instance", "a/b"),
        ("instance", "ä"),
        ("block_seconds_max", "soon"),
        ("block_seconds_max", "-1"),
        ("block_seconds_max", "nan"),
        ("reports_max", "0"),
        ("reports_max", "1e3"),
        ("reactive", "perhaps"),
        ("enabled", ""),
        ("labels", "zone"),
    ],
)
def test_a_bad_value_in_the_environment_is_a_warning_and_the_default(
    name: str, bad: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = read_settings({"service": "orders"}, {f"STILLTRUE_{name.upper()}": bad})
    assert settings == read_settings({"service": "orders"}, {})
    (warning,) = caplog.records
    assert f"STILLTRUE_{name.upper()}" in warning.getMessage()
    given = "given-1" if name == "instance" else getattr(settings, name)
    caplog.clear()
    assert getattr(read_settings({name: given}, {f"STILLTRUE_{name.upper()}": bad}), name) == given
    assert len(caplog.records) <= 1


def test_an_invalid_secret_disables_the_agent(
    alone: Join, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert read_settings({}, {"STILLTRUE_TLS_KEY_FILE": "/k.pem"}).enabled is False
    assert "not watched" in caplog.text
    monkeypatch.setenv("STILLTRUE_STAMP_KEY", "short")
    assert alone("orders").settings.enabled is False
    late = read_settings({}, {"STILLTRUE_TLS_CA_FILE": "/not/yet/ca.pem"})
    assert (late.enabled, late.tls_ca_file) == (True, "/not/yet/ca.pem"), "it is read when the agent dials"


def test_excluded_methods_are_patterns(alone: Join) -> None:
    session = alone("orders", excluded_methods="/a.B/*, c.D/Watch")._session
    methods = ("/a.B/Get", "/c.D/Watch", "/c.D/Watches", "/a.Bad/Get", "/grpc.health.v1.Health/Check")
    assert [session.leaves_out(method) for method in methods] == [True, True, False, False, True]


def test_no_connection_is_made_before_the_first_channel_or_server(detector: Any) -> None:
    """In a new process, where nothing else has made a channel."""
    script = textwrap.dedent(
        """
        import sys, threading, grpc, stilltrue
        agent = stilltrue.instrument("orders", instance="orders", detector=sys.argv[1])
        assert agent._connection is None
        from stilltrue.runtime.own_threads import all_threads
        assert all_threads() == [threading.main_thread()]
        channel = grpc.insecure_channel("127.0.0.1:1")
        assert agent.wait_until_joined(10)
        """
    )
    subprocess.run([sys.executable, "-c", script, detector.address], check=True, timeout=60)


def test_an_unknown_setting_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="blocks_max"):
        Agent("orders", blocks_max=1)
    with pytest.raises(TypeError, match="no such setting: servce; did you mean service"):
        Agent(servce="orders")


def test_a_pool_that_is_a_number_is_a_type_error(instrumented: Agent) -> None:
    with pytest.raises(TypeError, match=r"4 is not an executor: make it first, agent.pool\(ThreadPoolExecutor\(8\)\)"):
        instrumented.pool(4)  # type: ignore[arg-type]


# -- lifecycle ---------------------------------------------------------------------------------------------------------


def test_each_run_is_another_incarnation(alone: Join) -> None:
    first, second = alone("orders"), alone("orders")
    assert 0 < first.process.incarnation < 2**63
    assert first.process.incarnation != second.process.incarnation


def test_the_first_process_of_a_container_is_its_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert read_settings({}, {"POD_NAME": "orders-7f9c"}).instance == "orders-7f9c"


FORKING = """
import os, signal, sys, threading, stilltrue
from stilltrue.model import SnapshotId
from stilltrue.protocol.report import Report
from stilltrue.protocol.report import ResourceTarget

agent = stilltrue.Agent("orders", detector=sys.argv[1])
assert agent.wait_until_joined(10)
agent.live.waits(agent.parties.current(), (ResourceTarget(resource="row"),), what="the parent's")

def tell():
    report = agent.live.recorder.marked(SnapshotId(1), 0.0)
    print(report.process.instance, report.process.incarnation, len(report.waits), flush=True)
    os._exit(0)

with agent.live.lock:  # as a thread of the parent might hold it at the fork
    child = os.fork()
    if child == 0:
        threading.Thread(target=tell).start()
        signal.pause()
os.waitpid(child, 0)
print(child, agent.process.instance, agent.process.incarnation, flush=True)
sys.stdin.read()
"""


def test_a_forked_child_is_another_process_with_nothing_recorded(detector: Any) -> None:
    # in a new process: here, a garbage collection in the child could finalize gRPC objects of other tests
    command = [sys.executable, "-c", FORKING, detector.address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        instance, incarnation, waits = process.stdout.readline().split()
        child, parent, parents_incarnation = process.stdout.readline().split()
        assert instance != parent
        assert instance.endswith(f"-{child}")
        assert incarnation != parents_incarnation
        assert waits == "0"
        detector.wait_for(lambda: detector.kinds(parent).count("hello") == 2)  # the fork ended its session
        detector.mark(1)
        assert len(detector.report(parent, 1).waits) == 1
        process.stdin.close()
    assert process.returncode == 0


CHILDREN = """
import multiprocessing, sys
import stilltrue

def work(name, address):
    assert stilltrue.Agent(name, instance=name, detector=address).wait_until_joined(10)

if __name__ == "__main__":
    for how in ("fork", "spawn"):
        child = multiprocessing.get_context(how).Process(target=work, args=(how, sys.argv[1]))
        child.start()
        child.join()
"""


@pytest.mark.slow
def test_a_process_that_multiprocessing_has_started_says_goodbye_too(detector: Any, tmp_path: Path) -> None:
    program = tmp_path / "children.py"  # spawned children must be able to import it
    program.write_text(CHILDREN)
    subprocess.run([sys.executable, str(program), detector.address], check=True, timeout=60)
    detector.wait_for(lambda: detector.kinds("fork")[-1:] == ["goodbye"])
    detector.wait_for(lambda: detector.kinds("spawn")[-1:] == ["goodbye"])


WORKERS = """
import sys
import billiard.pool
import stilltrue

def ended(pid, code):
    print("ended", code, flush=True)

def work(name):
    return stilltrue.Agent(name, instance=name, detector=sys.argv[1]).wait_until_joined(10)

if __name__ == "__main__":
    pool = billiard.pool.Pool(1, maxtasksperchild=1, on_process_exit=ended)
    assert pool.map(work, ["first", "second"], chunksize=1) == [True, True]
    pool.close()
    pool.join()
"""


@pytest.mark.slow
def test_a_worker_of_a_pool_of_celery_says_goodbye_and_calls_what_it_would_call(detector: Any, tmp_path: Path) -> None:
    pytest.importorskip("billiard")
    program = tmp_path / "workers.py"
    program.write_text(WORKERS)
    ran = subprocess.run(
        [sys.executable, str(program), detector.address], check=True, timeout=60, capture_output=True, text=True
    )
    assert ran.stdout.count("ended ") == 2
    for name in ("first", "second"):
        detector.wait_for(lambda name=name: detector.kinds(name)[-1:] == ["goodbye"])


@pytest.mark.slow
def test_a_process_says_goodbye_at_its_exit_and_does_not_hang_without_a_detector(detector: Any) -> None:
    script = textwrap.dedent(
        """
        import sys, stilltrue
        agent = stilltrue.Agent("orders", instance=sys.argv[1], detector=sys.argv[2])
        agent.wait_until_joined(float(sys.argv[3]))
        """
    )
    for name, address, patience in (("met", detector.address, "10"), ("alone", "127.0.0.1:1", "0")):
        subprocess.run([sys.executable, "-c", script, name, address, patience], check=True, timeout=30)
    detector.wait_for(lambda: detector.kinds("met")[-1:] == ["goodbye"])
    assert not detector.kinds("alone")


@pytest.mark.parametrize("attached", [False, True])
def test_an_exit_handler_registered_before_the_agent_runs_before_its_goodbye(detector: Any, attached: bool) -> None:
    """It may make calls: termination was TRUE while it worked."""
    before, after = (
        "import stilltrue",
        "import atexit, os, sys\n\natexit.register(lambda: os._exit(0 if agent.wait_until_joined(0) else 3))",
    )
    script = f"""
{after if attached else before}
{before if attached else after}
agent = stilltrue.Agent("orders", instance="met", detector=sys.argv[1])
assert agent.wait_until_joined(30)
"""
    environment = dict(os.environ)
    if attached:
        add_site(environment)
    subprocess.run([sys.executable, "-c", script, detector.address], check=True, timeout=60, env=environment)


BLOCKED = """
{handler}
import threading, time
from concurrent.futures import Executor, Future, ThreadPoolExecutor

stuck = threading.Lock()
stuck.acquire()
ThreadPoolExecutor(1).submit(stuck.acquire)
assert agent.wait_until_joined(60)
print("joined", flush=True)
while True:
    time.sleep(1)
"""


@pytest.mark.slow
@pytest.mark.parametrize("handled", [True, False])
def test_the_signal_handler_of_the_docs_says_goodbye_in_a_deadlock(detector: Any, handled: bool) -> None:
    page = (Path(__file__).parents[2] / "docs" / "agent.md").read_text()
    (code,) = (each for each in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL) if "SIGTERM" in each)
    name = f"ended-{handled}"
    program = BLOCKED.format(handler=code if handled else code.partition("signal.signal")[0])
    env = {**os.environ, "STILLTRUE_INSTANCE": name, "STILLTRUE_DETECTOR": detector.address}
    with subprocess.Popen([sys.executable, "-c", program], env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "joined\n"
        process.terminate()
        assert process.wait(60) == (0 if handled else -signal.SIGTERM)
    if handled:
        detector.wait_for(lambda: detector.kinds(name)[-1:] == ["goodbye"])
    else:
        assert "goodbye" not in detector.kinds(name)


UNDER_UVICORN = """
import signal, sys, threading, time, urllib.request
import uvicorn
import stilltrue

async def app(scope, receive, send):
    await send({{"type": "http.response.start", "status": 200, "headers": []}})
    await send({{"type": "http.response.body"}})

if {starlette}:
    from starlette.applications import Starlette
    app = Starlette()  # it joins when it starts, before any request

agent = stilltrue.instrument(service="orders")
{handler}
server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical"))

def report():
    assert agent.wait_until_joined(60)
    while not server.started:
        time.sleep(0.01)
    if not {starlette}:
        urllib.request.urlopen("http://127.0.0.1:%d" % listening.getsockname()[1])
    print("joined", flush=True)

listening = server.config.bind_socket()
threading.Thread(target=report, daemon=True).start()
server.run([listening])
print("goes on", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("handled", "starlette"), [(False, False), (True, False), (False, True)])
def test_uvicorn_says_goodbye_before_it_raises_again_the_signal_that_stopped_it(
    detector: Any, handled: bool, starlette: bool
) -> None:
    """By default SIGTERM then ends the process at once; a handler of the application's own may let it go on."""
    pytest.importorskip("uvicorn")
    if starlette:
        pytest.importorskip("starlette")
    name = f"uvicorn-{handled}-{starlette}"
    handler = "signal.signal(signal.SIGTERM, lambda *_: None)" if handled else ""
    program = UNDER_UVICORN.format(handler=handler, starlette=starlette)
    env = {**os.environ, "STILLTRUE_INSTANCE": name, "STILLTRUE_DETECTOR": detector.address}
    command, pipe = [sys.executable, "-c", program], subprocess.PIPE
    with subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "joined\n"
        process.terminate()
        if handled:
            assert process.stdout.readline() == "goes on\n"
            assert "goodbye" not in detector.kinds(name)
        process.communicate(timeout=60)
        assert process.returncode == (0 if handled else -signal.SIGTERM)
    detector.wait_for(lambda: detector.kinds(name)[-1:] == ["goodbye"])


@pytest.mark.longer
@pytest.mark.slow
def test_a_process_that_ends_at_once_says_goodbye_too_or_was_never_a_member(detector: Any) -> None:
    script = "import sys, stilltrue; stilltrue.Agent('orders', instance=sys.argv[1], detector=sys.argv[2]).start()"
    names = [f"hasty-{n}" for n in range(5)]
    for name in names:
        subprocess.run([sys.executable, "-c", script, name, detector.address], check=True, timeout=30)
    detector.wait_for(lambda: all(detector.kinds(name)[-1:] in ([], ["goodbye"]) for name in names))


def test_a_finalizer_in_the_middle_of_a_step_is_deferred(alone: Join) -> None:
    agent = alone("orders")
    channel = agent.channel(grpc.insecure_channel("127.0.0.1:1"))
    call: Any = channel.unary_stream("/t.T/Many")
    stream = call(b"x", wait_for_ready=True)
    with agent.live.lock:
        del stream
        gc.collect()
        made = next(iter(agent.live.recorder.calls_made.values()), None)
        if made is not None:
            agent.live.settled(made, None, True)
            assert agent.live.deferred
    agent.live.catch_up()
    report = agent.live.marked(SnapshotId(1))
    assert report is not None
    assert [known.doubtful for known in report.made] == [True]
    channel.close()


def test_a_call_made_in_the_middle_of_a_step_is_not_recorded(alone: Join) -> None:
    agent = alone("orders")
    server = grpc.server(ThreadPoolExecutor(1))
    handler: Any = grpc.unary_unary_rpc_method_handler(lambda request, context: request)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.T", {"Do": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with agent.channel(grpc.insecure_channel(f"127.0.0.1:{port}")) as channel:
        call: Any = channel.unary_unary("/t.T/Do")
        with agent.live.lock:  # as in a signal handler
            assert call(b"x") == b"x"
    server.stop(None).wait()
    assert (agent.live.faults, agent.live.recorder._next_call) == (1, 1)


# -- instrument() ------------------------------------------------------------------------------------------------------


@pytest.fixture
def instrumented(detector: Any) -> Iterator[Agent]:
    before = (grpc.server, grpc.insecure_channel, grpc.aio.server, grpc.aio.insecure_channel)
    agent = stilltrue.instrument(service="orders", instance="orders", detector=detector.address)
    yield agent
    stilltrue.uninstrument()
    assert (grpc.server, grpc.insecure_channel, grpc.aio.server, grpc.aio.insecure_channel) == before


def test_instrument_records_servers_and_channels_made_afterwards(instrumented: Agent) -> None:
    assert stilltrue.instrument() is instrumented
    server = grpc.server(ThreadPoolExecutor(3))
    go = threading.Event()

    def do(request: bytes, context: Any) -> bytes:
        assert go.wait(10)
        return request

    handler: Any = grpc.unary_unary_rpc_method_handler(do)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.T", {"Do": handler}),))
    address = f"localhost:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    with grpc.insecure_channel(address) as channel:
        call: Any = channel.unary_unary("/t.T/Do")
        future = call.future(b"x")
        while not any(served.serving for served in instrumented.live.recorder.calls_served.values()):
            threading.Event().wait(0.002)
        report = instrumented.live.marked(SnapshotId(1))
        go.set()
        assert future.result() == b"x"
    server.stop(None).wait()
    assert report is not None
    (made,), (served,), (pool,) = report.made, report.served, report.pools
    assert (made.target, served.pool, pool.size) == (address, pool.name, 3)
    assert served.caller == ("orders", instrumented.process.incarnation)


@pytest.mark.parametrize("module", [grpc, grpc.aio])
@pytest.mark.parametrize("given", [{}, {"interceptors": ("the application's",)}])
def test_an_instrumentation_beneath_may_insert_its_own_interceptor(
    alone: Join, monkeypatch: pytest.MonkeyPatch, module: Any, given: dict[str, Any]
) -> None:
    """As Elastic APM does."""

    def server(*_: Any, **options: Any) -> list[Any]:
        interceptors: list[Any] = options["interceptors"]
        interceptors.insert(0, "another's")
        return interceptors

    monkeypatch.setattr(module, "server", server)
    agent = stilltrue.instrument(service="orders", enabled=False)
    try:
        made: Any = module.server(ThreadPoolExecutor(1), **given)
    finally:
        stilltrue.uninstrument()
    assert agent.process.service == "orders"
    assert [made[0], *made[2:]] == ["another's", *given.get("interceptors", ())]


def test_a_channel_counts_while_the_application_has_a_stub_of_it(instrumented: Agent) -> None:
    stub: Any = grpc.insecure_channel("127.0.0.1:1").unary_unary("/t.T/Do")  # as ``Stub(grpc.insecure_channel(...))``
    gc.collect()
    assert instrumented.sight.counts()["channels"] == 1
    del stub
    gc.collect()
    assert instrumented.sight.counts()["channels"] == 0


POLICY = {
    "maxAttempts": 3,
    "initialBackoff": "0.1s",
    "maxBackoff": "1s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE"],
}
RETRYING = (("grpc.service_config", json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": POLICY}]})),)


def test_instrument_sees_which_channels_may_retry(instrumented: Agent) -> None:
    for options, most in (((), 1), (RETRYING, 3), ((*RETRYING, ("grpc.enable_retries", 0)), 1)):
        with grpc.insecure_channel("127.0.0.1:1", options) as channel:
            call: Any = channel.unary_unary("/t.T/Do")
            future = call.future(b"", wait_for_ready=True)
            made = list(instrumented.live.recorder.calls_made.values())[-1]
            assert made.channel.copies_max == most
            future.cancel()


def test_an_explicitly_wrapped_channel_takes_its_options(alone: Join) -> None:
    agent = alone("orders")
    with agent.channel(grpc.insecure_channel("127.0.0.1:1", RETRYING), options=RETRYING) as channel:
        call: Any = channel.unary_unary("/t.T/Do")
        future = call.future(b"", wait_for_ready=True)
        report = agent.live.marked(SnapshotId(1))
        assert report is not None
        assert [(made.copies_max, made.hedged) for made in report.made] == [(3, False)]
        future.cancel()


async def test_instrument_records_servers_and_channels_on_a_loop(instrumented: Agent) -> None:
    server = grpc.aio.server()

    async def do(request: bytes, context: Any) -> bytes:
        return request

    handler: Any = grpc.unary_unary_rpc_method_handler(do)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.T", {"Do": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call: Any = channel.unary_unary("/t.T/Do")
        assert await call(b"x") == b"x"
    await server.stop(None)
    report = instrumented.live.marked(SnapshotId(1))
    assert report is not None
    assert [seen.highest for seen in report.seen] == [1]


def test_explicitly_wrapped_objects_are_not_wrapped_twice(instrumented: Agent) -> None:
    pool = instrumented.pool(ThreadPoolExecutor(2), "mine")
    handler: Any = grpc.unary_unary_rpc_method_handler(lambda request, context: request)
    handlers = [grpc.method_handlers_generic_handler("t.T", {"Do": handler})]
    server = grpc.server(pool, handlers, [instrumented.server_interceptor()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with instrumented.channel(grpc.insecure_channel(f"127.0.0.1:{port}")) as channel:
        call: Any = channel.unary_unary("/t.T/Do")
        assert call(b"x") == b"x"
    server.stop(None).wait()
    report = instrumented.live.marked(SnapshotId(1))
    assert report is not None
    assert [pool.name for pool in report.pools] == ["mine"]
    assert [number for seen in report.seen for number in seen.numbers] == [1]
    assert instrumented.live.recorder._next_party == 2


class _OtherPool(Executor):
    """A pool of another kind: a thread for each item."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        future: Future[Any] = Future()
        threading.Thread(target=lambda: future.set_result(fn(*args, **kwargs))).start()
        return future


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        ([lambda: ThreadPoolExecutor(2)], [("pool-1", 2)]),
        ([lambda: ThreadPoolExecutor(2), lambda: ThreadPoolExecutor(3)], [("pool-1", 2), ("pool-2", 3)]),
        ([_OtherPool], [("_OtherPool of a server", None)]),
    ],
    ids=["one", "one interceptor for two servers", "another kind"],
)
def test_the_pool_of_a_server_is_recorded_although_the_agent_was_not_given_it(
    alone: Join, kinds: list[Callable[[], Any]], told: list[tuple[str, int | None]]
) -> None:
    agent = alone("orders")
    interceptor = agent.server_interceptor()
    reports: list[Report] = []

    def do(request: bytes, context: Any) -> bytes:
        report = agent.live.marked(SnapshotId(1 + len(reports)))
        assert report is not None
        reports.append(report)
        return request

    handler: Any = grpc.unary_unary_rpc_method_handler(do)
    pools = [make() for make in kinds]
    for pool in pools:
        server = grpc.server(pool, interceptors=[interceptor])
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.T", {"Do": handler}),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            call: Any = channel.unary_unary("/t.T/Do")
            assert call(b"x", timeout=10) == b"x"
        server.stop(None).wait()
        pool.shutdown()
    assert [(one.name, one.size) for one in reports[-1].pools] == told
    del pool, pools, server
    gc.collect()
    report = agent.live.marked(SnapshotId(9))
    assert report is not None
    assert [one.name for one in report.pools] == [name for name, size in told if size is None], "those gone are left out"
    served = [one.pool for report in reports for one in report.served if one.serving]
    assert served == [name if size is not None else "" for name, size in told]


@pytest.mark.parametrize("has_own", [True, False], ids=["its own", "the loop's"])
async def test_the_pool_of_a_server_on_a_loop_is_recorded_for_handlers_that_are_no_coroutines(
    alone: Join, has_own: bool
) -> None:
    agent = alone("orders")
    own = ThreadPoolExecutor(2) if has_own else None
    reports: list[Report | None] = []

    def do(request: bytes, context: Any) -> bytes:
        reports.append(agent.live.marked(SnapshotId(1)))
        return request

    server = grpc.aio.server(own, interceptors=[agent.aio_server_interceptor()])
    handler: Any = grpc.unary_unary_rpc_method_handler(do)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.T", {"Do": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call: Any = channel.unary_unary("/t.T/Do")
        assert await call(b"x", timeout=10) == b"x"
    await server.stop(None)
    (report,) = reports
    assert report is not None
    used: Any = own or asyncio.get_running_loop()._default_executor  # type: ignore[attr-defined]
    assert [(pool.name, pool.size) for pool in report.pools] == [("pool-1", used._max_workers)]
    assert [(served.pool, served.serving) for served in report.served] == [("pool-1", True)]
    used.shutdown()


def test_a_server_with_the_interceptor_of_grpc_aio_serves_on_and_is_a_blind_spot(
    alone: Join, caplog: pytest.LogCaptureFixture
) -> None:
    """gRPC accepts it, takes the coroutine for a handler, and the error ends the thread that serves all calls."""
    agent = alone("orders")
    wrong: Any = agent.aio_server_interceptor()
    server = grpc.server(ThreadPoolExecutor(2), interceptors=[wrong])
    handler: Any = grpc.unary_unary_rpc_method_handler(lambda request, context: request)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.T", {"Do": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with caplog.at_level("WARNING", "stilltrue"), grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call: Any = channel.unary_unary("/t.T/Do")
        assert [call(b"x", timeout=10) for _ in range(2)] == [b"x", b"x"]
        end = time.monotonic() + 10
        while "give it agent.server_interceptor()" not in caplog.text and time.monotonic() < end:
            time.sleep(0.01)  # the agent logs in a thread of its own
    server.stop(None).wait()
    assert caplog.text.count("give it agent.server_interceptor()") == 1
    counts = agent.sight.counts()
    assert (counts["servers"], counts["blind"]) == (
        0,
        ["1 server of grpc with an interceptor of grpc.aio, whose calls are not recorded"],
    )


def test_the_pure_modules_load_without_grpc() -> None:
    script = "import sys, stilltrue.protocol.recorder, stilltrue.protocol.report; sys.exit('grpc' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=30)


def test_importing_the_agent_loads_neither_protobuf_nor_the_observer() -> None:
    script = """
import sys, grpc
within = "stilltrue.runtime"
without = {"google.protobuf", "stilltrue.v1.agent_pb2", f"{within}.membership.connection", f"{within}.look.looker"}
without |= {f"{within}.introspection.cut.observation", f"{within}.waits.registry", f"{within}.cure.aborter"}
from stilltrue import Agent
assert not without & set(sys.modules), without & set(sys.modules)
Agent("a", instance="a", detector="127.0.0.1:1")
assert without <= set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_two_pools_of_one_name_are_two_pools(instrumented: Agent) -> None:
    pools = [instrumented.pool(ThreadPoolExecutor(size), "workers") for size in (4, 2)]
    assert instrumented.pool(pools[0], "workers") is pools[0]
    report = instrumented.live.marked(SnapshotId(1))
    assert report is not None
    assert {(pool.name, pool.size) for pool in report.pools} == {("workers", 4), ("workers-2", 2)}
