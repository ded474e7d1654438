"""Roles and TLS settings of the running service: a client may do only what its role grants."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from yarl import URL

from detector.service.grpc_api.roles import Role, SecurityError, read_grants, roles_for
from detector.service.settings import SettingError, Settings
from stilltrue.v1 import agent_pb2, collector_pb2, detector_pb2, detector_pb2_grpc
from tests.service.authority import (
    ROLES,
    SECONDS_MAX,
    Authority,
    RefusedError,
    ask,
    channel,
    look,
    refusal,
    replace_file,
    report,
)

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
        async with channel(detector.address, authority.file, authority.sign("orders.shop.svc", local=True)) as local:
            _, text = await refusal(ask(local))
            assert text == "Ask needs the role operator; orders.shop.svc is agent", "not: localhost is agent"
        async with channel(detector.address, authority.file, authority.sign("mallory")) as nobody:
            code, text = await refusal(look(nobody))
            assert (code, text) == (
                grpc.StatusCode.PERMISSION_DENIED,
                "ListAgents needs the role operator or reader; mallory has none (--roles-file)",
            )


async def test_a_client_without_a_role_is_refused_before_its_request_is_read(
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
        replace_file(roles, ROLES.format(reader="0" * 64).replace("alice", "bob").encode())

        async def drained() -> None:
            while await watch.read() is not grpc.aio.EOF:
                pass
            raise RefusedError(await watch.code(), await watch.details())

        assert (await refusal(drained()))[0] is grpc.StatusCode.PERMISSION_DENIED


async def test_many_readers_do_not_keep_an_operator_from_watching(
    start_detector: Any, tmp_path: Path, mutual: dict[str, Any], authority: Authority
) -> None:
    bounds = {"watchers_max": 1, "heartbeat_seconds": 0.1}
    async with start_detector(tmp_path / "data", **mutual, **bounds) as detector, AsyncExitStack() as stack:

        async def watch(name: str) -> None:
            opened = await stack.enter_async_context(channel(detector.address, authority.file, authority.sign(name)))
            stub: Any = detector_pb2_grpc.DetectorServiceStub(opened)  # type: ignore[no-untyped-call]
            await anext(aiter(stub.Watch(detector_pb2.WatchRequest(), timeout=SECONDS_MAX)))

        await watch("prometheus")
        assert (await refusal(watch("prometheus")))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        await watch("alice")
        await watch("alice")


async def test_a_name_is_bound_to_its_first_certificate_even_after_a_restart(
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


async def test_a_grant_restricts_the_names_under_which_an_agent_may_report(
    start_detector: Any, tmp_path: Path, mutual: dict[str, Any], roles: Path, authority: Authority
) -> None:
    replace_file(roles, b'[[grant]]\nrole = "agent"\ncertificates = ["*.shop.svc"]\nprocesses = ["stock", "stock-*"]\n')
    async with (
        start_detector(tmp_path / "data", **mutual) as detector,
        channel(detector.address, authority.file, authority.sign("orders.shop.svc")) as agent,
    ):
        assert await refusal(report(agent)) == (
            grpc.StatusCode.PERMISSION_DENIED,
            "orders.shop.svc may not report as intruder of s (--roles-file: processes)",
        )


async def test_an_agent_behind_a_collector_is_told_that_it_lacks_the_role(
    start_detector: Any, tmp_path: Path, mutual: dict[str, Any], roles: Path, authority: Authority
) -> None:
    """The collector has its own role; a grant's `processes`, which the refusal named, would not have helped."""
    replace_file(roles, b'[[grant]]\nrole = "collector"\ncertificates = ["collector"]\n')
    hello = agent_pb2.ConnectRequest(hello=agent_pb2.Hello(process={"service": "s", "instance": "s-1", "incarnation": 1}))
    opened = collector_pb2.AgentOpened(peer="somewhere", names=["mallory"])
    async with (
        start_detector(tmp_path / "data", **mutual, kafka=str(tmp_path / "records")) as detector,
        channel(detector.address, authority.file, authority.sign("collector")) as collector,
    ):
        relay: Any = collector.stream_stream(
            "/stilltrue.v1.CollectorService/Relay",
            request_serializer=collector_pb2.RelayRequest.SerializeToString,
            response_deserializer=collector_pb2.RelayResponse.FromString,
        )
        call = relay(timeout=SECONDS_MAX)
        said = [
            collector_pb2.FromAgent(agent=1, opened=opened),
            collector_pb2.FromAgent(agent=1, message=hello.SerializeToString()),
        ]
        await call.write(collector_pb2.RelayRequest(events=said))
        events: Any = ()
        while not events:
            events = (await call.read()).events
        text = "Connect needs the role agent; mallory has none (--roles-file)"
        assert (events[0].close.status, events[0].close.text) == (grpc.StatusCode.PERMISSION_DENIED.value[0], text)


