"""The pages: the answer first, colour only for trouble, ages that count, and no external resources."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import hashlib
import os
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from detector.service.detection.incident.incidents import Incident
from detector.service.detection.membership.members import NOT_MOVING, Member, Roster
from detector.service.detection.membership.unreceived_calls import NOT_RECEIVED
from detector.service.web import pages
from detector.service.web.api.headline import Headline, Level, headline, level_of
from detector.service.web.formatting import timed
from detector.service.web.member_list import member_list
from stilltrue.model import (
    BlindSpot,
    Coverage,
    Holds,
    PartyName,
    ProcessName,
    SnapshotId,
    SnapshotRef,
    Verdict,
    Witness,
)
from tests.service.browser import Page

PATIENCE_SECONDS = 30.0
WATCHERS = 300
CHROMIUM = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--timeout=3000", "--dump-dom",
)  # fmt: skip


def verdict(
    predicate: str, holds: Holds, text: str = "why", *, scope: str = "all", coverage: Coverage | None = None
) -> Verdict:
    ref = SnapshotRef(id=SnapshotId(7), begun=100.0, scope=scope)
    return Verdict(
        predicate=predicate, holds=holds, witness=Witness(kind="k", parties=(), text=text), snapshot=ref, coverage=coverage
    )


def incident(id: str, *core: str, behind: int = 0, formed: float | None = 50.0, predicate: str = "deadlock") -> Incident:
    return Incident(
        id=id, predicate=predicate, scope="all", core=tuple(map(PartyName, core)), opened=60.0, seen=70.0, formed=formed,
        behind=tuple(PartyName(f"x/{n}") for n in range(behind)), first_snapshot=SnapshotId(1), last_snapshot=SnapshotId(2),
    )  # fmt: skip


def said(verdicts: list[Verdict], incidents: list[Incident], members: int = 2) -> Headline:
    services = {"orders-1": "orders", "orders-2": "orders", "stock-1": "stock"}
    return headline(verdicts, incidents, members, lambda name: services.get(name, name))


def test_an_open_incident_is_the_headline_with_its_age_and_its_services() -> None:
    found = said([], [incident("i", "orders-1/A", "orders-2/B", "stock-1/C", behind=4)])
    assert found == Headline(
        level=Level.TROUBLE, text="Deadlocked", extent="2 services, 3 parties; 4 more wait behind them", since=50.0
    )


def test_of_several_incidents_the_oldest_deadlock_gives_the_age() -> None:
    younger, oldest = incident("b", "orders-1/A", formed=80.0), incident("a", "stock-1/C", formed=None)
    grid = incident("g", "stock-1/D", formed=1.0, predicate="gridlock")
    found = said([], [younger, grid, oldest])
    assert (found.text, found.since, found.extent) == ("Deadlocked", 60.0, "2 services, 3 parties")
    assert found.detail == "3 incidents are open; this is the age of the oldest"
    assert said([], [grid]).text == "Gridlocked"


def test_parties_behind_an_ended_holder_are_a_headline_in_words() -> None:
    found = said([], [incident("i", "orders-1/A", predicate="orphaned-resource", behind=1)])
    assert found.text == "Stuck behind a holder that has ended"
    assert found.extent == "1 service, 1 party; 1 more waits behind it"


def test_an_unconfirmed_incident_says_since_when_and_which_members_are_silent() -> None:
    open_one = incident("i", "orders-1/A", "stock-1/C")
    silent = replace(verdict("deadlock", Holds.UNDETERMINED), missing=(ProcessName("stock-1"),))
    found = said([silent, verdict("gridlock", Holds.FALSE)], [open_one])
    assert (found.level, found.since, found.at) == (Level.TROUBLE, 50.0, 70.0)
    assert found.detail == "stock-1 did not report since"
    confirmed = replace(verdict("deadlock", Holds.TRUE), core=open_one.core, remainder=open_one.core)
    assert said([confirmed], [open_one]).at is None
    assert "; stock-1 did not report since" in said([silent], [open_one, incident("j", "orders-2/B")]).detail


def test_beside_a_confirmed_incident_only_the_details_give_when_another_was_last_confirmed() -> None:
    silent_one, seen_one = incident("i", "orders-1/A", "stock-1/C"), incident("j", "orders-2/B", formed=80.0)
    seen = replace(
        verdict("deadlock", Holds.TRUE), core=seen_one.core, remainder=seen_one.core,
        missing=(ProcessName("bystander"), ProcessName("stock-1")),
    )  # fmt: skip
    found = said([seen], [silent_one, seen_one])
    assert found.at is None
    assert found.detail.endswith("; 1 of them was last confirmed at 00:01:10: stock-1 did not report since")


async def test_the_overview_does_not_present_a_lost_member_as_seen(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b = process("a", service="orders"), process("b", service="stock")
    deadlock(a, b)
    async with start_detector(tmp_path, lease_seconds=0.3) as detector:
        await detector.join(a, b)
        while not await detector.incidents():
            await detector.ask()
        await detector.ask()
        assert "Last confirmed" not in (await detector.fetch("/"))[2]
        await b.kill()
        async with asyncio.timeout(PATIENCE_SECONDS):
            told = r"<p>Last confirmed <time[^>]*>[^<]*</time>; b did not report since</p>"
            while not re.search(told, body := (await detector.fetch("/"))[2]):  # on a busy machine a may be late as well, once
                await detector.ask()
        assert "Deadlocked for <span" in body
        assert "as first seen" in body


def test_an_all_clear_states_its_time_and_coverage() -> None:
    blind = (BlindSpot(process=ProcessName("mute"), reasons=("lost",)),)
    found = said([verdict("deadlock", Holds.FALSE, coverage=Coverage(members=1, expected=2, blind=blind))], [])
    text = "Nothing is stuck as far as is seen"
    assert found == Headline(level=Level.DOUBT, text=text, at=100.0, detail="covers 1 of 2 members; blind: mute")


def test_calls_that_have_not_moved_for_long_are_not_shown_as_healthy() -> None:
    partly = (BlindSpot(process=ProcessName("b"), reasons=(f"serves 1 call that has {NOT_MOVING}",)),)
    found = said([verdict("deadlock", Holds.FALSE, coverage=Coverage(members=2, expected=2, partly=partly))], [])
    detail = "covers 2 of 2 members; calls that b serves have not moved for a while, in no known wait"
    assert found == Headline(level=Level.DOUBT, text="Nothing is known to be stuck", at=100.0, detail=detail)


def test_calls_that_no_member_has_received_are_not_shown_as_healthy() -> None:
    waits = BlindSpot(process=ProcessName("front"), reasons=(f"waits for 1 call {NOT_RECEIVED}: /shop.Stock/Reserve",))
    stands = BlindSpot(process=ProcessName("b"), reasons=(f"serves 1 call that has {NOT_MOVING}",))
    found = said([verdict("deadlock", Holds.FALSE, coverage=Coverage(members=2, expected=2, partly=(waits,)))], [])
    detail = "covers 2 of 2 members; front waits for calls that no member has received"
    assert found == Headline(level=Level.DOUBT, text="Nothing is known to be stuck", at=100.0, detail=detail)
    both = said([verdict("deadlock", Holds.FALSE, coverage=Coverage(members=2, expected=2, partly=(waits, stands)))], [])
    stand = "calls that b serves have not moved for a while, in no known wait"
    assert both.detail == f"covers 2 of 2 members; {stand}; front waits for calls that no member has received"


def test_the_unknown_is_not_shown_as_healthy() -> None:
    assert said([], [], members=0).level is Level.DOUBT
    assert said([], []).level is Level.DOUBT
    found = said([verdict("deadlock", Holds.UNDETERMINED, "a did not report")], [])
    assert (found.level, found.detail) == (Level.DOUBT, "a did not report")


def test_a_lost_token_is_an_alarm_and_termination_is_not() -> None:
    found = said([verdict("token-lost", Holds.TRUE, "0 of 1"), verdict("deadlock", Holds.FALSE)], [])
    assert (found.level, found.text) == (Level.TROUBLE, "token-lost: 0 of 1")
    assert said([verdict("termination", Holds.TRUE), verdict("deadlock", Holds.FALSE)], []).level is Level.FINE
    assert level_of(verdict("termination", Holds.TRUE)) is None
    assert said([verdict("token-lost", Holds.TRUE, scope="shop"), verdict("deadlock", Holds.FALSE)], []).level is Level.FINE


async def test_the_overview_states_the_deadlock_first_and_ages_keep_counting(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b = process("a", service="orders"), process("b", service="stock")
    stuck = deadlock(a, b)
    async with start_detector(tmp_path) as detector:
        _, _, body = await detector.fetch("/")
        assert "No process has joined yet" in body
        await detector.join(a, b)
        verdict = await detector.ask()
        _, _, body = await detector.fetch("/")
        assert re.search(
            r"<h1>Deadlocked for <span data-since=\"[\d.]+\">.*</span>: 2 services, 2 parties; 2 more wait behind them</h1>",
            body,
        )
        assert "<title>Deadlocked: 2 services, 2 parties; 2 more wait behind them - Stilltrue</title>" in body
        for path, title in (("/incidents", "Incidents"), ("/snapshots/1", "Snapshot 1")):
            assert f"<title>{title} - Stilltrue</title>" in (await detector.fetch(path))[2], "told apart from other tabs"
        async with asyncio.timeout(PATIENCE_SECONDS):  # a question is answered before the rest of its snapshot is evaluated
            while "predicates need facts that no process declares</summary>" not in (await detector.fetch("/"))[2]:
                pass
        (incident,) = await detector.incidents()
        _, _, first = await detector.fetch(f"/incidents/{incident.id}")
        assert "<td data-label=lasted><span data-since=" in (await detector.fetch("/incidents"))[2]
        assert f"Aborting <b>{verdict.victims[0]}</b> would free them all." in first
        assert f"<li>{stuck.core[0]} has waited <span data-since=" in first
        stuck.cure()
        async with asyncio.timeout(PATIENCE_SECONDS):  # on a busy machine a snapshot may miss a member
            while "Nothing is stuck, as of <time" not in (await detector.fetch("/"))[2]:
                await detector.ask()
        _, _, ended = await detector.fetch(f"/incidents/{incident.id}")
        assert f"<h1>deadlock <span class=name>{incident.id}:</span>\nended after" in ended, (
            "a phone breaks no line within the id"
        )
        assert "as first seen" in ended
        assert re.search(r"<td data-label=lasted>(<[^>]*>)?\d", (await detector.fetch("/incidents"))[2])


async def versions_of(events: aiohttp.ClientResponse, count: int) -> list[str]:
    """The next versions in a stream of events."""
    found: list[str] = []
    while len(found) < count:
        line = (await events.content.readline()).decode()
        assert line, "the stream has ended"
        found += [line.removeprefix("data: ").strip()] if line.startswith("data: ") else []
    return found


async def test_a_page_is_notified_of_changes_at_once(start_detector: Any, process: Any, tmp_path: Path) -> None:
    async with start_detector(tmp_path) as detector:
        _, _, body = await detector.fetch("/")
        seen = re.findall(r'data-version="(\w+)"', body)[0]
        async with aiohttp.ClientSession() as http, http.get(f"{detector.web}/api/v1/events?seen={seen}") as events:
            assert events.headers["Content-Type"] == "text/event-stream"
            await detector.join(process("a"))
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert await versions_of(events, 1) != [seen]


async def test_hundreds_of_watchers_share_one_look_at_the_members(
    start_detector: Any, process: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    looks: list[Roster] = []
    all_of = Roster.all

    def all_counted(roster: Roster) -> list[Member]:
        looks.append(roster)
        return all_of(roster)

    async with start_detector(tmp_path) as detector:
        monkeypatch.setattr(Roster, "all", all_counted)
        async with contextlib.AsyncExitStack() as stack:
            http = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
            streams = [
                await stack.enter_async_context(http.get(f"{detector.web}/api/v1/events?seen=")) for _ in range(WATCHERS)
            ]
            first = await asyncio.gather(*(versions_of(stream, 1) for stream in streams))
            began, looks[:] = time.monotonic(), []
            await detector.join(process("a"))
            async with asyncio.timeout(PATIENCE_SECONDS):
                second = await asyncio.gather(*(versions_of(stream, 1) for stream in streams))
            seconds = time.monotonic() - began
            assert first != second
            assert len({version for versions in second for version in versions}) == 1, "all hear of the same"
            assert (await detector.fetch("/healthz"))[0] == 200
    assert looks
    assert len(looks) < 10 * (seconds + 2), "it is made a few times a second, not for each watcher"


async def test_lost_members_come_first_and_all_are_listed(start_detector: Any, process: Any, tmp_path: Path) -> None:
    lost, live = process("zz"), process("aa")
    async with start_detector(tmp_path, lease_seconds=1) as detector:
        await detector.join(lost, live)
        await lost.kill()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while "1 lost" not in (body := (await detector.fetch("/members"))[2]):
                await detector.ask()
        gone, _, here = body.partition("<td data-label=process>aa")
        assert "<td data-label=process>zz" in gone
        growing = '<td data-label="connected for"><span data-since='
        assert (growing in gone, growing in here) == (False, True), "the time of a lost member's connection has ended"


async def test_in_a_browser_times_are_local_and_there_are_no_errors(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        assert os.environ.get("CI") != "true", "chromium is not here"
        pytest.skip("chromium is not here")
    a, b = process("a<b>", service="orders"), process("b", service="stock")
    deadlock(a, b)
    async with start_detector(tmp_path / "data") as detector:
        await detector.join(a, b)
        await detector.ask()
        environment = {**os.environ, "TZ": "Asia/Tokyo"}
        run = await asyncio.create_subprocess_exec(
            chromium, *CHROMIUM, f"--user-data-dir={tmp_path}/browser", detector.web, env=environment,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        async with asyncio.timeout(60):
            page = (await run.communicate())[0].decode()
    assert "times are Asia/Tokyo" in page, "the script ran"
    assert "Deadlocked for" in page
    assert "a&lt;b&gt;/X#1 has waited" in page
    assert '<input id="filter"' in page
    assert re.search(r'role="alert" hidden', page), "the page is fresh"


async def test_links_in_alerts_lead_to_their_incident(start_detector: Any, process: Any, deadlock: Any, tmp_path: Path) -> None:
    a, b = process("a", service="orders"), process("b", service="stock")
    stuck = deadlock(a, b)
    async with start_detector(tmp_path, base_path="/ops") as detector, aiohttp.ClientSession() as http:

        async def leads_to(path: str) -> str:
            async with http.get(f"{detector.web}{path}", allow_redirects=False) as answer:
                assert answer.status == 302
                return str(answer.headers["Location"])

        assert await leads_to("/incidents/latest?predicate=deadlock") == "/ops/", "there never was one"
        await detector.join(a, b)
        while not (found := await detector.incidents()):
            await detector.ask()
        first = found[0].id
        assert await leads_to("/incidents/latest?predicate=deadlock") == f"/ops/incidents/{first}"
        assert await leads_to("/incidents/latest") == f"/ops/incidents/{first}"
        assert await leads_to("/incidents/latest?predicate=gridlock") == "/ops/", "nobody is sent to another's incident"
        snapshot = (await detector.ask()).snapshot.id
        assert await leads_to("/snapshots/latest") == f"/ops/snapshots/{snapshot}"
        stuck.cure()
        while not (await detector.incidents())[0].HasField("closed"):
            await detector.ask()
        assert await leads_to("/incidents/latest?predicate=deadlock") == f"/ops/incidents/{first}", "how it ended"
        c, d = process("c"), process("d")
        deadlock(a, b), deadlock(c, d)
        await detector.join(c, d)
        while len(await detector.incidents()) < 3:
            await detector.ask()
        assert await leads_to("/incidents/latest?predicate=deadlock") == "/ops/incidents", "two are open"


@pytest.mark.longer
async def test_a_long_ending_leaves_the_core_readable_and_unfolded_rows_stay_unfolded(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path, page: Page
) -> None:
    a, b = process("orders-7d9f8c6b5-x2x4q", service="orders"), process("stock-5c9d7f4b8-zk8wq", service="stock")
    stuck = deadlock(a, b)
    async with start_detector(tmp_path, lease_seconds=600.0) as detector:
        await detector.join(a, b)
        while not await detector.incidents():
            await detector.ask()
        stuck.cure()
        while not (await detector.incidents())[0].HasField("closed"):
            await detector.ask()
        deadlock(a, b)
        while len(await detector.incidents()) < 2:
            await detector.ask()
        await page.look_at(f"{detector.web}/", width=1280)
        widths = "[...document.querySelectorAll('td[data-label=core]')].map((one) => one.offsetWidth)"
        assert min(await page.run(widths)) > 150
        hidden = "[...document.querySelectorAll('.wide')].some((one) => one.scrollWidth > one.clientWidth)"
        assert not await page.run(hidden)
        ids = await page.run("[...document.querySelectorAll('details')].map((one) => one.id)")
        assert len(set(ids)) == len(ids) >= 3
        assert "" not in ids
        await page.run("document.querySelectorAll('details').forEach((one) => { one.open = true; }); 0")
        await page.run("document.querySelector('main h2').textContent = 'before the update'; 0")
        await detector.ask()
        await page.until("!document.querySelector('main').textContent.includes('before the update')")
        assert await page.run("[...document.querySelectorAll('details')].every((one) => one.open)")


async def test_members_are_searched_and_come_in_pages(start_detector: Any, process: Any, tmp_path: Path) -> None:
    async with start_detector(tmp_path) as detector:
        for one in (process("a", labels={"zone": "x"}), process("b"), process("c", service="shop")):
            await detector.join(one)
        for query, names in {
            "search=ZONE%3Dx": ["a"],
            "search=sho": ["c"],
            "state=live&page=9": ["a", "b", "c"],
            "state=lost": [],
            "sort=service": ["a", "b", "c"],
            "sort=newest+first": ["c", "b", "a"],
            "sort=longest+silent+first&search=sho&state=live&page=1": ["c"],
            "sort=by+colour": ["a", "b", "c"],
        }.items():
            _, _, body = await detector.fetch(f"/members?{query}")
            assert re.findall(r"data-label=process>(\w+)<", body) == names, query
        _, _, body = await detector.fetch("/members?search=%22%3E%3Cscript%3E")
        assert "<script>" not in body


async def test_the_overview_of_many_members_searches_all_of_them(
    start_detector: Any, process: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pages, "_MEMBERS_SHOWN_MAX", 2)
    async with start_detector(tmp_path) as detector:
        await detector.join(process("a"), process("b"))
        _, _, body = await detector.fetch("/")
        assert ("id=filter" in body, "role=search" in body) == (True, False), "all of them are on the page"
        await detector.join(process("c"))
        _, _, body = await detector.fetch("/")
        assert ("id=filter" in body, "role=search" in body) == (False, True), "the page would only filter those that it shows"
        assert re.findall(r"data-label=process>(\w+)<", body) == ["a", "b"]
        assert "and 1 more" in body


def test_times_of_day_within_a_sentence_are_the_browsers() -> None:
    about = "2023-11-14T22:13:20Z"
    text = timed("<b> as of 22:13:19; since 11:00:00, not as of 00:05:00", about)
    assert str(text).startswith("&lt;b&gt; as of <time datetime=2023-11-14T22:13:19Z>")
    assert "since 11:00:00, not as of <time datetime=2023-11-15T00:05:00Z>" in str(text)
    assert timed("as of 25:00:00", about) == "as of 25:00:00"
    assert timed("as of 22:13:19", None) == "as of 22:13:19"


async def test_a_snapshots_page_shows_the_changes_since_another(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b = process("a"), process("b")
    async with start_detector(tmp_path) as detector:
        await detector.join(a)
        first = (await detector.ask()).snapshot.id
        _, _, body = await detector.fetch(f"/snapshots/{first}")
        assert "Since snapshot" not in body, "there is none before it"
        await detector.join(b)
        stuck = deadlock(a, b)
        second = (await detector.ask()).snapshot.id
        async with asyncio.timeout(PATIENCE_SECONDS):  # the verdicts are stored after the snapshot
            while "<li>deadlock: true, was " not in (body := (await detector.fetch(f"/snapshots/{second}?since={first}"))[2]):
                await asyncio.sleep(0.05)
        deadlocked = re.findall(r"<li>deadlocked since: ([^<]*)</li>", body)
        assert len(deadlocked) == 1
        assert {*stuck.core} <= {*deadlocked[0].split(", ")}
        assert "<li>joined: b" in body
        _, _, body = await detector.fetch(f"/snapshots/{first}?since={second}")
        assert "no longer deadlocked: " in body
        assert "<li>gone: b" in body
        _, _, body = await detector.fetch(f"/snapshots/{second}?since={second}")
        assert "no answer, deadlocked party or member has changed" in body
        for since in ("99999", "x", "-1"):
            assert (await detector.fetch(f"/snapshots/{second}?since={since}"))[0] == 200


async def test_a_page_shows_an_older_snapshot_from_the_archive(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b = process("a"), process("b")
    deadlock(a, b)
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b)
        number = (await detector.ask()).snapshot.id
    (tmp_path / "stilltrue.sqlite3").unlink()
    async with start_detector(tmp_path) as detector:
        status, _, body = await detector.fetch(f"/snapshots/{number}")
        assert (status, f"<h1>Snapshot {number}</h1>" in body) == (200, True)
        assert (await detector.fetch(f"/api/v1/snapshots/{number}/graph"))[0] == 200
        assert (await detector.fetch("/snapshots/999999"))[0] == 404


async def test_a_comparison_with_a_snapshot_that_is_gone_says_so(start_detector: Any, process: Any, tmp_path: Path) -> None:
    async with start_detector(tmp_path) as detector:
        await detector.join(process("a"))
        number = (await detector.ask()).snapshot.id
        _, _, body = await detector.fetch(f"/snapshots/{number}?since=999999")
        assert "snapshot 999999 was never taken, or newer ones have displaced it" in body
        assert '<input id=since name=since type=number min=1 value="999999">' in body


async def test_snapshots_are_listed_page_by_page_and_by_outcome(
    start_detector: Any, process: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pages, "_SNAPSHOTS_SHOWN_MAX", 2)
    async with start_detector(tmp_path) as detector:
        await detector.join(process("a"))
        ids = [(await detector.ask()).snapshot.id for _ in range(3)]

        async def listed(query: str) -> list[int]:
            _, _, body = await detector.fetch(f"/snapshots{query}")
            return [int(one) for one in re.findall(r"data-label=snapshot>(?:<a href=\"/snapshots/\d+\">)?(\d+)", body)]

        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await listed(""))[:1] != ids[-1:]:
                await asyncio.sleep(0.05)
        assert await listed("") == [ids[2], ids[1]]
        _, _, body = await detector.fetch("/snapshots")
        assert f'href="/snapshots?outcome=&amp;before={ids[1]}"' in body
        assert (await listed(f"?before={ids[1]}"))[:1] == [ids[0]]
        assert await listed("?outcome=rejected") == []
        assert await listed("?before=x&outcome=complete") == [ids[2], ids[1]]


async def test_a_page_of_members_links_the_previous_and_next_ones() -> None:
    asked: list[Mapping[str, str]] = []

    async def ask(query: Mapping[str, str]) -> dict[str, Any]:
        asked.append(query)
        begun = int(query["offset"])
        return {"total": 5, "states": {}, "members": [*range(5)][begun : begun + int(query["limit"])]}

    found = await member_list(ask, {"page": "2", "search": "a", "sort": "name"}, counted=2)
    assert (found["members"], found["first"], found["found"]) == ([2, 3], 3, 5)
    assert (found["before"], found["after"]) == ("?search=a&sort=name", "?search=a&sort=name&page=3")
    assert asked == [{"search": "a", "state": "", "sort": "name", "limit": "2", "offset": "2"}]
    assert (await member_list(ask, {"page": "0x1"}, counted=2))["first"] == 1
    assert (await member_list(ask, {"page": "9"}, counted=2))["members"] == [4], "the last page"
    assert (await member_list(ask, {"sort": "by colour", "state": "odd"}))["members"] == [0, 1, 2, 3, 4]
    assert (asked[-1]["sort"], asked[-1]["state"]) == ("lost first", "")


async def test_scripts_are_sent_compressed_and_kept_by_browsers_until_they_change(start_detector: Any, tmp_path: Path) -> None:
    async with start_detector(tmp_path) as detector, aiohttp.ClientSession(auto_decompress=False) as http:
        _, _, body = await detector.fetch("/")
        assert "<style>:root{" in body, "nothing else is needed for the first paint"
        assert 'rel="stylesheet"' not in body
        (live,) = re.findall(r'src="(/static/live.js[?]v=\w+)"', body)
        for path, accepted, coding, kept in (
            (live, "gzip, br", "gzip", "immutable"),
            (live, "gzip;q=0, br", None, "immutable"),
            (live, "identity", None, "immutable"),
            ("/static/live.js?v=other", "gzip", "gzip", "no-store"),
            ("/", "gzip", None, "no-store"),
        ):
            async with http.get(detector.web + path, headers={"Accept-Encoding": accepted}) as answer:
                sent = await answer.read()
                assert answer.headers.get("Content-Encoding") == coding, (path, accepted)
                assert kept in answer.headers["Cache-Control"], (path, accepted)
                text = gzip.decompress(sent) if coding else sent
                assert path == "/" or text == (Path(pages.__file__).parent / "static" / "live.js").read_bytes()


async def test_a_browser_ignores_styles_injected_into_a_page(start_detector: Any, tmp_path: Path) -> None:
    async with start_detector(tmp_path) as detector, aiohttp.ClientSession() as http:
        for path in ("/", "/members", "/incidents", "/snapshots"):
            async with http.get(detector.web + path) as answer:
                body, policy = await answer.text(), answer.headers["Content-Security-Policy"]
            assert "unsafe" not in policy
            (style,) = re.findall("<style>(.*?)</style>", body, re.DOTALL)
            digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
            assert f"style-src 'sha256-{digest}'" in policy, "the page's own style, and no other"
            assert re.findall(r"<\w[^>]* style=", body) == []


def test_all_that_the_pages_load_is_under_400_kb_compressed() -> None:
    folder = Path(pages.__file__).parent / "static"
    assert sum(len(gzip.compress(file.read_bytes())) for file in folder.iterdir() if file.suffix in {".js", ".css"}) < 400_000
