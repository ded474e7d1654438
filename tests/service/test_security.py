"""TLS, mTLS and roles against the running service: nobody is let in who must not be, and rotation loses nothing."""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
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
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from detector.ops.logs import Log
from detector.service.grpc_api.roles import Role, Roles, SecurityError, read_grants, wanted
from detector.service.grpc_api.security import Certificates, Files
from detector.service.settings import SettingError, Settings
from stilltrue import Agent
from stilltrue.runtime.credentials import Security, SecurityRefusedError
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

    def sign(self, name: str, *, ends: dt.datetime = NOW + DAY, to: Path | None = None, mail: str = "") -> tuple[Path, Path]:
        """A certificate for ``name`` (and loopback) and its key: their files."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names: list[x509.GeneralName] = [x509.DNSName(name)]
        if name == "detector":
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
        _replace(key_file, private)
        _replace(certificate_file, built.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return certificate_file, key_file


def _replace(path: Path, content: bytes) -> None:
    """As a careful rotation does: never half a file."""
    fresh = path.with_name(f".{path.name}")
    fresh.write_bytes(content)
    fresh.replace(path)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ours"), "our authority")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("others"), "somebody else's")


@pytest.fixture
def roles(tmp_path: Path) -> Path:
    path = tmp_path / "roles.toml"
    path.write_text(ROLES.format(reader=hashlib.sha256(b"open sesame").hexdigest()))
    return path


@pytest.fixture
def server_files(authority: Authority, tmp_path: Path) -> dict[str, Any]:
    certificate, key = authority.sign("detector", to=tmp_path / "served")
    return {"host": "localhost", "tls_cert_file": certificate, "tls_key_file": key}


@pytest.fixture
def mutual(server_files: dict[str, Any], authority: Authority, roles: Path) -> dict[str, Any]:
    return server_files | {"tls_client_ca_file": authority.file, "roles_file": roles}


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
        raise _RefusedError(await call.code(), await call.details())
    call.cancel()
    return answer


class _RefusedError(Exception):
    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(code, details)
        self._code, self._details = code, details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details


async def refusal(awaitable: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises((grpc.aio.AioRpcError, _RefusedError)) as failure:
        await awaitable
    error: Any = failure.value
    return error.code(), error.details()


# -- who is let in -----------------------------------------------------------------------------------------------------


async def test_each_role_may_do_its_own_and_nothing_else(
    start_detector: Any, tmp_path: Path, mutual: dict[str, Any], authority: Authority
) -> None:
    async with start_detector(tmp_path / "data", **mutual) as detector:
        async with channel(detector.address, authority.file, authority.sign("orders.shop.svc")) as agent:
            assert (await report(agent)).WhichOneof("message") == "welcome"
            assert await refusal(ask(agent)) == (
                grpc.StatusCode.PERMISSION_DENIED,
                "Ask needs the role operator; orders.shop.svc is agent",
            )
            assert (await refusal(look(agent)))[0] is grpc.StatusCode.PERMISSION_DENIED
        async with channel(detector.address, authority.file, authority.sign("prometheus")) as reader:
            await look(reader)
            assert (await refusal(ask(reader)))[0] is grpc.StatusCode.PERMISSION_DENIED
            assert (await refusal(report(reader)))[0] is grpc.StatusCode.PERMISSION_DENIED
        async with channel(detector.address, authority.file, authority.sign("alice")) as operator:
            await look(operator)
            await ask(operator)
            assert (await refusal(report(operator)))[0] is grpc.StatusCode.PERMISSION_DENIED
        async with channel(detector.address, authority.file, authority.sign("mallory")) as nobody:
            code, text = await refusal(look(nobody))
            assert (code, text) == (
                grpc.StatusCode.PERMISSION_DENIED,
                "ListAgents needs the role operator or reader; mallory has none (--roles-file)",
            )


async def test_who_has_no_role_is_refused_before_a_byte_of_the_request_is_read(
    start_detector: Any, tmp_path: Path, mutual: dict[str, Any], authority: Authority
) -> None:
    async with (
        start_detector(tmp_path / "data", **mutual) as detector,
        channel(detector.address, authority.file, authority.sign("mallory")) as nobody,
    ):
        withheld = asyncio.Event()

        async def never() -> AsyncIterator[bytes]:
            await withheld.wait()
            yield b""

        for method in ("Ask", "ListAgents"):
            multi: Any = nobody.stream_unary(f"/stilltrue.v1.DetectorService/{method}")
            call = multi(never(), timeout=SECONDS_MAX)
            assert (await refusal(call))[0] is grpc.StatusCode.PERMISSION_DENIED


async def test_a_watch_ends_when_its_role_is_revoked(
    start_detector: Any, tmp_path: Path, mutual: dict[str, Any], roles: Path, authority: Authority
) -> None:
    async with (
        start_detector(tmp_path / "data", **mutual, heartbeat_seconds=0.1) as detector,
        channel(detector.address, authority.file, authority.sign("alice")) as operator,
    ):
        stub: Any = detector_pb2_grpc.DetectorServiceStub(operator)  # type: ignore[no-untyped-call]
        watch = stub.Watch(detector_pb2.WatchRequest(), timeout=SECONDS_MAX)
        await watch.read()
        _replace(roles, ROLES.format(reader="0" * 64).replace("alice", "bob").encode())

        async def drained() -> None:
            while await watch.read() is not grpc.aio.EOF:
                pass
            raise _RefusedError(await watch.code(), await watch.details())

        assert (await refusal(drained()))[0] is grpc.StatusCode.PERMISSION_DENIED


async def test_a_name_is_bound_to_the_certificate_that_said_it_first_also_after_a_restart(
    start_detector: Any, tmp_path: Path, mutual: dict[str, Any], authority: Authority
) -> None:
    bound = "orders-1 is bound to the certificate of orders.shop.svc until it leaves or is forgotten"
    for incarnation in (1, 3):
        async with (
            start_detector(tmp_path / "data", **mutual) as detector,
            channel(detector.address, authority.file, authority.sign("orders.shop.svc")) as orders,
            channel(detector.address, authority.file, authority.sign("stock.shop.svc")) as stock,
        ):
            if incarnation == 1:
                await report(orders, instance="orders-1", incarnation=1)
            refused = await refusal(report(stock, instance="orders-1", incarnation=2))
            assert refused == (grpc.StatusCode.PERMISSION_DENIED, bound)
            assert (await report(orders, instance="orders-1", incarnation=incarnation)).WhichOneof("message") == "welcome"


async def test_a_grant_says_as_whom_an_agent_may_report(
    start_detector: Any, tmp_path: Path, mutual: dict[str, Any], roles: Path, authority: Authority
) -> None:
    _replace(roles, b'[[grant]]\nrole = "agent"\ncertificates = ["*.shop.svc"]\nprocesses = ["stock", "stock-*"]\n')
    async with (
        start_detector(tmp_path / "data", **mutual) as detector,
        channel(detector.address, authority.file, authority.sign("orders.shop.svc")) as agent,
    ):
        assert await refusal(report(agent)) == (
            grpc.StatusCode.PERMISSION_DENIED,
            "orders.shop.svc may not report as intruder of s (--roles-file: processes)",
        )


async def test_with_roles_pages_and_metrics_are_for_readers_and_probes_for_all(
    start_detector: Any, tmp_path: Path, mutual: dict[str, Any]
) -> None:
    async def status(detector: Any, path: str, token: str = "") -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(detector.web.rpartition(":")[2]))
        bearer = f"Authorization: Bearer {token}\r\n" if token else ""
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{bearer}\r\n".encode())
        line = await reader.readline()
        writer.close()
        return int(line.split()[1])

    async with start_detector(tmp_path / "data", **mutual) as detector:
        for path in ("/", "/metrics", "/incidents", "/nowhere"):
            assert await status(detector, path) == 401
            assert await status(detector, path, "close sesame") == 401
        assert await status(detector, "/", "open sesame") == 200
        assert await status(detector, "/metrics", "open sesame") == 200
        assert await status(detector, "/healthz") == 200
    async with start_detector(tmp_path / "data", **mutual, http_open=True) as detector:
        assert await status(detector, "/metrics") == 200


@pytest.mark.parametrize("file", ["key", "roles", "token"])
def test_a_secret_that_everybody_may_write_to_is_refused(tmp_path: Path, authority: Authority, file: str) -> None:
    certificate, key = authority.sign("detector", to=tmp_path)
    roles, token = tmp_path / "roles.toml", tmp_path / "token"
    roles.write_text("")
    token.write_text("open sesame")
    {"key": key, "roles": roles, "token": token}[file].chmod(0o666)
    use: dict[str, Callable[[], Any]] = {
        "key": lambda: Certificates(Files(certificate=certificate, key=key), Log("stilltrue")),
        "roles": lambda: Roles(roles, Log("stilltrue")),
        "token": lambda: Security(token_file=str(token)).channel("127.0.0.1:1"),
    }
    with pytest.raises((SecurityError, SecurityRefusedError), match="writable by everybody"):
        use[file]()


async def test_a_mail_address_in_a_certificate_is_no_host_name(
    start_detector: Any, tmp_path: Path, mutual: dict[str, Any], roles: Path, authority: Authority
) -> None:
    mail = authority.sign("someone", mail="mallory@orders.shop.svc")
    _replace(roles, ROLES.format(reader="0" * 64).replace('"alice"', '"*.shop.svc"').encode())
    async with start_detector(tmp_path / "data", **mutual) as detector:
        async with channel(detector.address, authority.file, mail) as nobody:
            assert (await refusal(ask(nobody)))[0] is grpc.StatusCode.PERMISSION_DENIED
        async with channel(detector.address, authority.file, authority.sign("orders.shop.svc")) as operator:
            await ask(operator)


async def test_who_shows_no_good_certificate_is_not_let_in(
    start_detector: Any, tmp_path: Path, mutual: dict[str, Any], authority: Authority, other: Authority
) -> None:
    late = authority.sign("alice", ends=NOW - DAY, to=tmp_path / "expired")
    async with start_detector(tmp_path / "data", **mutual) as detector:
        for pair in (None, other.sign("alice"), late):
            async with channel(detector.address, authority.file, pair) as stranger:
                assert (await refusal(ask(stranger)))[0] is grpc.StatusCode.UNAVAILABLE
                assert (await refusal(report(stranger)))[0] is grpc.StatusCode.UNAVAILABLE
        async with channel(detector.address, authority.file, authority.sign("alice")) as operator:
            assert not (await look(operator)).agents


async def test_who_trusts_another_authority_does_not_speak_to_us(
    start_detector: Any, tmp_path: Path, mutual: dict[str, Any], authority: Authority, other: Authority
) -> None:
    async with (
        start_detector(tmp_path / "data", **mutual) as detector,
        channel(detector.address, other.file, authority.sign("alice")) as careful,
    ):
        assert (await refusal(ask(careful)))[0] is grpc.StatusCode.UNAVAILABLE


async def test_plaintext_on_a_tls_port_gets_nowhere(start_detector: Any, tmp_path: Path, mutual: dict[str, Any]) -> None:
    async with (
        start_detector(tmp_path / "data", **mutual) as detector,
        grpc.aio.insecure_channel(detector.address) as plain,
    ):
        assert (await refusal(look(plain)))[0] is grpc.StatusCode.UNAVAILABLE


async def test_a_bearer_token_has_its_role_and_nobody_has_none(
    start_detector: Any, tmp_path: Path, server_files: dict[str, Any], roles: Path, authority: Authority
) -> None:
    async with (
        start_detector(tmp_path / "data", **server_files, roles_file=roles) as detector,
        channel(detector.address, authority.file) as anybody,
    ):
        await look(anybody, metadata=(("authorization", "Bearer open sesame"),))
        code, text = await refusal(look(anybody))
        assert code is grpc.StatusCode.UNAUTHENTICATED
        assert text == "ListAgents needs the role operator or reader: show a certificate or a bearer token"
        wrong = (("authorization", "Bearer open barley"),)
        assert (await refusal(look(anybody, metadata=wrong)))[0] is grpc.StatusCode.PERMISSION_DENIED
        right = (("authorization", "Bearer open sesame"),)
        assert (await refusal(ask(anybody, metadata=right)))[0] is grpc.StatusCode.PERMISSION_DENIED


async def test_roles_change_with_their_file_and_a_bad_one_changes_nothing(
    start_detector: Any, tmp_path: Path, mutual: dict[str, Any], roles: Path, authority: Authority
) -> None:
    async with (
        start_detector(tmp_path / "data", **mutual) as detector,
        channel(detector.address, authority.file, authority.sign("mallory")) as mallory,
    ):
        assert (await refusal(look(mallory)))[0] is grpc.StatusCode.PERMISSION_DENIED
        _replace(roles, b'[[grant]]\nrole = "reader"\ncertificates = ["mallory"]\n')
        await look(mallory)
        _replace(roles, b'[[grant]]\nrole = "emperor"\n')
        await look(mallory)


# -- rotation ----------------------------------------------------------------------------------------------------------


async def test_certificates_rotate_under_load_and_nothing_is_lost(
    start_detector: Any, tmp_path: Path, mutual: dict[str, Any], authority: Authority, other: Authority
) -> None:
    """Ours to another authority's, while new connections are made all the time; those open stay open."""
    served = tmp_path / "served"
    trusts_both = tmp_path / "both.crt"
    trusts_both.write_bytes(authority.pem + other.pem)
    client_ca = tmp_path / "clients.crt"
    client_ca.write_bytes(authority.pem)
    alices = {authority: authority.sign("alice"), other: other.sign("alice")}
    settings = mutual | {"tls_client_ca_file": client_ca}
    async with start_detector(tmp_path / "data", **settings) as detector:
        done, stop = 0, asyncio.Event()

        async def load() -> None:
            nonlocal done
            while not stop.is_set():
                async with channel(detector.address, trusts_both, alices[authority]) as fresh:
                    await ask(fresh)
                    done += 1

        async with channel(detector.address, trusts_both, alices[authority]) as lasting:
            await look(lasting)
            loads = [asyncio.create_task(load()) for _ in range(4)]
            while done < 10:
                await asyncio.sleep(0.01)
            _replace(client_ca, authority.pem + other.pem)
            other.sign("detector", to=served)
            before = done
            while done < before + 20:
                await asyncio.sleep(0.01)
            async with channel(detector.address, other.file, alices[other]) as fresh:
                await ask(fresh)  # what is served now is the other's
            stop.set()
            await asyncio.gather(*loads)
            await look(lasting)
        _replace(client_ca, other.pem)
        async with channel(detector.address, trusts_both, alices[authority]) as old:
            assert (await refusal(ask(old)))[0] is grpc.StatusCode.UNAVAILABLE