async def test_with_roles_pages_and_metrics_need_a_reader_and_probes_nothing(
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


async def test_a_user_comes_from_one_header_of_a_trusted_proxy(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path, mutual: dict[str, Any], roles: Path
) -> None:
    roles.write_text(
        roles.read_text()
        + '[[grant]]\nrole = "reader"\nusers = ["*@shop.example"]\n'
        + '[[grant]]\nrole = "operator"\nusers = ["alice@shop.example"]\n'
    )
    header = {"proxy_user_header": "X-Forwarded-User", "allow_cure": True}

    async def status(detector: Any, path: str, *users: str) -> int:
        headers = [("X-Forwarded-User", user) for user in users]
        async with aiohttp.ClientSession() as http, http.get(f"{detector.web}{path}", headers=headers) as answer:
            return answer.status

    async with start_detector(tmp_path / "data", **mutual, **header, trusted_proxies="10.0.0.0/8, 127.0.0.1, ::1") as detector:
        assert await status(detector, "/", "bob@shop.example") == 200
        assert await status(detector, "/") == 401
        for users in (
            ("eve@other.example",),
            ("",),
            ("bob@shop.example", "bob@shop.example"),
            ("*",),
            ("b" * 300 + "@shop.example",),
        ):
            assert await status(detector, "/", *users) == 401, users
        assert await status(detector, "/api/v1/incidents/i-none/cure", "bob@shop.example") == 403
        assert await status(detector, "/api/v1/incidents/i-none/cure", "alice@shop.example") == 404
    async with start_detector(tmp_path / "data", **mutual, **header, trusted_proxies="10.0.0.0/8") as detector:
        assert await status(detector, "/", "bob@shop.example") == 401, "it comes from somewhere else"


def test_a_user_header_needs_a_trusted_address_and_roles(tmp_path: Path, mutual: dict[str, Any]) -> None:
    for settings, says in (
        ({"proxy_user_header": "X-User"}, "--trusted-proxies"),
        ({"trusted_proxies": "10.0.0.0/8"}, "--trusted-proxies"),
        ({"proxy_user_header": "X-User", "trusted_proxies": "10.0.0.0/8"}, "--roles-file"),
        (mutual | {"proxy_user_header": "X User", "trusted_proxies": "10.0.0.0/8"}, "must be a header name"),
        (mutual | {"proxy_user_header": "X-User", "trusted_proxies": "10.0.0.1/8"}, "--trusted-proxies"),
    ):
        with pytest.raises(SettingError, match=says):
            Settings(**settings)


async def test_a_browser_logs_in_once_and_a_revoked_token_ends_its_session(
    start_detector: Any, tmp_path: Path, mutual: dict[str, Any], roles: Path
) -> None:
    def logged_in(answer: aiohttp.ClientResponse, path: str) -> bool:
        return answer.status == HTTPStatus.OK and answer.url.path == path

    html = {"Accept": "text/html"}
    jar = aiohttp.CookieJar(unsafe=True)
    async with (
        start_detector(tmp_path / "data", **mutual, base_path="/ops") as detector,
        aiohttp.ClientSession(detector.web, cookie_jar=jar, headers=html) as browser,
    ):
        assert (await browser.get("/ops/members")).url.path == "/ops/login"
        refused = await browser.post("/ops/login", data={"token": "open barley"})
        assert (refused.status, "does not belong to a reader" in await refused.text()) == (401, True)
        assert (await browser.post("/ops/login", data={"token": "x" * 10_000})).status == 413
        assert (await browser.post("/ops/members", data={"token": "open sesame"})).status == 405
        assert logged_in(await browser.post("/ops/login", data={"token": "open sesame"}), "/ops/")
        (cookie,) = list(jar)
        assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Lax", "/ops/"), (
            "a link in an alert carries it"
        )
        assert "sesame" not in cookie.value
        assert logged_in(await browser.get("/ops/members"), "/ops/members")
        granted = roles.read_text()
        roles.write_text(re.sub("[0-9a-f]{64}", "0" * 64, granted))
        async with asyncio.timeout(20):
            while logged_in(await browser.get("/ops/members"), "/ops/members"):
                await asyncio.sleep(0.1)
        roles.write_text(granted + "\n")
        async with asyncio.timeout(20):
            while not logged_in(await browser.get("/ops/members"), "/ops/members"):
                await asyncio.sleep(0.1)
        await browser.get("/ops/logout")
        assert (await browser.get("/ops/members")).url.path == "/ops/login"


