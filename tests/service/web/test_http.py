"""The HTTP server: slow clients starve no other, unknown host names are refused, and untrusted text is escaped."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from detector.ops.address import host_of, is_loopback
from detector.ops.http import MALFORMED_SECONDS, Answer, HttpServer, _RateLimit
from detector.ops.logs import LineFormatter, Log
from detector.service.metrics import Metrics
from detector.service.web.pages import Pages

CONNECTION_SECONDS: float = inspect.signature(HttpServer).parameters["connection_seconds_max"].default


async def _request(port: int, text: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text.encode())
    async with asyncio.timeout(5):
        answer = (await reader.read()).decode()
    writer.close()
    return answer


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield b"more\n"
        await asyncio.sleep(0.01)


async def serving(**settings: Any) -> tuple[HttpServer, int]:
    async def answer(request: Any) -> Answer | None:
        match request.path:
            case "/slow":
                await asyncio.Event().wait()
            case "/broken":
                raise ValueError("secret")
            case "/":
                return Answer(body="here\n")
            case "/stream":
                return Answer(body="", stream=endless())
        return None

    server = HttpServer(answer, log=Log("stilltrue"), **settings)
    return server, await server.start("127.0.0.1", 0)


async def test_slow_header_connections_do_not_block_the_probe(start_detector: Any, tmp_path: Path) -> None:
    """Those that the probe would wait for are closed after ``CONNECTION_SECONDS``."""
    async with start_detector(tmp_path) as detector:
        host, _, port = detector.web.removeprefix("http://").partition(":")
        dripping = [await asyncio.open_connection(host, int(port)) for _ in range(600)]
        for _, writer in dripping:
            writer.write(b"GET / HTTP/1.1\r\nHo")
        for _ in range(3):
            async with asyncio.timeout(CONNECTION_SECONDS / 2):
                assert (await detector.fetch("/healthz"))[0] == 200
        for _, writer in dripping:
            writer.close()


async def test_a_connection_ends_in_time_whatever_it_has_sent() -> None:
    server, port = await serving(connection_seconds_max=0.2)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: local")
    async with asyncio.timeout(5):
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
    writer.close()
    await server.stop()


async def test_streams_are_bounded_in_number_and_time_and_outlive_other_answers() -> None:
    server, port = await serving(connection_seconds_max=0.1, stream_seconds_max=3.0, streams_max=1)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
    async with asyncio.timeout(20):
        until = asyncio.get_running_loop().time() + 0.3  # three times as long as other answers may last
        while asyncio.get_running_loop().time() < until:
            assert await reader.readline(), "it has ended"
        assert " 503 " in (await _request(port, "GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")).splitlines()[0]
        with contextlib.suppress(ConnectionError):
            while await reader.readline():
                pass
        while b" 200 " not in await _first_line(port, "/stream"):
            pass  # there is room again, unless this connection was not read in time
    writer.close()
    await server.stop()


async def _first_line(port: int, path: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    try:
        return await reader.readline()
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:7601", 200), ("localhost", 200), ("[::1]:7601", 200), ("LOCALHOST.:80", 200),
        ("evil.example", 421), ("127.0.0.1.evil.example", 421), ("", 421),
    ],
)  # fmt: skip
async def test_on_loopback_only_its_host_names_are_accepted(host: str, status: int) -> None:
    server, port = await serving()
    answer = await _request(port, f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")
    assert f" {status} " in answer.splitlines()[0]
    assert ("serve --http-hosts" in answer) == (status == 421), "a proxy that passes the public name on is told what to set"
    await server.stop()


async def test_configured_host_names_are_accepted_too() -> None:
    server, port = await serving(hosts={"detector.example"})
    for host, status in (("detector.example:80", 200), ("evil.example", 421), ("localhost", 200)):
        assert f" {status} " in (await _request(port, f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).splitlines()[0]
    await server.stop()


async def test_invalid_http_is_logged_occasionally_and_never_with_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """Each such request used to write 600 bytes into the log, so any client could fill the disk."""
    server, port = await serving()
    for text in (
        "GET /\x00 HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        f"GET /{'x' * 9000} HTTP/1.1\r\n\r\n",
    ) * 10:
        assert " 400 " in (await _request(port, text)).partition("\r\n")[0]
    await server.stop()
    assert len(caplog.records) <= 1
    assert "Traceback" not in caplog.text


def test_one_complaint_a_minute_is_logged_with_the_number_of_the_others() -> None:
    now = [0.0]
    rarely = _RateLimit(lambda: now[0])
    said: list[str] = []
    for now[0] in (0.0, 1.0, 2.0, MALFORMED_SECONDS + 1):
        record = logging.makeLogRecord(
            {"msg": "Error handling request from %s", "args": ("x",), "exc_info": (None, ValueError(), None)}
        )
        if rarely.filter(record):
            said.append(LineFormatter(as_json=False).format(record))
    assert [line.partition("event=")[2] for line in said] == [
        '"request malformed" said=ValueError',
        '"request malformed" said=ValueError before=2',
    ]


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET / HTTP/1.1", 200), ("HEAD / HTTP/1.1", 200), ("POST / HTTP/1.1", 405), ("GET /none HTTP/1.1", 404),
        ("GET /slow HTTP/1.1", 503), ("GET /broken HTTP/1.1", 500), ("nonsense", 400), (f"GET /{'x' * 10_000} HTTP/1.1", 400),
    ],
)  # fmt: skip
async def test_every_request_gets_its_answer(request_line: str, status: int) -> None:
    server, port = await serving(answer_seconds_max=0.1)
    answer = await _request(port, f"{request_line}\r\nHost: localhost\r\n\r\n")
    assert f" {status} " in answer.splitlines()[0]
    assert "secret" not in answer
    assert ("\nhere" in answer) == (request_line == "GET / HTTP/1.1")
    await server.stop()


async def test_pages_escape_untrusted_text(start_detector: Any, process: Any, tmp_path: Path) -> None:
    async with start_detector(tmp_path) as detector:
        await detector.join(process("a", labels={"x": "<script>alert(1)</script>"}))
        await detector.ask()
        _, _, body = await detector.fetch("/")
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in body
        assert body.count("<script") == body.count('<script src="/static/live.js?v=') == 1


def test_the_host_names_of_this_machine() -> None:
    assert all(is_loopback(host) for host in ("localhost", "127.9.9.9", "::1", "[::1]"))
    assert not any(is_loopback(host) for host in ("10.0.0.1", "x", ""))
    assert [host_of(text) for text in ("A.b:1", "[::1]:2", "x.", "")] == ["a.b", "::1", "x", ""]


async def _all_at_once(web: str, path: str, count: int) -> list[str]:
    """The answers to as many requests, which are there in one round of the event loop."""
    host, _, port = web.removeprefix("http://").partition(":")
    ones = [await asyncio.open_connection(host, int(port)) for _ in range(count)]
    for _, writer in ones:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    async with asyncio.timeout(60):
        answers = [(await reader.read()).decode() for reader, _ in ones]
    for _, writer in ones:
        writer.close()
    return answers


async def test_the_loop_serves_others_between_any_two_pages(
    start_detector: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds, made, render = [0], list[int](), Pages.html

    def noting(pages: Pages, *given: Any, **values: Any) -> Answer:
        made.append(rounds[0])
        return render(pages, *given, **values)

    async def count() -> None:
        while True:
            rounds[0] += 1
            await asyncio.sleep(0)

    async with start_detector(tmp_path) as detector:
        monkeypatch.setattr(Pages, "html", noting)
        counting = asyncio.create_task(count())
        answers = await _all_at_once(detector.web, "/members", 20)
        counting.cancel()
    assert all(" 200 " in answer.splitlines()[0] for answer in answers)
    assert len(made) == len(set(made)) == 20


async def test_concurrent_scrapes_share_one_rendering_of_the_metrics(
    start_detector: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, text = list[None](), Metrics.text

    def noting(metrics: Metrics) -> bytes:
        made.append(None)
        return text(metrics)

    async with start_detector(tmp_path) as detector:
        monkeypatch.setattr(Metrics, "text", noting)
        answers = await _all_at_once(detector.web, "/metrics", 20)
    assert all("stilltrue_members" in answer for answer in answers)
    assert len(made) < 20