async def test_a_key_that_does_not_fit_its_certificate_is_not_taken(
    start_detector: Any, tmp_path: Path, mutual: dict[str, Any], authority: Authority, other: Authority
) -> None:
    async with start_detector(tmp_path / "data", **mutual) as detector:
        _, strange_key = other.sign("detector", to=tmp_path / "strange")
        _replace(tmp_path / "served" / "detector.key", strange_key.read_bytes())
        async with channel(detector.address, authority.file, authority.sign("alice")) as operator:
            await ask(operator)


# -- agents and commands -----------------------------------------------------------------------------------------------


def _agent(address: str, ca: Path, pair: tuple[Path, Path], **more: Any) -> Agent:
    files: dict[str, Any] = {"tls_ca_file": str(ca), "tls_cert_file": str(pair[0]), "tls_key_file": str(pair[1])}
    return Agent(service="orders", detector=address, **files, **more)


async def test_an_agent_joins_by_its_certificate_and_reads_it_anew_when_it_dials_again(
    start_detector: Any, tmp_path: Path, mutual: dict[str, Any], authority: Authority, other: Authority
) -> None:
    pair = other.sign("orders.shop.svc", to=tmp_path / "agent")
    async with start_detector(tmp_path / "data", **mutual) as detector:
        with _agent(detector.address, authority.file, pair, backoff_seconds_max=0.1) as agent:
            assert not await asyncio.to_thread(agent.wait_until_joined, 0.5)
            authority.sign("orders.shop.svc", to=tmp_path / "agent")
            assert await asyncio.to_thread(agent.wait_until_joined, SECONDS_MAX)


