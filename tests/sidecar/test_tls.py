"""TLS to the outside: for callers and upstreams; strangers are refused, and replaced files are reloaded."""

from __future__ import annotations

import asyncio
import datetime as dt
import socket
import ssl
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from detector.ops.address import parse_address
from detector.sidecar.routing import Upstreams
from detector.sidecar.tls import Tls, TlsFiles, TlsRefusedError

NOW = dt.datetime.now(dt.UTC)
OPTIONS = (("grpc.use_local_subchannel_pool", 1),)


def own_certificate(folder: Path) -> TlsFiles:
    """A certificate for localhost that is its own authority."""
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    built = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(NOW - dt.timedelta(days=1))
        .not_valid_after(NOW + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    )
    files = TlsFiles(certificate=folder / "tls.crt", key=folder / "tls.key", ca=folder / "tls.crt")
    assert files.certificate is not None
    assert files.key is not None
    files.certificate.write_bytes(built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    private = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    files.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, *private))
    return files


def credentials(trusted: TlsFiles, own: TlsFiles | None = None) -> grpc.ChannelCredentials:
    def read(path: Path | None) -> bytes | None:
        return None if path is None else path.read_bytes()

    return grpc.ssl_channel_credentials(
        read(trusted.certificate), read(own.key) if own else None, read(own.certificate) if own else None
    )


async def call(target: str, shown: grpc.ChannelCredentials | None) -> bytes:
    open_channel = (
        grpc.aio.insecure_channel(target, OPTIONS) if shown is None else grpc.aio.secure_channel(target, shown, OPTIONS)
    )
    async with open_channel as channel:
        unary: Any = channel.unary_unary("/mix.Mix/Unary")
        return bytes(await unary(b"hello", timeout=10))


async def test_callers_use_tls_and_strangers_are_refused(program: str, start_sidecar: Any, tmp_path: Path) -> None:
    ours, theirs = own_certificate(tmp_path / "ours"), own_certificate(tmp_path / "theirs")
    async with start_sidecar(program, inbound_tls=TlsFiles(certificate=ours.certificate, key=ours.key, ca=ours.ca)) as (
        sidecar,
        listening,
    ):
        target = f"localhost:{listening.inbound.port}"
        assert await call(target, credentials(ours, ours)) == b"hello"
        for shown in (None, credentials(ours), credentials(ours, theirs), credentials(theirs, ours)):
            with pytest.raises(grpc.aio.AioRpcError) as failure:
                await call(target, shown)
            assert failure.value.code() is grpc.StatusCode.UNAVAILABLE
        assert sidecar.program.inbound == 1


async def test_upstreams_are_called_over_tls(program: str, start_sidecar: Any, tmp_path: Path) -> None:
    files = own_certificate(tmp_path)
    async with start_sidecar(program, inbound_tls=TlsFiles(certificate=files.certificate, key=files.key)) as (
        server,
        at_server,
    ):
        for trusts, answered in ((files.ca, True), (None, False)):
            upstreams = Upstreams(named={"*": parse_address(f"localhost:{at_server.inbound.port}")}, tls=True)
            async with start_sidecar(program, upstreams=upstreams, upstream_tls=TlsFiles(ca=trusts)) as (_, at_client):
                if answered:
                    assert await call(str(at_client.outbound), None) == b"hello"
                else:
                    with pytest.raises(grpc.aio.AioRpcError):
                        await call(str(at_client.outbound), None)
        assert server.program.inbound == 1


def refusals(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, str]]:
    """What the sidecars logged of connections that failed: direction, text and fix; clears the log."""
    found = [record.stilltrue_fields for record in caplog.records if record.message == "relay failed"]  # type: ignore[attr-defined]
    caplog.clear()
    assert all(one["peer"].startswith(("127.0.0.1", "localhost:")) for one in found)
    return [(one["direction"], one["text"], one["fix"]) for one in found]


def connect_trusting(trusted: TlsFiles, port: int) -> None:
    """A handshake of OpenSSL's own, which says why it ends it; gRPC's C core just leaves."""
    context = ssl.create_default_context(cafile=str(trusted.ca))
    with socket.create_connection(("localhost", port)) as plain, context.wrap_socket(plain, server_hostname="localhost"):
        pass


