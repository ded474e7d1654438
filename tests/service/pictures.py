"""Makes the screenshots in the docs: ``python -m tests.service.pictures docs/images`` (``make pictures``).

A shop is played over real streams to a real detector, and looked at with a real browser.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

from detector.core.counting import counted
from stilltrue.model import PartyName
from tests.service.browser import Page, browsing
from tests.service.conftest import FakeProcess, detecting

WIDTH = 1000
OPEN = "document.querySelectorAll('#graph button').forEach((one) => one.textContent === 'open all' && one.click())"


def shop() -> list[FakeProcess]:
    """Three services whose pools wait for each other, with customers behind them."""
    orders, stock, billing = ring = [FakeProcess(f"{name}-0", service=name) for name in ("orders", "stock", "billing")]
    web = [FakeProcess(f"web-{at}", service="web") for at in range(4)]
    methods = ("Place", "Reserve", "Charge")
    serving: list[list[PartyName]] = []
    for process, method, caller in zip(ring, methods, (web[0], web[0], web[0]), strict=True):
        process.recorder.pool_opened("workers", 2)
        serving.append([caller.call(process, f"/shop.Shop/{method}", by=f"{method}-{at}")[1].party for at in range(2)])
    for at, (process, parties) in enumerate(zip(ring, serving, strict=True)):
        for party in parties:
            process.call(ring[(at + 1) % 3], f"/shop.Shop/{methods[(at + 1) % 3]}", by=party, starts=False)
    for process in web[1:]:
        process.call(orders, "/shop.Shop/Place", by="request", starts=False)
    for process in (orders, stock, billing):
        process.cures = lambda: None
    return [*ring, *web]


async def shoot(page: Page, url: str, file: Path, *, height: int, dark: bool = False, at: str = "") -> None:
    """One picture; ``at``: the part of the page that is at its top."""
    await page.command("Emulation.setScrollbarsHidden", hidden=True)
    await page.look_at(url, width=WIDTH, height=height, dark=dark)
    if "/incidents/" in url or "/snapshots/" in url:
        await page.until("!!window.stilltrueGraph || !document.querySelector('#graph')")
        await page.run(f"{OPEN}; 0")
        await page.run("new Promise((done) => setTimeout(done, 800))")
    if at:
        await page.run(f"document.querySelector({at!r}).scrollIntoView(); 0")
    await page.picture(file, whole=False)


async def main(folder: Path) -> None:
    """All of them."""
    folder.mkdir(parents=True, exist_ok=True)
    processes = shop()
    with tempfile.TemporaryDirectory() as data:
        async with detecting(Path(data), allow_cure=True, lease_seconds=600.0) as detector, browsing() as page:
            await detector.join(*processes)
            while not (found := await detector.incidents()):
                await detector.ask()
            verdict: Any = await detector.ask()
            incident = f"{detector.web}/incidents/{found[0].id}"
            await shoot(page, f"{detector.web}/", folder / "overview.png", height=560)
            await shoot(page, incident, folder / "incident.png", height=620, at="#graph")
            await shoot(page, f"{incident}/cure", folder / "cure.png", height=560)
            snapshot = f"{detector.web}/snapshots/{verdict.snapshot.id}"
            await shoot(page, snapshot, folder / "space-time.png", height=400, at="h2:has(+ [aria-label='space-time diagram'])")
    pictures = sorted(folder.glob("*.png"))
    size = sum(picture.stat().st_size for picture in pictures) / 1024
    sys.stdout.write(f"{counted(len(pictures), 'picture')} in {folder}, {size:.0f} kB\n")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images")))