async def test_a_command_shows_its_certificate_or_its_token(
    start_detector: Any, tmp_path: Path, server_files: dict[str, Any], roles: Path, authority: Authority
) -> None:
    token = tmp_path / "token"
    token.write_text("open sesame\n")

    async def agents(*flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "detector", "agents", "--json", "--detector", detector.address, *flags]
        return await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, check=False, env={**os.environ, **environment}
        )

    async with start_detector(tmp_path / "data", **server_files, roles_file=roles) as detector:
        shown = await agents("--tls-ca-file", str(authority.file), STILLTRUE_TOKEN_FILE=str(token))
        assert (shown.returncode, json.loads(shown.stdout or "null")) == (0, []), shown.stderr
        shown = await agents("--tls-ca-file", str(authority.file))
        assert shown.returncode == 2
        assert "show a certificate or a bearer token" in shown.stderr
        assert len(shown.stderr.splitlines()) == 1


# -- what cannot be ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "detector.example"])
def test_nothing_but_loopback_without_tls_unless_told_so(host: str) -> None:
    with pytest.raises(SettingError, match=r"--host: .* is not a local address"):
        Settings(host=host)
    Settings(host=host, allow_plaintext=True)
    Settings(host=host, tls_cert_file=Path("a"), tls_key_file=Path("b"))


