"""The interactive drawing in a real browser: clicks, search, snapshots, hostile names, no external requests."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.service.browser import PATIENCE_SECONDS, Page

HOSTILE = "<img src=x onerror=alert(1)>\u202e" + "n" * 3000
PANEL = "document.querySelector('#graph .panel').textContent"


def errors_of(page: Page) -> list[str]:
    """Errors in the console, but for the long poll of a detector that shares a busy machine with its browser."""
    return [error for error in page.complaints if "/events?" not in error]


def click(text: str, within: str = "#graph") -> str:
    return f"[...document.querySelectorAll('{within} button')].find((one) => one.textContent === {text!r}).click()"


async def test_a_user_finds_a_partys_wait(start_detector: Any, process: Any, deadlock: Any, tmp_path: Path, page: Page) -> None:
    a, b = process("orders-1", service="orders"), process("stock-1", service="stock")
    stuck = deadlock(a, b)
    async with start_detector(tmp_path, period_seconds=0.2) as detector:
        await detector.join(a, b)
        await detector.ask()
        (incident,) = await detector.incidents()
        await page.look_at(f"{detector.web}/incidents/{incident.id}")
        await page.until("window.stilltrueGraph && stilltrueGraph.nodes('.party.core').length === 2")
        assert await page.run("stilltrueGraph.edges('.core').length") == 2
        await page.run(f"stilltrueGraph.getElementById({stuck.core[0]!r}).emit('tap') && 0")
        said = await page.run(PANEL)
        assert said.startswith(stuck.core[0])
        assert "has waited for" in said
        await page.run(click(stuck.core[1]))
        assert (await page.run(PANEL)).startswith(stuck.core[1])
        await page.run(click("close all"))
        assert await page.run("stilltrueGraph.nodes('.service.closed').length") == 2
        assert "orders 1 deadlocked, 1 behind the deadlock" in await page.run(PANEL)
        await page.run(
            "(box => { box.value = 'orders-1/X'; box.dispatchEvent(new Event('input')); })"
            "(document.querySelector('#graph input'))"
        )
        assert await page.run("stilltrueGraph.nodes('.chosen').map((one) => one.id())") == [stuck.core[0]]
        stuck.cure()
        await page.until("document.querySelector('h1').textContent.includes('ended after')")
        assert await page.run("!!document.querySelector('#graph canvas')"), "the drawing outlives the update"
        assert errors_of(page) == []
        assert {urlsplit(url).netloc for url in page.requests} == {urlsplit(detector.web).netloc}


STRAIGHT_THROUGH_A_BOX = """(() => {
  const sides = (box) => [[box.x1, box.y1, box.x2, box.y1], [box.x2, box.y1, box.x2, box.y2],
                          [box.x2, box.y2, box.x1, box.y2], [box.x1, box.y2, box.x1, box.y1]];
  const left = (a, b, x, y) => Math.sign((b.x - a.x) * (y - a.y) - (b.y - a.y) * (x - a.x));
  const cut = (a, b, [x1, y1, x2, y2]) => left(a, b, x1, y1) !== left(a, b, x2, y2) &&
    left({x: x1, y: y1}, {x: x2, y: y2}, a.x, a.y) !== left({x: x1, y: y1}, {x: x2, y: y2}, b.x, b.y);
  const boxes = stilltrueGraph.nodes('.party').map((one) => [one.id(), one.boundingBox({includeOverlays: false})]);
  const ends = (edge, id) => [edge.source().id(), edge.target().id()].includes(id);
  return stilltrueGraph.edges().filter((edge) => boxes.some(([id, box]) => !ends(edge, id)
    && sides(box).some((side) => cut(edge.source().position(), edge.target().position(), side))))
    .map((edge) => edge.style('curve-style')); })()"""


async def test_an_arrow_past_another_party_is_bent_around_it(
    start_detector: Any, process: Any, tmp_path: Path, page: Page
) -> None:
    members = [process(f"{name}-1", service=name) for name in ("east", "north", "south", "west")]
    for a, b in (members[:2], members[2:]):
        for one in (a, b):
            one.recorder.pool_opened("workers", 2)
        party = a.call(a, "/s/First")[1].party
        for caller, server in ((a, a), (a, b), (b, b)):
            party = caller.call(server, "/s/Next", by=party)[1].party
        b.call(a, "/s/Last", by=party, starts=False)  # for either of the busy workers, which stand in one row
    async with start_detector(tmp_path, period_seconds=0.2) as detector:
        await detector.join(*members)
        while len(await detector.incidents()) < 2:
            await detector.ask()
        await page.look_at(f"{detector.web}/snapshots/latest")
        await page.until("window.stilltrueGraph && stilltrueGraph.nodes('.party.core').length === 8")
        bent = await page.run(STRAIGHT_THROUGH_A_BOX)
        assert bent
        assert set(bent) == {"unbundled-bezier"}


async def test_the_picture_is_saved_as_png(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path, page: Page
) -> None:
    a, b = process("orders-1", service="orders"), process("stock-1", service="stock")
    deadlock(a, b)
    async with start_detector(tmp_path / "data") as detector:
        await detector.join(a, b)
        number = (await detector.ask()).snapshot.id
        await page.command("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
        await page.look_at(f"{detector.web}/snapshots/{number}")
        await page.until("window.stilltrueGraph && stilltrueGraph.nodes().length > 0")
        await page.run(click("PNG"))
        saved = tmp_path / f"stilltrue-{number}.png"
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not saved.exists():
                await asyncio.sleep(0.05)
        head = saved.read_bytes()[:24]
        assert head.startswith(b"\x89PNG"), "a picture, and nothing that the browser refuses"
        assert int.from_bytes(head[16:20]) > 200, "as wide as what is drawn"


@pytest.mark.parametrize(("width", "dark"), [(390, True), (1280, False)])
async def test_hostile_names_harm_nothing_and_no_page_is_wider_than_its_window(
    start_detector: Any,
    process: Any,
    deadlock: Any,
    tmp_path: Path,
    page: Page,
    width: int,
    dark: bool,
) -> None:
    a, b = process("a<b>" + "n" * 200, service=HOSTILE), process("b", service="<script>alert(2)</script>")
    deadlock(a, b)
    a.cures = b.cures = lambda: None
    async with start_detector(tmp_path, allow_cure=True) as detector:
        await detector.join(a, b)
        verdict = await detector.ask()
        (incident,) = await detector.incidents()
        one = f"/incidents/{incident.id}"
        for path in ("/", "/incidents", one, f"{one}/cure", "/members", f"/snapshots/{verdict.snapshot.id}"):
            await page.look_at(f"{detector.web}{path}", width=width, dark=dark)
            if "/" in path[1:] and not path.endswith("/cure"):
                await page.until("!!window.stilltrueGraph")
                await page.run(click("open all"))
            assert await page.run("document.documentElement.scrollWidth") <= width, path
            assert await page.run("document.querySelectorAll('img, main script').length") == 0, path
        assert errors_of(page) == []


async def test_thousands_of_parties_are_drawn_as_a_few_groups(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path, page: Page
) -> None:
    a, b, load = process("a"), process("b"), process("load")
    deadlock(a, b)
    for _ in range(2000):
        load.call(a, "/s/X", starts=False)
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b, load)
        verdict = await detector.ask()
        await page.look_at(f"{detector.web}/snapshots/{verdict.snapshot.id}")
        await page.until("!!window.stilltrueGraph")
        await page.run(click("open all"))
        async with asyncio.timeout(30):
            shown = await page.run("stilltrueGraph.nodes().length")
        assert 4 < shown <= 2_100
        assert errors_of(page) == []


@pytest.mark.longer
async def test_the_next_snapshot_leaves_the_view_alone_and_is_drawn_when_it_differs(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path, page: Page
) -> None:
    a, b, load = process("a"), process("b"), process("load")
    deadlock(a, b)
    async with start_detector(tmp_path, lease_seconds=600.0) as detector:
        await detector.join(a, b, load)
        await detector.ask()
        (incident,) = await detector.incidents()
        await page.look_at(f"{detector.web}/incidents/{incident.id}")
        await page.until("!!document.querySelector('#graph').dataset.shown")
        drawn = await page.run("stilltrueGraph.nodes('.party').length")
        await page.run("stilltrueGraph.viewport({zoom: 2.5, pan: {x: 7, y: 9}}) && 0")
        await page.run("stilltrueGraph.emit('scrollzoom') && 0")
        await page.run("(window.before = stilltrueGraph) && 0")
        verdict = await detector.ask()
        await page.until(f"document.querySelector('#graph').dataset.shown === '{verdict.snapshot.id}'")
        assert await page.run("window.before === stilltrueGraph"), "drawn anew, though nothing has changed"
        deadlock(b, load)
        await detector.ask()
        await page.until(f"stilltrueGraph.nodes('.party').length > {drawn}")
        assert await page.run("[stilltrueGraph.zoom(), stilltrueGraph.pan()]") == [2.5, {"x": 7, "y": 9}]
        assert errors_of(page) == []


async def test_two_parties_are_not_drawn_larger_than_the_rest_of_the_page(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path, page: Page
) -> None:
    a, b = process("orders-1", service="orders"), process("orders-2", service="orders")
    deadlock(a, b)
    async with start_detector(tmp_path, lease_seconds=600.0) as detector:
        await detector.join(a, b)
        await detector.ask()
        (incident,) = await detector.incidents()
        await page.look_at(f"{detector.web}/incidents/{incident.id}")
        await page.until("window.stilltrueGraph && stilltrueGraph.nodes('.party.core').length === 2")
        middle = "(box => [box.x1 + box.x2 - stilltrueGraph.width(), box.y1 + box.y2 - stilltrueGraph.height()])"
        for _ in range(2):
            assert await page.run("stilltrueGraph.zoom()") == 1.5
            off = await page.run(f"{middle}(stilltrueGraph.elements().renderedBoundingBox())")
            assert max(map(abs, off)) < 20, "it is in the middle"
            await page.run("stilltrueGraph.viewport({zoom: 3, pan: {x: 7, y: 9}}) && 0")
            await page.run(click("fit"))
        assert errors_of(page) == []


async def test_a_narrow_window_begins_with_services(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path, page: Page
) -> None:
    a, b = process("a"), process("b")
    deadlock(a, b)
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b)
        await detector.ask()
        (incident,) = await detector.incidents()
        for width, parties in ((390, 0), (1280, 4)):
            await page.look_at(f"{detector.web}/incidents/{incident.id}", width=width)
            await page.until("!!document.querySelector('#graph').dataset.shown")
            assert await page.run("stilltrueGraph.nodes('.party').length") == parties


async def test_pictures_come_after_the_page(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path, page: Page
) -> None:
    a, b = process("a"), process("b")
    deadlock(a, b)
    async with start_detector(tmp_path, lease_seconds=600.0) as detector:
        await detector.join(a, b)
        verdict = await detector.ask()
        path = f"/snapshots/{verdict.snapshot.id}"
        _, _, body = await detector.fetch(path)
        assert "<svg " not in body
        assert body.count("<noscript><img src=") == 2
        await page.look_at(f"{detector.web}{path}")
        await page.until("!!document.querySelector('[aria-label=\"space-time diagram\"] > svg')")
        await page.command("Network.setBlockedURLs", urls=["*/graph?*"])
        await page.look_at(f"{detector.web}{path}")
        await page.until("!!document.querySelector('#graph .picture > svg')")
