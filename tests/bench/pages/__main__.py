"""First paint and the cost of an update with 1,000 members and 5,000 stuck parties: ``python -m tests.bench.pages``.

A real Chromium, the shipped command with its usual settings (so it takes a snapshot each second), and the members: each is a
process of its own on this machine. Nothing is asserted; the figures are in docs/detector.md.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from tests.bench.fleet.measure import Process, child
from tests.service.browser import Page, browsing

MEMBERS = int(os.environ.get("STILLTRUE_BENCH_MEMBERS", "1000"))
PERIOD_SECONDS = os.environ.get("STILLTRUE_BENCH_PERIOD_SECONDS", "1.0")
PAINTS = 15
PAUSE_SECONDS = 0.37
"""Between two looks at a page, so that they fall on any moment of a snapshot."""
ROUNDS = 5
IDLE_SECONDS = 0.5
"""Between two snapshots, when the graph stands still."""
SHOWN = "document.querySelector('#graph').dataset.shown"
CHANGES = """new Promise((done) => new MutationObserver(() => done(1)).observe(document.querySelector('#graph'),
  {attributeFilter: ['data-shown']}))"""
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
ANSWERED = "performance.getEntriesByType('navigation')[0].responseStart"


async def fetch(url: str) -> bytes:
    """The body at ``url``."""

    def get() -> bytes:
        with urllib.request.urlopen(url, timeout=60) as answer:
            body: bytes = answer.read()
            return body

    return await asyncio.to_thread(get)


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


async def paints(page: Page, url: str) -> tuple[list[float], list[float]]:
    """Milliseconds from the request to the first byte of the answer, and to the first paint with content; sorted."""
    answered, painted = [], []
    for _ in range(PAINTS):
        await asyncio.sleep(PAUSE_SECONDS)
        await page.look_at(url)
        await page.until(f"{PAINT} > 0")
        answered.append(float(await page.run(ANSWERED)))
        painted.append(float(await page.run(PAINT)))
    return sorted(answered), sorted(painted)


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


async def following(page: Page, url: str) -> tuple[float, float]:
    """Milliseconds until an incident's graph is drawn, and of script for a further snapshot that shows the same.

    The library's idle frames take script as well: what they take of a span of the same length is left out.
    """
    drawn, scripts = [], []
    for _ in range(ROUNDS):
        await page.look_at(url)
        await page.until(f"!!({SHOWN})")
        drawn.append(float(await page.run("performance.now()")))
        await asyncio.sleep(1)  # its first frames
        script, took = await script_until(page, page.run(CHANGES))
        idle, slept = await script_until(page, asyncio.sleep(IDLE_SECONDS))
        scripts.append(script - idle * took / slept)
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


async def incident_of(web: str) -> dict[str, Any]:
    """The deadlock of all parties, as soon as it is known."""
    while True:
        found = json.loads(await fetch(f"{web}/api/v1/incidents"))["incidents"]
        if found:
            one: dict[str, Any] = found[0]
            return one
        await asyncio.sleep(0.5)


async def measure(web: str, detector: Process) -> None:
    """Print the table."""
    incident = await incident_of(web)
    stuck = len(incident["core"]) + len(incident["behind"])
    print(f"{MEMBERS} members, {stuck} stuck parties, a snapshot every {PERIOD_SECONDS} s; {os.cpu_count()} cores")
    before, begun = detector.processor(), time.monotonic()
    await asyncio.sleep(10)
    print(f"nobody looks: the detector takes {(detector.processor() - before) / (time.monotonic() - begun):.2f} s a second")
    one = f"/incidents/{incident['id']}"
    async with browsing() as page:
        for path in ("/members", one, f"/snapshots/{incident['first_snapshot']}", "/", "/incidents", "/snapshots"):
            url = web + path
            size, counted = len(await fetch(url)) / 1024, await painting(page, url)
            (answered, painted), (script, task) = await paints(page, url), await update(page, url)
            inside = ", ".join(f"{name.removesuffix('Duration')} {value:.0f}" for name, value in counted.items())
            print(f"{path.split('-')[0]:12s} {size:4.0f} kB; answered {middle(answered)}; first paint {middle(painted)} ms")
            print(f"{'':12s} in the browser {inside} ms; an update {script:.0f} ms of script, {task:.0f} ms in all", flush=True)
        drawn, followed = await following(page, f"{web}{one}")
        print(f"the graph is drawn after {drawn:.0f} ms; the next snapshot costs {followed:.0f} ms of script with it")


def middle(values: list[float]) -> str:
    """The median, and from least to most."""
    return f"{statistics.median(values):.0f} ({values[0]:.0f} to {values[-1]:.0f})"


async def main() -> None:
    """Start the detector and the members."""
    with tempfile.TemporaryDirectory() as data:
        ports = ("--port", "0", "--http-port", "0", "--data", data, "--period-seconds", PERIOD_SECONDS)
        async with child("-m", "detector", "serve", *ports, errors=Path(data) / "log") as detector:
            words = dict(word.split("=", 1) for word in (await detector.line()).split() if "=" in word)
            async with child("-m", "tests.bench.pages.members", words["grpc"], str(MEMBERS)) as members:
                await members.line()
                await measure(words["pages"].rstrip("/"), detector)


if __name__ == "__main__":
    asyncio.run(main())
