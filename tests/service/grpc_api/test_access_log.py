"""The access log: requests and refusals with client and role; bounded, and off by default."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from yarl import URL

from detector.ops.clock import Clock
from detector.ops.logs import Log
from detector.service.cure import audit
from detector.service.grpc_api.access_log import NAME, WAITING_MAX, AccessLog
from tests.service.authority import Authority, ask, channel, look, refusal


def entries(data: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (data / NAME).read_text().splitlines()]


async def test_requests_and_refusals_are_logged_with_client_and_role(
    start_detector: Any, tmp_path: Path, mutual: dict[str, Any], authority: Authority
) -> None:
    async with start_detector(tmp_path / "data", **mutual, access_log=True) as detector:
        async with channel(detector.address, authority.file, authority.sign("alice")) as operator:
            await ask(operator)
        async with channel(detector.address, authority.file, authority.sign("prometheus")) as reader:
            await look(reader)
            assert (await refusal(ask(reader)))[0] is grpc.StatusCode.PERMISSION_DENIED
    written = entries(tmp_path / "data")
    assert [(each["who"].split()[0], each["roles"], each["what"], each["outcome"]) for each in written] == [
        ("alice", ["operator"], "Ask", "accepted"),
        ("prometheus", ["reader"], written[1]["what"], "accepted"),
        ("prometheus", ["reader"], "Ask", "refused"),
    ]
    assert written[0]["predicate"] == "deadlock"


async def test_http_requests_are_logged_without_secrets_and_control_characters(
    start_detector: Any, tmp_path: Path, mutual: dict[str, Any]
) -> None:
    bearer = {"Authorization": "Bearer open sesame"}
    async with (
        start_detector(tmp_path / "data", **mutual, access_log=True) as detector,
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session,
    ):
        for path, headers in (
            ("/healthz", {}),
            ("/static/pages.css", {}),
            ("/metrics", bearer),
            ("/members?search=hidden-in-a-query", {}),
            ("/%1b%5b31m%7f%c2%9b%e2%80%ae" + "x" * 1000, bearer),
            ("/incidents", {"Accept": "text/html"}),
            ("/metrics", {"Host": "rebound.example"}),
        ):
            url = URL(detector.web + path, encoded=True)
            async with session.get(url, headers=headers, allow_redirects=False):
                pass
        async with session.post(f"{detector.web}/login", data={"token": "wrong-and-secret"}, allow_redirects=False):
            pass
        async with session.post(f"{detector.web}/login", data={"token": "open sesame"}, allow_redirects=False):
            pass
        async with session.get(f"{detector.web}/members"):
            pass
    text = (tmp_path / "data" / NAME).read_text()
    for secret in ("sesame", "hidden-in-a-query", "wrong-and-secret", "stilltrue-session"):
        assert secret not in text
    assert all(line.isprintable() and len(line) < 1000 for line in text.splitlines())
    written = [
        (each["what"], each["path"][:9], each["status"], each["outcome"], each["roles"]) for each in entries(tmp_path / "data")
    ]
    reader = ["reader"]
    assert written == [
        ("GET", "/metrics", 200, "accepted", reader),
        ("GET", "/members", 401, "refused", []),
        ("GET", "/\x1b[31m\x7f\x9b\u202e", 404, "refused", reader),
        ("GET", "/incident", 303, "refused", []),
        ("GET", "/metrics", 421, "refused", []),
        ("POST", "/login", 401, "refused", []),
        ("POST", "/login", 303, "accepted", []),
        ("GET", "/members", 200, "accepted", reader),
    ]


async def test_without_the_setting_nothing_is_written(start_detector: Any, tmp_path: Path) -> None:
    async with start_detector(tmp_path) as detector:
        await detector.ask("deadlock")
    assert not (tmp_path / NAME).exists()


def test_a_flood_of_requests_is_bounded_on_disk_and_displaces_no_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "BYTES_MAX", 2000)
    audit.Audit(tmp_path).write(0.0, "cure begun", "alice")
    log = AccessLog(tmp_path, Clock(), Log("test"))
    for _ in range(WAITING_MAX):
        log.note("Ask", "mallory", (), "accepted")
    log.close()
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == sorted(["audit.jsonl", NAME, *(f"{NAME}.{number}" for number in range(1, audit.FILES_KEPT + 1))])
    assert json.loads((tmp_path / "audit.jsonl").read_text())["who"] == "alice"


def test_lines_that_cannot_be_written_in_time_are_dropped_and_counted(tmp_path: Path) -> None:
    log = AccessLog(tmp_path, Clock(), Log("test"))
    log.close()  # nobody takes entries any more
    for _ in range(WAITING_MAX + 5):
        log.note("Ask", "mallory", (), "accepted")
    assert log._dropped == 5