async def test_a_refused_caller_is_logged_once_with_what_to_change(
    program: str, start_sidecar: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = own_certificate(tmp_path / "ours"), own_certificate(tmp_path / "theirs")
    async with start_sidecar(program, inbound_tls=ours) as (sidecar, listening):
        target = f"localhost:{listening.inbound.port}"
        for shown, text, flag in (
            (None, "it does not speak TLS", "--upstream-tls"),
            (credentials(ours), "it presents no client certificate", "--inbound-tls-client-ca-file"),
            (credentials(ours, theirs), "its client certificate is not accepted", "--inbound-tls-client-ca-file"),
            (credentials(theirs, ours), "it left without a reason; it may not accept", "--upstream-tls-ca-file"),
        ):
            for _ in range(2):
                with pytest.raises(grpc.aio.AioRpcError):
                    await call(target, shown)
            while "relay failed" not in caplog.messages:  # it may learn after the caller that this has left
                await asyncio.sleep(0.01)
            ((direction, told, fix),) = refusals(caplog)
            assert direction == "inbound"
            assert told.startswith(f"TLS handshake: {text}")
            assert flag in fix
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.to_thread(connect_trusting, theirs, listening.inbound.port)
        while "relay failed" not in caplog.messages:  # the alert is still on its way
            await asyncio.sleep(0.01)
        ((_, told, fix),) = refusals(caplog)
        assert told == "TLS handshake: it does not accept the certificate in --inbound-tls-cert-file"
        assert "--upstream-tls-ca-file" in fix
        _, writer = await asyncio.open_connection(listening.inbound.host, listening.inbound.port)  # a TCP probe
        writer.close()
        await writer.wait_closed()
        assert await call(target, credentials(ours, ours)) == b"hello"
        assert not refusals(caplog)
        while sidecar.relays:  # none stays behind: it would hold up the end
            await asyncio.sleep(0.01)


async def test_a_server_that_refuses_us_is_logged_with_what_to_change(
    program: str, start_sidecar: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = own_certificate(tmp_path / "ours"), own_certificate(tmp_path / "theirs")
    async with start_sidecar(program, inbound_tls=ours) as (_, at_server):
        server = parse_address(f"localhost:{at_server.inbound.port}")
        for address, tls, text, fix in (
            (server, None, "it closed the connection without an answer", "if it speaks TLS: --upstream-tls"),
            (server, TlsFiles(ca=ours.ca), "it closed the connection without an answer", "if it requires a client certificate"),
            (server, TlsFiles(ca=theirs.ca), f"{server} cannot be reached: its certificate is not", "its CA belongs into"),
            (parse_address(program), ours, f"{program} cannot be reached: it does not speak TLS", "leave out --upstream-tls"),
        ):
            upstreams = Upstreams(named={"*": address}, tls=tls is not None)
            async with start_sidecar(program, upstreams=upstreams, upstream_tls=tls) as (_, at_client):
                with pytest.raises(grpc.aio.AioRpcError):
                    await call(str(at_client.outbound), None)
            outbound = [one for one in refusals(caplog) if one[0] == "outbound"]
            assert len(outbound) == 1
            assert outbound[0][1].startswith(text)
            assert outbound[0][2].startswith(fix)


async def test_tls_to_a_plaintext_port_is_logged_with_what_to_change(
    program: str, start_sidecar: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours = own_certificate(tmp_path)
    async with start_sidecar(program, program) as (_, listening):
        for port, direction, flag in (
            (listening.inbound.port, "inbound", "--inbound-tls-cert-file"),
            (listening.outbound.port, "outbound", "--upstream-tls"),
        ):
            with pytest.raises(grpc.aio.AioRpcError):
                await call(f"localhost:{port}", credentials(ours))
            ((told, text, fix),) = refusals(caplog)
            assert (told, text) == (direction, "it speaks TLS where the sidecar expects plaintext")
            assert flag in fix


async def test_replaced_files_are_reloaded(program: str, start_sidecar: Any, tmp_path: Path) -> None:
    files = own_certificate(tmp_path)
    before = credentials(files)
    async with start_sidecar(program, inbound_tls=TlsFiles(certificate=files.certificate, key=files.key)) as (
        sidecar,
        listening,
    ):
        target = f"localhost:{listening.inbound.port}"
        assert await call(target, before) == b"hello"
        after = credentials(own_certificate(tmp_path))
        assert sidecar._tls_in.reload_if_changed()
        assert await call(target, after) == b"hello"
        with pytest.raises(grpc.aio.AioRpcError):
            await call(target, before)


def test_a_key_pair_that_does_not_match_is_ignored(tmp_path: Path) -> None:
    files, other = own_certificate(tmp_path / "ours"), own_certificate(tmp_path / "other")
    tls = Tls(files, server=False)
    before = tls.context
    assert files.key is not None
    assert other.key is not None
    files.key.write_bytes(other.key.read_bytes())
    with pytest.raises(TlsRefusedError, match=r"tls\.key"):
        tls.reload_if_changed()
    assert tls.context is before
    with pytest.raises(TlsRefusedError):
        Tls(files, server=True)
