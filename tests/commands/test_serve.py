"""``serve`` as a process: it prints its addresses, stops on a signal, survives a kill; ``watch`` notices its end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import pytest

from detector.commands.live.watch import _SilenceTimeout
from detector.commands.processes.serve import serve as serve_command
from detector.core import registry
from stilltrue.version import __version__


async def test_serve_prints_its_addresses_and_stops_on_a_signal(serve: Any, tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        async with serve(tmp_path, "--log-format", "json") as detector:
            assert detector.line.startswith("listening grpc=127.0.0.1:")
            reader, writer = await asyncio.open_connection("127.0.0.1", int(detector.metrics.split(":")[2].split("/")[0]))
            writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
            assert b" 200 " in (await reader.read())
            writer.close()
            begun = time.monotonic()
            log = await detector.end(number)
            assert time.monotonic() - begun < 5
            assert detector.process.returncode == 0
            events = [json.loads(line)["event"] for line in log.splitlines()]
            assert (events[0], events[-1]) == ("listening", "stopped")


async def test_a_terminal_shows_the_addresses_once(tmp_path: Path) -> None:
    ours, its = os.openpty()
    detector = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "detector.cli", "serve", "--port", "0", "--http-port", "0", "--data", str(tmp_path),
        stdout=its, stderr=its,
    )  # fmt: skip
    os.close(its)
    shown = b""
    async with asyncio.timeout(60):
        while b"listening" not in shown:
            shown += await asyncio.to_thread(os.read, ours, 65536)
        detector.send_signal(signal.SIGTERM)
        while b"event=stopped" not in shown:
            shown += await asyncio.to_thread(os.read, ours, 65536)
        assert await detector.wait() == 0
    os.close(ours)
    assert shown.count(b"listening") == 1
    assert shown.count(b"grpc=127.0.0.1:") == 1


async def test_ctrl_c_ends_a_coordinator_that_waits_for_kafka(begin: Any, tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka")
    coordinator = await begin("serve", "--kafka", "127.0.0.1:1", "--port", "0", "--http-port", "0", "--data", str(tmp_path))
    async with asyncio.timeout(60):
        while b'event="connecting to Kafka"' not in await coordinator.stderr.readline():
            pass
        await asyncio.sleep(0.5)
        begun = time.monotonic()
        coordinator.send_signal(signal.SIGINT)
        await coordinator.communicate()
    assert coordinator.returncode == -signal.SIGINT
    assert time.monotonic() - begun < 5


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8 on its loopback")
@pytest.mark.parametrize(
    ("flag", "grpc", "http"), [("--host", "127.0.0.2", "127.0.0.1"), ("--http-host", "127.0.0.1", "127.0.0.2")]
)
async def test_grpc_and_http_each_listen_on_their_own_address_only(
    flag: str, grpc: str, http: str, serve: Any, tmp_path: Path
) -> None:
    async with serve(tmp_path, flag, "127.0.0.2") as detector:
        port = urlsplit(detector.metrics).port
        assert detector.address.rpartition(":")[0] == grpc
        assert detector.metrics == f"http://{http}:{port}/metrics"
        assert detector.pages == f"http://{http}:{port}/"
        _, writer = await asyncio.open_connection(http, port)
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(grpc, port)


async def test_ports_and_directories_in_use_are_an_error_in_one_line(serve: Any, command: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for flag, other in (("--port", "--http-port"), ("--http-port", "--port")):
            ended = await command("serve", flag, port, other, "0", "--data", str(tmp_path / "x"))
            assert ended.code == 2
            assert [line for line in ended.err.splitlines() if "event=" not in line] == [ended.err.splitlines()[-1]]
            assert f"cannot listen on 127.0.0.1:{port}" in ended.err
            assert flag in ended.err.splitlines()[-1]
            assert "address already in use" in ended.err
            assert "attempting" not in ended.err  # asyncio's words, which repeat the address
    for flag in ("--host", "--http-host"):  # TEST-NET-1 is on no machine
        ended = await command("serve", flag, "192.0.2.1", "--allow-plaintext", "--data", str(tmp_path / "x"))
        assert (ended.code, "cannot assign requested address; choose another" in ended.err) == (2, True)
    async with serve(tmp_path / "data"):
        ended = await command("serve", "--port", "0", "--http-port", "0", "--data", str(tmp_path / "data"))
        assert ended.code == 2
        assert "in use by another detector" in ended.err


async def test_a_detector_without_predicates_does_not_start(here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "entry_points", lambda group: ())
    ended = await here("serve", "--port", "0", "--http-port", "0", "--data", str(tmp_path / "data"))
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert "the package stilltrue-detector is not installed for this Python" in ended.err
    assert not (tmp_path / "data").exists()
    assert (await here("--version")).out == f"stilltrue {__version__}\n"


async def test_a_killed_and_restarted_detector_keeps_its_open_incidents(serve: Any, played: Any, tmp_path: Path) -> None:
    a, b = played.FakeProcess("a"), played.FakeProcess("b")
    stuck = played.Deadlock(a, b)
    async with serve(tmp_path, "--period-seconds", "0.05") as detector:
        await asyncio.gather(a.connect(detector.address), b.connect(detector.address))
        incident: list[Any] = []
        async with asyncio.timeout(60):
            while not incident:
                incident = json.loads((await detector.run("incidents", "--json")).out)
        last = json.loads((await detector.run("snapshots", "--json", "--limit", "1")).out)[0]["id"]
        detector.process.send_signal(signal.SIGKILL)
        await detector.process.wait()
        await asyncio.gather(a.ended.wait(), b.ended.wait())
    async with serve(tmp_path, "--period-seconds", "0") as detector:
        (kept,) = json.loads((await detector.run("incidents", "--json", "--open")).out)
        assert kept["id"] == incident[0]["id"]
        await asyncio.gather(a.connect(detector.address), b.connect(detector.address))
        verdict = json.loads((await detector.run("ask", "deadlock", "--json")).out)
        assert (verdict["holds"], verdict["core"]) == (True, stuck.core)
        assert verdict["snapshot"]["id"] > last
        assert [one["id"] for one in json.loads((await detector.run("incidents", "--json")).out)] == [kept["id"]]
        await asyncio.gather(a.kill(), b.kill())


async def test_a_read_only_archive_is_logged_and_answers_continue(serve: Any, played: Any, tmp_path: Path) -> None:
    a = played.FakeProcess("a")
    blocked = tmp_path / "data"
    blocked.symlink_to("/proc/nowhere")
    async with serve(blocked, "--period-seconds", "0") as detector:
        await a.connect(detector.address)
        assert (await detector.run("ask", "deadlock")).code == 1
        assert (await detector.run("show", "latest")).code == 0
        log = await detector.end()
        assert log.count('event="store unusable"') == 1
        await a.kill()


async def test_watch_prints_changes_and_notices_that_the_detector_is_gone(
    serve: Any, begin: Any, played: Any, tmp_path: Path
) -> None:
    a, b = played.FakeProcess("a"), played.FakeProcess("b")
    async with serve(tmp_path, "--period-seconds", "0.05") as detector:
        await asyncio.gather(a.connect(detector.address), b.connect(detector.address))
        watch = await begin("watch", "deadlock", "--json", "--wait-seconds-max", "0", STILLTRUE_DETECTOR=detector.address)
        async with asyncio.timeout(60):
            assert json.loads(await watch.stdout.readline())["holds"] is False
            stuck = played.Deadlock(a, b)
            assert json.loads(await watch.stdout.readline())["core"] == stuck.core
            stuck.cure()
            assert json.loads(await watch.stdout.readline())["holds"] is False
            detector.process.kill()
            out, err = await watch.communicate()
        assert (watch.returncode, out) == (2, b"")
        assert err.count(b"\n") == 1
        assert b"no detector" in err


async def test_watch_goes_on_with_a_detector_that_restarts(serve: Any, begin: Any, played: Any, tmp_path: Path) -> None:
    a, b = played.FakeProcess("a"), played.FakeProcess("b")
    stuck = played.Deadlock(a, b)
    async with serve(tmp_path, "--period-seconds", "0.05") as first:
        port = first.address.rpartition(":")[2]
        await asyncio.gather(a.connect(first.address), b.connect(first.address))
        watch = await begin("watch", "deadlock", "--json", "--wait-seconds-max", "20", STILLTRUE_DETECTOR=first.address)
        async with asyncio.timeout(60):
            while (verdict := json.loads(await watch.stdout.readline()))["holds"] is not True:
                pass
            assert verdict["core"] == stuck.core
            await first.end()
            assert (await watch.stderr.readline()).decode() == (
                f"the detector at {first.address} is gone (it shut down); waiting for it to come back ...\n"
            )
            await asyncio.gather(a.ended.wait(), b.ended.wait())
    async with serve(tmp_path, "--port", port, "--period-seconds", "0.05") as second:
        await asyncio.gather(a.connect(second.address), b.connect(second.address))
        async with asyncio.timeout(60):
            stuck.cure()
            while (verdict := json.loads(await watch.stdout.readline()))["holds"] is not False:
                pass
            watch.send_signal(signal.SIGINT)
            assert await watch.wait() == 130
        await asyncio.gather(a.kill(), b.kill())


def test_a_watch_is_cancelled_only_if_its_reader_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    class Call:
        def __init__(self) -> None:
            self.cancelled = threading.Event()

        def is_active(self) -> bool:
            return not self.cancelled.is_set()

        def cancel(self) -> None:
            self.cancelled.set()

    reading, writing = os.pipe()
    with open(writing, "w") as output:  # noqa: PTH123 - a descriptor
        monkeypatch.setattr(sys, "stdout", output)
        call: Any = Call()
        timeout = _SilenceTimeout(call, 60)
        assert not call.cancelled.wait(1)
        os.close(reading)
        assert call.cancelled.wait(60)
        assert (timeout.unread, timeout.expired) == (True, False)


async def test_watch_ends_when_nobody_reads_its_output(serve: Any, begin: Any, played: Any, tmp_path: Path) -> None:
    a = played.FakeProcess("a")
    async with serve(tmp_path, "--period-seconds", "0.1") as detector:
        await a.connect(detector.address)
        watch = await begin("watch", "deadlock", STILLTRUE_DETECTOR=detector.address)
        async with asyncio.timeout(60):
            assert b"deadlock" in await watch.stdout.readline()
            watch._transport.get_pipe_transport(1).close()  # as `head -1` does; no further verdict comes
            assert (await watch.wait(), await watch.stderr.read()) == (141, b"")
        await a.kill()


async def test_watch_notices_a_detector_that_is_stopped(serve: Any, begin: Any, played: Any, tmp_path: Path) -> None:
    a = played.FakeProcess("a")
    async with serve(tmp_path, "--heartbeat-seconds", "0.2", "--period-seconds", "0.1") as detector:
        await a.connect(detector.address)
        watch = await begin("watch", "deadlock", "--silence-seconds-max", "1", STILLTRUE_DETECTOR=detector.address)
        async with asyncio.timeout(60):
            assert b"not as of" in await watch.stdout.readline()
            detector.process.send_signal(signal.SIGSTOP)
            _, err = await watch.communicate()
        detector.process.send_signal(signal.SIGCONT)
        assert watch.returncode == 2
        assert b"no heartbeat" in err
        await a.kill()


async def test_ctrl_c_and_a_closed_pipe_are_quiet(serve: Any, begin: Any, played: Any, tmp_path: Path) -> None:
    a = played.FakeProcess("a")
    async with serve(tmp_path, "--period-seconds", "0.05") as detector:
        await a.connect(detector.address)
        watch = await begin("watch", STILLTRUE_DETECTOR=detector.address)
        async with asyncio.timeout(60):
            assert await watch.stdout.readline()
            watch.send_signal(signal.SIGINT)
            _, err = await watch.communicate()
        assert (watch.returncode, err.strip()) == (130, b"")
        shell = await asyncio.create_subprocess_shell(
            f"'{sys.executable}' -m detector.cli watch --detector {detector.address} | head -n 1",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(60):
            assert shell.stdout is not None
            assert await shell.stdout.readline()
            played.Deadlock(a, a)
            _, err = await shell.communicate()
        assert err == b""
        await a.kill()


@pytest.mark.longer
async def test_watch_waits_for_a_detector_that_is_not_up_yet(serve: Any, begin: Any, played: Any, tmp_path: Path) -> None:
    a = played.FakeProcess("a")
    async with serve(tmp_path / "first") as first:
        port = first.address.rpartition(":")[2]
        await first.end()
    watch = await begin("watch", "deadlock", STILLTRUE_DETECTOR=first.address)
    async with asyncio.timeout(60):
        assert (await watch.stderr.readline()).decode() == f"waiting for a detector at {first.address} ...\n"
    async with serve(tmp_path / "second", "--port", port, "--period-seconds", "0.1") as detector:
        await a.connect(detector.address)
        async with asyncio.timeout(60):
            assert b"deadlock" in await watch.stdout.readline()
            watch.send_signal(signal.SIGINT)
            assert await watch.wait() == 130
        await a.kill()


def test_the_help_of_a_flag_is_a_sentence_and_keeps_the_spelling_of_names() -> None:
    texts = {each.name: each.help for each in serve_command.params if isinstance(each, click.Option)}
    assert texts["port"] == "gRPC port; 0 picks a free one and prints it."
    assert texts["http_port"] == "HTTP port (metrics, health, pages); 0 picks a free one and prints it."
    assert all(text[0].isupper() and text.endswith(".") for name, text in texts.items() if text and name != "port")
