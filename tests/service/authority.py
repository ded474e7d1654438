"""An authority that signs certificates, and clients that show them."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from stilltrue.v1 import agent_pb2, agent_pb2_grpc, detector_pb2, detector_pb2_grpc

SECONDS_MAX = 10.0


DAY = dt.timedelta(days=1)


NOW = dt.datetime.now(dt.UTC)


ROLES = """
[[grant]]
role = "agent"
certificates = ["*.shop.svc"]

[[grant]]
role = "reader"
certificates = ["prometheus"]
tokens_sha256 = ["{reader}"]

[[grant]]
role = "operator"
certificates = ["alice"]
"""


class Authority:
    """Signs certificates, as PEM files in a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._builder(self._name, self._key, NOW - DAY, NOW + 30 * DAY).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.pem = certificate.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        self.file = folder / "ca.crt"
        self.file.write_bytes(self.pem)

    def _builder(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, begins: dt.datetime, ends: dt.datetime
    ) -> x509.CertificateBuilder:
        return x509.CertificateBuilder(
            issuer_name=self._name,
            subject_name=name,
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=begins,
            not_valid_after=ends,
        )

    def sign(
        self, name: str, *, ends: dt.datetime = NOW + DAY, to: Path | None = None, mail: str = "", local: bool = False
    ) -> tuple[Path, Path]:
        """A certificate for ``name`` (and loopback) and its key: their files."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names: list[x509.GeneralName] = [x509.DNSName(name)]
        if name == "detector" or local:
            names += [x509.DNSName("localhost")]
        if mail:
            names = [x509.RFC822Name(mail)]
        built = self._builder(subject, key, NOW - 2 * DAY, ends).add_extension(
            x509.SubjectAlternativeName(names), critical=False
        )
        where = to or self._folder
        where.mkdir(parents=True, exist_ok=True)
        certificate_file, key_file = where / f"{name}.crt", where / f"{name}.key"
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        replace_file(key_file, private)
        replace_file(certificate_file, built.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return certificate_file, key_file


def replace_file(path: Path, content: bytes) -> None:
    """As a careful rotation does: never half a file."""
    fresh = path.with_name(f".{path.name}")
    fresh.write_bytes(content)
    fresh.replace(path)


@asynccontextmanager
async def channel(address: str, ca: Path, pair: tuple[Path, Path] | None = None) -> AsyncIterator[grpc.aio.Channel]:
    certificate, key = pair or (None, None)
    credentials = grpc.ssl_channel_credentials(
        ca.read_bytes(), key.read_bytes() if key else None, certificate.read_bytes() if certificate else None
    )
    async with grpc.aio.secure_channel(address, credentials, (("grpc.use_local_subchannel_pool", 1),)) as open_channel:
        yield open_channel


async def ask(open_channel: grpc.aio.Channel, **more: Any) -> Any:
    stub: Any = detector_pb2_grpc.DetectorServiceStub(open_channel)  # type: ignore[no-untyped-call]
    return await stub.Ask(detector_pb2.AskRequest(predicate="deadlock"), timeout=SECONDS_MAX, **more)


async def look(open_channel: grpc.aio.Channel, **more: Any) -> Any:
    stub: Any = detector_pb2_grpc.DetectorServiceStub(open_channel)  # type: ignore[no-untyped-call]
    return await stub.ListAgents(detector_pb2.ListAgentsRequest(), timeout=SECONDS_MAX, **more)


async def report(open_channel: grpc.aio.Channel, **whom: Any) -> Any:
    """Say hello as an agent; the first answer. ``whom``: what differs from an intruder."""
    stub: Any = agent_pb2_grpc.AgentServiceStub(open_channel)  # type: ignore[no-untyped-call]
    call = stub.Connect(timeout=SECONDS_MAX)
    process: dict[str, Any] = {"service": "s", "instance": "intruder", "incarnation": 1} | whom
    await call.write(agent_pb2.ConnectRequest(hello=agent_pb2.Hello(process=process)))
    answer = await call.read()
    if answer is grpc.aio.EOF:
        raise RefusedError(await call.code(), await call.details())
    call.cancel()
    return answer


class RefusedError(Exception):
    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(code, details)
        self._code, self._details = code, details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details


async def refusal(awaitable: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises((grpc.aio.AioRpcError, RefusedError)) as failure:
        await awaitable
    error: Any = failure.value
    return error.code(), error.details()
