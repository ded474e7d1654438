"""How commands connect to a detector, and disconnect."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from detector.commands.shared.connection import Endpoint, detector_stub, failure
from detector.commands.shared.run import CommandError
from detector.service.app import running
from detector.service.settings import Settings
from stilltrue.runtime.membership.credentials import Security
from tests.service.authority import Authority

ENDPOINT = Endpoint(address="127.0.0.1:7600", security=Security())


class Channel:
    """Counts how often it was closed."""

    def __init__(self) -> None:
        self.closed = 0

    def __getattr__(self, name: str) -> object:
        return lambda *_, **__: None

    def close(self) -> None:
        self.closed += 1


@contextmanager
def ending(end: BaseException | None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Channel]:
    """A command that ends like this, with a channel that counts."""
    channel = Channel()
    monkeypatch.setattr(Endpoint, "channel", lambda _: channel)
    yield channel
    with detector_stub(ENDPOINT):
        if end is not None:
            raise end


@pytest.mark.parametrize(
    ("end", "raised"), [(ValueError(), ValueError), (SystemExit(), SystemExit), (grpc.RpcError(), CommandError)]
)
def test_the_channel_is_closed_when_a_command_ends(
    end: BaseException, raised: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(raised), ending(end, monkeypatch) as channel:
        pass
    assert channel.closed == 1
    with ending(None, monkeypatch) as channel:
        pass
    assert channel.closed == 1


def test_ctrl_c_does_not_wait_for_the_channel_to_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC waits for its calls there, and one that Ctrl-C met while it began may never end."""
    with pytest.raises(KeyboardInterrupt), ending(KeyboardInterrupt(), monkeypatch) as channel:
        pass
    assert channel.closed == 0


@pytest.mark.live
async def test_a_listener_that_is_not_a_detector_is_not_called_absent(played: Any, here: Any, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ours", "our authority")
    certificate, key = authority.sign("detector", to=tmp_path / "served")
    files: dict[str, Any] = {"host": "localhost", "tls_cert_file": certificate, "tls_key_file": key}
    async with played.detecting(tmp_path / "plain") as plain:
        told = await here("ask", "deadlock", "--detector", plain.web.removeprefix("http://"))
        assert (told.code, told.err.count("\n")) == (2, 1)
        assert "but does not answer as a detector" in told.err
        assert "start one" not in told.err
        told = await here("ask", "deadlock", "--detector", plain.address, "--tls-ca-file", str(authority.file))
        assert f"{plain.address} does not speak TLS: " in told.err
    async with running(Settings(port=0, http_port=0, data=tmp_path / "tls", period_seconds=0.0, **files)) as listening:
        address = f"localhost:{listening.port}"
        told = await here("ask", "deadlock", "--detector", address)
        assert told.err.startswith(
            f"stilltrue: something listens at {address} but does not answer as a detector: if it uses TLS"
        )
        watched = await here("watch", "--wait-seconds-max", "0.5", "--detector", address)
        assert (watched.code, watched.err) == (2, told.err)
        told = await here("ask", "deadlock", "--detector", address, "--tls-ca-file", str(authority.file))
        assert told.err == "", "no member has joined, and yet it was understood"
        (tmp_path / "key.pem").write_bytes(Path(authority.sign("other", to=tmp_path / "other")[1]).read_bytes())
        other = Authority(tmp_path / "theirs", "their authority")
        for target, flags, said in (
            (address, ("--tls-ca-file", str(other.file)), f"the certificate of {address} is not accepted: "),
            (f"127.0.0.1:{listening.port}", ("--tls-ca-file", str(authority.file)), "is for another host name: "),
            (address, ("--tls-ca-file", str(key)), f"{key}: not a CA certificate in PEM"),
            (address, ("--tls-cert-file", str(certificate), "--tls-key-file", str(tmp_path / "key.pem")), "is not the key of"),
            (address, ("--tls-cert-file", str(key), "--tls-key-file", str(certificate)), "not a certificate and its key"),
        ):
            told = await here("ask", "deadlock", "--detector", target, *flags)
            assert (told.code, told.err.count("\n")) == (2, 1)
            assert said in told.err


class Failed(grpc.RpcError, grpc.Call):  # type: ignore[misc]
    """A failed call to an address where nothing listens."""

    def __init__(self, details: str) -> None:
        self._details = details

    def __getattribute__(self, name: str) -> Any:
        if name == "code":
            return lambda: grpc.StatusCode.UNAVAILABLE
        return (lambda: self._details) if name == "details" else super().__getattribute__(name)


Failed.__abstractmethods__ = frozenset()


@pytest.mark.parametrize(
    ("details", "reason"),
    [
        (
            "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Failed to connect to remote host: "
            "Connection refused",
            "connection refused",
        ),
        (
            "errors resolving nosuchhost:7600: [field:hostname lookup error:address lookup failed for nosuchhost:7600: "
            "Domain name not found]",
            "the host name cannot be resolved",
        ),
        ("DNS resolution failed for nosuchhost:7600: C-ares status is not ARES_SUCCESS", "the host name cannot be resolved"),
        ("Cancelling all calls", "it shut down"),
        ("failed to connect to all addresses; last error: UNKNOWN: something new", "failed to connect to all addresses"),
    ],
)
def test_the_reason_why_there_is_no_detector_is_short(details: str, reason: str) -> None:
    made: Any = Failed
    assert str(failure(made(details), "127.0.0.1:1")).startswith(f"no detector at 127.0.0.1:1 ({reason}); start one")


@pytest.mark.live
async def test_a_watch_goes_on_though_its_detector_ended_before_the_first_answer(here: Any) -> None:
    """With no member there is no verdict, and the first heartbeat comes after seconds."""
    ends = iter([(grpc.StatusCode.UNAVAILABLE, "going away"), (grpc.StatusCode.NOT_FOUND, "no such scope")])

    def end(_: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        context.abort(*next(ends))
        yield b""

    server = grpc.server(ThreadPoolExecutor(1))
    method: Any = grpc.unary_stream_rpc_method_handler(end)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("stilltrue.v1.DetectorService", {"Watch": method}),))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    told = await here("watch", "--detector", address)
    server.stop(None)
    assert told.code == 2
    assert told.err.splitlines() == [
        f"the detector at {address} is gone (going away); waiting for it to come back ...",
        "stilltrue: no such scope",
    ]
