"""Calls opened and reset, or opened and left, on their own connections: they take no place from others' calls."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc.aio
import pytest

from detector.sidecar.http2.frames import END_HEADERS, HEADERS, PREFACE, RST_STREAM, SETTINGS, ErrorCode, frame
from stilltrue.v1 import detector_pb2, detector_pb2_grpc
from tests.service.outsiders.test_resources import SECONDS_MAX, detecting

pytestmark = [pytest.mark.longer, pytest.mark.slow]
CONNECTIONS = 4
CALLS = 4000
QUESTIONS = 40
MAX_CONCURRENT_STREAMS = 3
STREAMS_MAX = 1000


def literal(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def opens(stream: int, method: bytes) -> bytes:
    fields = {
        b":method": b"POST", b":scheme": b"http", b":path": method, b":authority": b"x", b"te": b"trailers",
        b"content-type": b"application/grpc",
    }  # fmt: skip
    return frame(HEADERS, END_HEADERS, stream, b"".join(b"\0" + literal(name) + literal(fields[name]) for name in fields))


def resets(stream: int) -> bytes:
    return frame(RST_STREAM, 0, stream, struct.pack(">I", ErrorCode.CANCEL))


@contextlib.contextmanager
def connection(address: str) -> Iterator[socket.socket]:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=SECONDS_MAX) as raw:
        raw.sendall(PREFACE + frame(SETTINGS, 0, 0))
        yield raw


def flood(address: str, stop: threading.Event, *, reset: bool) -> None:
    """One connection after the other: the detector may end those that go too far."""
    while not stop.is_set():
        with contextlib.suppress(OSError), connection(address) as raw:
            for stream in range(1, 2 * CALLS, 2):
                raw.sendall(opens(stream, b"/stilltrue.v1.AgentService/Connect") + (resets(stream) if reset else b""))
            stop.wait(1.0)


@pytest.mark.parametrize("reset", [pytest.param(True, id="reset", marks=pytest.mark.not_in_ci), pytest.param(False, id="left")])
async def test_calls_opened_and_reset_or_left_cancel_no_question(*, reset: bool, tmp_path: Path) -> None:
    """Before, the queue of all calls was full of them, and gRPC cancelled those of others at random."""
    stop = threading.Event()
    async with detecting(tmp_path) as measured, measured.channel() as channel:
        stub = detector_pb2_grpc.DetectorServiceStub(channel)  # type: ignore[no-untyped-call]
        await stub.Ask(detector_pb2.AskRequest(predicate="deadlock"), timeout=SECONDS_MAX)
        floods = [
            threading.Thread(target=flood, args=(measured.address, stop), kwargs={"reset": reset}) for _ in range(CONNECTIONS)
        ]
        for one in floods:
            one.start()
        refused = []
        try:
            for _ in range(QUESTIONS):
                await asyncio.sleep(0.1)
                try:
                    await stub.Ask(detector_pb2.AskRequest(predicate="deadlock"), timeout=SECONDS_MAX)
                except grpc.aio.AioRpcError as error:
                    refused.append((error.code(), error.details(), error.debug_error_string()))
        finally:
            stop.set()
            for one in floods:
                await asyncio.to_thread(one.join)
        assert refused == []


async def test_a_connection_learns_its_bound_on_calls(tmp_path: Path) -> None:
    def told(address: str) -> dict[int, int]:
        with connection(address) as raw:
            data = raw.recv(4096)
        assert data[3] == SETTINGS
        length = int.from_bytes(data[:3], "big")
        return dict(struct.iter_unpack(">HL", data[9 : 9 + length]))

    async with detecting(tmp_path) as measured:
        assert (await asyncio.to_thread(told, measured.address))[MAX_CONCURRENT_STREAMS] < STREAMS_MAX
