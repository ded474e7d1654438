"""Certificates: which clients are accepted, and a rotation without losses."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from detector.ops.logs import Log
from detector.service.grpc_api.roles import Roles, SecurityError
from detector.service.grpc_api.security import Certificates, Files
from stilltrue import Agent
from stilltrue.runtime.membership.credentials import Security, SecurityRefusedError
from tests.service.authority import (
    DAY,
    NOW,
    ROLES,
    SECONDS_MAX,
    Authority,
    ask,
    channel,
    look,
    refusal,
    replace_file,
    report,
)


@pytest.mark.parametrize("file", ["key", "roles", "token"])
def test_a_world_writable_secret_is_refused(tmp_path: Path, authority: Authority, file: str) -> None:
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
    with pytest.raises((SecurityError, SecurityRefusedError), match="writable by all users"):
        use[file]()


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "empty, and should hold a token"), (b" \n", "empty"), (b"a\nb", "one line of printable"), (b"\xff", "one line of")],
)
def test_a_token_file_that_is_no_token_is_refused_by_its_name(content: bytes, says: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_bytes(content)
    with pytest.raises(SecurityRefusedError, match=f"token: .*{says}"):
        Security(token_file=str(token)).channel("127.0.0.1:1")
    token.write_bytes(b"open sesame\n")
    Security(token_file=str(token)).channel("127.0.0.1:1").close()


async def test_an_edit_of_the_roles_is_logged_without_a_request_and_an_error_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "roles.toml"
    valid = b'[[grant]]\nrole = "reader"\ncertificates = ["alice"]\n'
    file.write_bytes(valid)
    caplog.set_level("INFO", "stilltrue")
    roles = Roles(file, Log("stilltrue"))
    alice = frozenset({"alice"})
    watching = asyncio.create_task(roles.run())

    async def said(count: int) -> list[str]:
        async with asyncio.timeout(SECONDS_MAX):
            while len(caplog.messages) < count:
                await asyncio.sleep(0.05)
        for _ in range(3):
            roles.of(alice, "")
        return caplog.messages

    refused = "roles not reloaded; the previous ones stay in use"
    replace_file(file, b'[[grant]\nrole = "reader"\n')
    assert await said(1) == [refused]
    assert roles.of(alice, ""), "the previous ones stay in use"
    file.unlink()
    assert await said(2) == [refused, refused]
    replace_file(file, valid.replace(b"reader", b"operator"))
    assert await said(3) == [refused, refused, "roles reloaded"]
    assert {role.value for role in roles.of(alice, "")} == {"operator"}
    watching.cancel()


def test_roles_of_certificates_that_no_client_is_asked_for_are_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "roles.toml"
    file.write_bytes(b'[[grant]]\nrole = "reader"\ncertificates = ["alice"]\n')
    Roles(file, Log("stilltrue"))
    assert caplog.messages == []
    Roles(file, Log("stilltrue"), asks_for_certificates=False)
    (record,) = caplog.records
    assert record.message == "roles without effect"
    assert record.stilltrue_fields["fix"] == "--tls-client-ca-file"  # type: ignore[attr-defined]


async def test_a_mail_address_in_a_certificate_is_not_a_host_name(
    start_detector: Any, tmp_path: Path, mutual: dict[str, Any], roles: Path, authority: Authority
) -> None:
    mail = authority.sign("someone", mail="mallory@orders.shop.svc")
    replace_file(roles, ROLES.format(reader="0" * 64).replace('"alice"', '"*.shop.svc"').encode())
    async with start_detector(tmp_path / "data", **mutual) as detector:
        async with channel(detector.address, authority.file, mail) as nobody:
            assert (await refusal(ask(nobody)))[0] is grpc.StatusCode.PERMISSION_DENIED
        async with channel(detector.address, authority.file, authority.sign("orders.shop.svc")) as operator:
            await ask(operator)


async def test_a_client_without_a_valid_certificate_is_refused(
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


async def test_a_client_that_trusts_another_authority_does_not_connect(
    start_detector: Any, tmp_path: Path, mutual: dict[str, Any], authority: Authority, other: Authority
) -> None:
    async with (
        start_detector(tmp_path / "data", **mutual) as detector,
        channel(detector.address, other.file, authority.sign("alice")) as careful,
    ):
        assert (await refusal(ask(careful)))[0] is grpc.StatusCode.UNAVAILABLE


async def test_plaintext_on_a_tls_port_fails(start_detector: Any, tmp_path: Path, mutual: dict[str, Any]) -> None:
    async with (
        start_detector(tmp_path / "data", **mutual) as detector,
        grpc.aio.insecure_channel(detector.address) as plain,
    ):
        assert (await refusal(look(plain)))[0] is grpc.StatusCode.UNAVAILABLE


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
            replace_file(client_ca, authority.pem + other.pem)
            other.sign("detector", to=served)
            before = done
            while done < before + 20:
                await asyncio.sleep(0.01)
            async with channel(detector.address, other.file, alices[other]) as fresh:
                await ask(fresh)  # what is served now is the other's
            stop.set()
            await asyncio.gather(*loads)
            await look(lasting)
        replace_file(client_ca, other.pem)
        async with channel(detector.address, trusts_both, alices[authority]) as old:
            assert (await refusal(ask(old)))[0] is grpc.StatusCode.UNAVAILABLE


async def test_a_reloaded_key_that_does_not_match_its_certificate_is_ignored(
    start_detector: Any, tmp_path: Path, mutual: dict[str, Any], authority: Authority, other: Authority
) -> None:
    async with start_detector(tmp_path / "data", **mutual) as detector:
        _, strange_key = other.sign("detector", to=tmp_path / "strange")
        replace_file(tmp_path / "served" / "detector.key", strange_key.read_bytes())
        async with channel(detector.address, authority.file, authority.sign("alice")) as operator:
            await ask(operator)


def _agent(address: str, ca: Path, pair: tuple[Path, Path], **more: Any) -> Agent:
    files: dict[str, Any] = {"tls_ca_file": str(ca), "tls_cert_file": str(pair[0]), "tls_key_file": str(pair[1])}
    return Agent(service="orders", detector=address, **files, **more)


async def test_an_agent_joins_with_its_certificate_and_rereads_it_when_it_reconnects(
    start_detector: Any, tmp_path: Path, mutual: dict[str, Any], authority: Authority, other: Authority
) -> None:
    pair = other.sign("orders.shop.svc", to=tmp_path / "agent")
    async with start_detector(tmp_path / "data", **mutual) as detector:
        with _agent(detector.address, authority.file, pair, backoff_seconds_max=0.1) as agent:
            assert not await asyncio.to_thread(agent.wait_until_joined, 0.5)
            authority.sign("orders.shop.svc", to=tmp_path / "agent")
            assert await asyncio.to_thread(agent.wait_until_joined, SECONDS_MAX)


async def test_an_agent_whose_file_comes_late_says_which_is_missing_once_and_joins(
    start_detector: Any, tmp_path: Path, mutual: dict[str, Any], authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    pair = authority.sign("orders.shop.svc", to=tmp_path / "agent")
    late = tmp_path / "ca.crt"
    late.write_bytes(authority.pem)
    async with start_detector(tmp_path / "data", **mutual) as detector:
        agent = _agent(detector.address, late, pair, backoff_seconds_max=0.05)
        late.unlink()  # as of a Secret that is mounted, but lacks the key
        with agent:
            assert not await asyncio.to_thread(agent.wait_until_joined, 0.3)
            replace_file(late, authority.pem)  # whole, as a mount has it: half a certificate is another reason to tell
            assert await asyncio.to_thread(agent.wait_until_joined, SECONDS_MAX)
    told = [record.getMessage() for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
    assert [one for one in told if "ca.crt" in one or "failed open" in one] == [
        f"no detector: {late}: No such file or directory; this process runs unwatched and keeps trying"
    ]


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


def test_a_token_is_not_sent_in_plaintext(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("open sesame")
    with pytest.raises(SecurityRefusedError, match="without TLS"):
        Security(token_file=str(token)).channel("detector.example:7600")
    Security(token_file=str(token)).channel("127.0.0.1:7600").close()


def test_a_key_that_does_not_match_is_refused_at_start(tmp_path: Path, authority: Authority) -> None:
    certificate, _ = authority.sign("one", to=tmp_path)
    _, key = authority.sign("two", to=tmp_path)
    with pytest.raises(SecurityError, match=r"two\.key is not the key of .*one\.crt"):
        Certificates(Files(certificate=certificate, key=key), Log("test"))
    with pytest.raises(SecurityError, match="No such file"):
        Certificates(Files(certificate=tmp_path / "none", key=key), Log("test"))
