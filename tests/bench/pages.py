"""First paint and the cost of an update with 1,000 members and 5,000 stuck parties: ``python -m tests.bench.pages``.

A real Chromium on this machine, a detector in this process, and members that are played over real streams. Nothing is asserted;
the figures are in docs/detector.md.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from detector.service.web.pages import Pages
from stilltrue.v1 import detector_pb2
from tests.service.browser import Page, browsing
from tests.service.conftest import FakeProcess, detecting

MEMBERS = int(os.environ.get("STILLTRUE_BENCH_MEMBERS", "1000"))
PARTIES_EACH = 5
ROUNDS = 5
SHOWN = "document.querySelector('#graph').dataset.shown"
CHANGES = """new Promise((done) => new MutationObserver(() => done(1)).observe(document.querySelector('#graph'),
  {attributeFilter: ['data-shown']}))"""
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


def ring(members: list[FakeProcess]) -> None:
    """Every worker of every member has called the next member, whose workers are busy: one knot of them all."""
    workers = []
    for member in members:
        member.recorder.pool_opened("pool", PARTIES_EACH)
        workers.append([member.call(member, "/shop.Ring/Work")[1] for _ in range(PARTIES_EACH)])
    for at, served in enumerate(workers):
        for one in served:
            members[at].call(members[(at + 1) % len(members)], "/shop.Ring/Next", by=one.party, starts=False)


MADE: list[Pages] = []


def remember_pages() -> None:
    """So that a page can be made here, with the processor time that it takes."""
    right = Pages.__init__

    def init(self: Pages, **given: Any) -> None:
        right(self, **given)
        MADE.append(self)

    Pages.__init__ = init  # type: ignore[method-assign]


async def processor(path: str) -> float:
    """Milliseconds of the event loop's processor time to make a page: the least of a few, since other work may come between."""
    found = []
    for _ in range(3 * ROUNDS):
        begun = time.thread_time()
        await MADE[0].page(path)
        found.append(1000 * (time.thread_time() - begun))
    return min(found)


async def painting(page: Page, url: str) -> dict[str, float]:
    """Milliseconds of the browser's own processor time until a page has been painted: script, style, layout; and in all."""
    found: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        await page.look_at("about:blank")
        await counts(page)
        before = await metrics(page)
        await page.look_at(url)
        await page.until(f"{PAINT} > 0")
        after = await metrics(page)
        for name in ("ScriptDuration", "RecalcStyleDuration", "LayoutDuration", "TaskDuration"):
            found.setdefault(name, []).append(1000 * (after[name] - before[name]))
    return {name: statistics.median(values) for name, values in found.items()}


async def paint(page: Page, url: str) -> float:
    """Milliseconds from the request to the first paint with content."""
    found = []
    for _ in range(ROUNDS):
        await page.look_at(url)
        await page.until(f"{PAINT} > 0")
        found.append(float(await page.run(PAINT)))
    return statistics.median(found)


async def update(page: Page, url: str) -> tuple[float, float]:
    """Milliseconds of script, and in all (with layout), of one update of the page."""
    await page.look_at(url)
    await counts(page)
    scripts, tasks = [], []
    for _ in range(ROUNDS):
        before = await metrics(page)
        await page.run("fresh()")
        after = await metrics(page)
        scripts.append(1000 * (after["ScriptDuration"] - before["ScriptDuration"]))
        tasks.append(1000 * (after["TaskDuration"] - before["TaskDuration"]))
    return statistics.median(scripts), statistics.median(tasks)


async def following(page: Page, url: str, detector: Any) -> tuple[float, float]:
    """Milliseconds until an incident's graph is drawn, and of script for a further snapshot that shows the same."""
    drawn, scripts = [], []
    for _ in range(ROUNDS):
        await page.look_at(url)
        await page.until(f"!!({SHOWN})")
        drawn.append(float(await page.run("performance.now()")))
        await asyncio.sleep(1)  # its first frames
        idle = await script_until(page, asyncio.sleep(2))
        await page.run(f"window.next = {CHANGES}, 0")
        ask = detector.stub.Ask(detector_pb2.AskRequest(predicate="deadlock"), timeout=120)
        busy = await script_until(page, asyncio.gather(ask, page.run("window.next")))
        scripts.append(busy[0] - idle[0] / idle[1] * busy[1])
    return statistics.median(drawn), statistics.median(scripts)


async def script_until(page: Page, event: Awaitable[Any]) -> tuple[float, float]:
    """Milliseconds of script until something has happened, and in all."""
    await counts(page)
    before, begun = await metrics(page), time.perf_counter()
    await event
    took = 1000 * (time.perf_counter() - begun)
    return 1000 * ((await metrics(page))["ScriptDuration"] - before["ScriptDuration"]), took


async def counts(page: Page) -> None:
    """Have the browser count its main thread's processor time, which other load does not lengthen."""
    await page.command("Performance.disable")
    await page.command("Performance.enable", timeDomain="threadTicks")


async def metrics(page: Page) -> dict[str, float]:
    answer: dict[str, Any] = await page.command("Performance.getMetrics")
    return {one["name"]: one["value"] for one in answer["metrics"]}


async def main() -> None:
    """Print the table."""
    remember_pages()
    members = [FakeProcess(f"shop-{at}", service=f"service-{at % 20}") for at in range(MEMBERS)]
    ring(members)
    with tempfile.TemporaryDirectory() as folder:
        async with detecting(Path(folder), lease_seconds=3600.0, give_up_seconds=30.0, look_give_up_seconds=30.0) as detector:
            for at in range(0, MEMBERS, 100):
                await detector.join(*members[at : at + 100])
            while not (found := await detector.incidents()):
                await detector.stub.Ask(detector_pb2.AskRequest(predicate="deadlock"), timeout=120)
            stuck = len(found[0].core) + len(found[0].behind)
            print(f"{MEMBERS} members, {stuck} stuck parties; Chromium on {os.cpu_count()} cores; medians of {ROUNDS}")
            async with browsing() as page:
                incident = f"/incidents/{found[0].id}"
                for path in ("/members", incident, f"/snapshots/{found[0].first_snapshot}", "/"):
                    url, begun = f"{detector.web}{path}", time.perf_counter()
                    _, _, body = await detector.fetch(path)
                    made = 1000 * (time.perf_counter() - begun)
                    own, counted = await processor(path), await painting(page, url)
                    painted, (script, task) = await paint(page, url), await update(page, url)
                    sent = f"{path.split('-')[0]:12s} made in {made:4.0f} ms, {len(body) / 1024:5.0f} kB"
                    inside = ", ".join(f"{name.removesuffix('Duration')} {value:.0f}" for name, value in counted.items())
                    print(f"{path.split('-')[0]:12s} processor: {own:.0f} ms to make; in the browser, ms: {inside}")
                    print(f"{sent}; first paint {painted:4.0f} ms; update {script:3.0f} ms of script, {task:3.0f} ms in all")
                drawn, followed = await following(page, f"{detector.web}{incident}", detector)
                print(f"the graph is drawn after {drawn:.0f} ms; the next snapshot costs {followed:.0f} ms of script with it")


if __name__ == "__main__":
    asyncio.run(main())
