"""A detector's archive over TLS: access by certificate and token, clear refusals, retries of transient failures."""

from __future__ import annotations

import datetime as dt
import hashlib
import threading
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from detector.core.registry import find_predicate
from detector.spark.source.data_source import source_options
from detector.spark.source.detector_client import Remote, RemoteError
from stilltrue.runtime.membership.credentials import Security
from tests.synthetic.random_snapshots import Judged, judged, random_snapshots


@pytest.fixture(scope="module")
def short() -> Judged:
    return judged(random_snapshots(5, 10), [find_predicate("deadlock")])


@pytest.fixture
def tls(tmp_path: Path) -> dict[str, Path]:
    """A certificate for loopback that signs itself, and roles for two tokens."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "detector")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=1)).not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    files = {name: tmp_path / name for name in ("cert.pem", "key.pem", "roles.toml", "reader", "agent")}
    files["cert.pem"].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files["key.pem"].write_bytes(secret)
    grants = ""
    for role in ("reader", "agent"):
        files[role].write_text(f"token-of-{role}")
        grants += f'[[grant]]\nrole = "{role}"\ntokens_sha256 = ["{hashlib.sha256(f"token-of-{role}".encode()).hexdigest()}"]\n'
    files["roles.toml"].write_text(grants)
    return files


def test_only_readers_and_operators_may_read(
    short: Judged, serving: Any, archived: Any, tls: dict[str, Path], tmp_path: Path
) -> None:
    archived(short, tmp_path / "data", 0, 10)
    settings = {"tls_cert_file": tls["cert.pem"], "tls_key_file": tls["key.pem"], "roles_file": tls["roles.toml"]}
    with serving(tmp_path / "data", **settings) as address:
        options = {"address": address, "table": "snapshots", "retry_seconds": "0", "tls_ca_file": str(tls["cert.pem"])}
        reader = source_options({**options, "token_file": str(tls["reader"])}).remote
        ((since, until),) = reader.ranges("snapshots")
        rows = [
            pa.ipc.open_stream(each.content).read_all()
            for each in reader.read("snapshots", ["snapshot"], since, until, whole=True)
        ]
        assert pa.concat_tables(rows).column("snapshot").to_pylist() == list(range(1, 11))
        for token, words in (
            (str(tls["agent"]), "needs the role operator or reader; this token is agent"),
            ("", "show a certificate"),
        ):
            refused = source_options({**options, "token_file": token}).remote
            with pytest.raises(RemoteError, match=words):
                refused.ranges("snapshots")
            with pytest.raises(RemoteError, match=words):
                next(refused.read("snapshots", [], since, until, whole=True))
        with pytest.raises(RemoteError, match=f"no detector at {address}"):
            Remote(address=address, retry_seconds=0).ranges("snapshots")


def test_missing_files_are_named(tmp_path: Path) -> None:
    remote = Remote(address="127.0.0.1:1", security=Security(ca=str(tmp_path / "none.pem")), retry_seconds=0)
    with pytest.raises(RemoteError, match=r"none\.pem"):
        remote.ranges("snapshots")


def test_a_reader_continues_when_the_detector_returns(short: Judged, serving: Any, archived: Any, tmp_path: Path) -> None:
    archived(short, tmp_path, 0, 10)
    with serving(tmp_path) as address:
        remote = Remote(address=address, retry_seconds=30)
        ((since, until),) = remote.ranges("snapshots")
    port = int(address.rpartition(":")[2])
    found: list[int] = []

    def read() -> None:
        for message in remote.read("snapshots", ["snapshot"], since, until, whole=True):
            found.extend(pa.ipc.open_stream(message.content).read_all().column("snapshot").to_pylist())

    thread = threading.Thread(target=read, daemon=True)
    thread.start()  # nobody is there yet
    with serving(tmp_path, port=port):
        thread.join(30)
    assert found == list(range(1, 11))