def test_http_has_no_tls_and_stays_on_loopback_whatever_grpc_is_told() -> None:
    assert Settings(host="0.0.0.0", allow_plaintext=True).http_host == "127.0.0.1"
    assert Settings(host="0.0.0.0", tls_cert_file=Path("a"), tls_key_file=Path("b")).http_host == "127.0.0.1"


@pytest.mark.parametrize(
    "wrong",
    ["tls_cert_file", "tls_key_file", "tls_client_ca_file", "roles_file"],
)
def test_half_of_tls_is_refused(wrong: str) -> None:
    with pytest.raises(SettingError, match="needs --tls-"):
        Settings(**{wrong: Path("a")})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("role = 1", r"only \[\[grant\]\] tables"),
        ("[[grant]]\nrole = 'king'", "role is one of agent, reader, operator, not 'king'"),
        ("[[grant]]\nrole = 'agent'\nnames = []", "the keys are"),
        ("[[grant]]\nrole = 'agent'\ntokens_sha256 = ['secret']", "64 hex digits"),
        ("[[grant]]\nrole = 'agent'\ncertificates = '*'", "a list of strings"),
        ("[[grant]", "roles.toml"),
    ],
)
def test_a_roles_file_that_is_wrong_is_refused_with_the_place(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "roles.toml"
    path.write_text(text)
    with pytest.raises(SecurityError, match=says):
        read_grants(path)


def test_what_each_method_needs() -> None:
    assert wanted("/grpc.health.v1.Health/Check") == frozenset()
    assert wanted("/stilltrue.v1.AgentService/Connect") == {Role.AGENT}
    assert wanted("/stilltrue.v1.DetectorService/Ask") == {Role.OPERATOR}
    assert wanted("/stilltrue.v1.DetectorService/Watch") == {Role.READER, Role.OPERATOR}
    assert wanted("/some.Other/Thing") == {Role.READER, Role.OPERATOR}


def test_a_token_does_not_travel_in_the_clear(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("open sesame")
    with pytest.raises(SecurityRefusedError, match="without TLS"):
        Security(token_file=str(token)).channel("detector.example:7600")
    Security(token_file=str(token)).channel("127.0.0.1:7600").close()


def test_a_key_that_does_not_fit_is_refused_at_the_start(tmp_path: Path, authority: Authority) -> None:
    certificate, _ = authority.sign("one", to=tmp_path)
    _, key = authority.sign("two", to=tmp_path)
    with pytest.raises(SecurityError, match=r"one\.crt and .*two\.key"):
        Certificates(Files(certificate=certificate, key=key), Log("test"))
    with pytest.raises(SecurityError, match="No such file"):
        Certificates(Files(certificate=tmp_path / "none", key=key), Log("test"))


async def test_health_needs_no_role_and_reflection_needs_one(
    start_detector: Any, tmp_path: Path, server_files: dict[str, Any], roles: Path, authority: Authority
) -> None:
    async with (
        start_detector(tmp_path / "data", **server_files, roles_file=roles) as detector,
        channel(detector.address, authority.file) as anybody,
    ):
        check: Any = health_pb2_grpc.HealthStub(anybody).Check
        assert (await check(health_pb2.HealthCheckRequest())).status == health_pb2.HealthCheckResponse.SERVING
        token = (("authorization", "Bearer open sesame"),)
        wish = reflection_pb2.ServerReflectionRequest(list_services="")
        reflect: Any = reflection_pb2_grpc.ServerReflectionStub(anybody).ServerReflectionInfo
        answers = [answer async for answer in reflect(iter([wish]), metadata=token)]
        assert "stilltrue.v1.AgentService" in {service.name for service in answers[0].list_services_response.service}
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            [answer async for answer in reflect(iter([wish]))]
        assert failure.value.code() is grpc.StatusCode.UNAUTHENTICATED