async def test_a_login_redirects_only_to_the_page_of_the_link(
    start_detector: Any, tmp_path: Path, mutual: dict[str, Any]
) -> None:
    token = {"token": "open sesame"}
    async with (
        start_detector(tmp_path / "data", **mutual, base_path="/ops") as detector,
        aiohttp.ClientSession(detector.web, cookie_jar=aiohttp.DummyCookieJar()) as browser,
    ):
        for path in ("/ops/members?search=a%26b&state=lost", "/members?search=a%26b&state=lost"):  # a proxy may cut it off
            async with browser.get(path, headers={"Accept": "text/html"}) as asked:
                assert asked.url.path == "/ops/login"
                (form,) = re.findall(r'action="([^"]+)"', await asked.text())
            async with browser.post(URL(form, encoded=True), data={"token": "wrong"}, allow_redirects=False) as refused:
                assert f'action="{form}"' in await refused.text(), "it is not forgotten"
            async with browser.post(URL(form, encoded=True), data=token, allow_redirects=False) as answer:
                assert answer.headers["Location"] == "/ops/members?search=a%26b&state=lost"
        for elsewhere in ("//evil.example", "/\\evil.example", "https://evil.example", "/a\r\nSet-Cookie: x=y", "javascript:1"):
            async with browser.post("/ops/login", params={"next": elsewhere}, data=token, allow_redirects=False) as answer:
                assert answer.headers["Location"] == "/ops/"
        async with browser.get("/ops/members") as answer:
            assert "log in at /ops/login" in await answer.text()


async def test_a_bearer_token_has_its_role_and_no_token_has_none(
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
        replace_file(roles, b'[[grant]]\nrole = "reader"\ncertificates = ["mallory"]\n')
        await look(mallory)
        replace_file(roles, b'[[grant]]\nrole = "emperor"\n')
        await look(mallory)


# -- what cannot be ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "detector.example"])
def test_without_tls_only_loopback_is_allowed_by_default(host: str) -> None:
    with pytest.raises(SettingError, match=r"--host: .* is not a local address"):
        Settings(host=host)
    Settings(host=host, allow_plaintext=True)
    Settings(host=host, tls_cert_file=Path("a"), tls_key_file=Path("b"))


def test_http_without_tls_stays_on_loopback_whatever_grpc_uses() -> None:
    assert Settings(host="0.0.0.0", allow_plaintext=True).http_host == "127.0.0.1"
    assert Settings(host="0.0.0.0", tls_cert_file=Path("a"), tls_key_file=Path("b")).http_host == "127.0.0.1"


@pytest.mark.parametrize(
    "wrong",
    ["tls_cert_file", "tls_key_file", "tls_client_ca_file", "roles_file"],
)
def test_incomplete_tls_settings_are_refused(wrong: str) -> None:
    with pytest.raises(SettingError, match="needs --tls-"):
        Settings(**{wrong: Path("a")})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("role = 1", r"only \[\[grant\]\] tables"),
        ("[[grant]]\nrole = 'king'", "role is one of agent, collector, reader, operator, not 'king'"),
        ("[[grant]]\nrole = 'agent'\nnames = []", "the only keys are"),
        ("[[grant]]\nrole = 'agent'\ntokens_sha256 = ['secret']", "64 hex digits"),
        ("[[grant]]\nrole = 'agent'\ncertificates = '*'", "a list of strings"),
        ("[[grant]", "roles.toml"),
    ],
)
def test_an_invalid_roles_file_is_refused_with_the_position(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "roles.toml"
    path.write_text(text)
    with pytest.raises(SecurityError, match=says):
        read_grants(path)


def test_the_role_that_each_method_needs() -> None:
    assert roles_for("/grpc.health.v1.Health/Check") == frozenset()
    assert roles_for("/stilltrue.v1.AgentService/Connect") == {Role.AGENT}
    assert roles_for("/stilltrue.v1.DetectorService/Ask") == {Role.OPERATOR}
    assert roles_for("/stilltrue.v1.DetectorService/Watch") == {Role.READER, Role.OPERATOR}
    assert roles_for("/some.Other/Thing") == {Role.READER, Role.OPERATOR}


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
