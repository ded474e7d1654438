"""Every page is checked by axe-core at 390 and 1280 pixels, light and dark, and can be used by keyboard."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.service.browser import Page

AXE = sorted((Path(__file__).parents[3] / "build" / "axe").glob("axe-*.min.js"))
WAYS = [(390, False), (390, True), (1280, False), (1280, True)]
RUN = """axe.run(document, {resultTypes: ["violations"]}).then((found) => found.violations.map((one) =>
  `${one.id}: ${one.help}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 200) + node.failureSummary).join()}`))"""


@pytest.fixture
def axe() -> str:
    if not AXE:
        assert os.environ.get("CI") != "true", "tests/service/install-axe has not been run"
        pytest.skip("axe-core is not here: tests/service/install-axe")
    return AXE[-1].read_text()


async def world(detector: Any, process: Any, deadlock: Any) -> list[str]:
    """The paths of every page, of a detector that has seen everything once."""
    a, b = process("orders-1", service="orders", labels={"zone": "x"}), process("stock-1", service="stock")
    stuck = deadlock(a, b)
    a.cures = b.cures = lambda: None
    await detector.join(a, b)
    while not (found := await detector.incidents()):
        await detector.ask()
    stuck.cure()
    while not (await detector.incidents())[0].HasField("closed"):
        await detector.ask()
    deadlock(a, b)
    while len(found := await detector.incidents()) < 2:
        await detector.ask()
    verdict = await detector.ask()
    incidents = [f"/incidents/{one.id}" for one in found]
    snapshot = f"/snapshots/{verdict.snapshot.id}"
    return ["/", "/incidents", *incidents, f"{incidents[0]}/cure", "/members", "/snapshots", snapshot, "/nowhere"]


@pytest.mark.longer
async def test_axe_finds_nothing_on_any_page(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path, page: Page, axe: str
) -> None:
    found: dict[str, Any] = {}
    async with start_detector(tmp_path, allow_cure=True, lease_seconds=600.0) as detector:
        for path in await world(detector, process, deadlock):
            for width, dark in WAYS:
                await page.look_at(f"{detector.web}{path}", width=width, dark=dark)
                if path.startswith(("/incidents/", "/snapshots/")) and not path.endswith("/cure"):
                    await page.until("!!window.stilltrueGraph")
                await page.run(f"{axe}; 0")
                if violations := await page.run(RUN):
                    found[f"{path} {width} {'dark' if dark else 'light'}"] = violations
                if folder := os.environ.get("STILLTRUE_PICTURES"):
                    name = f"{path.strip('/').replace('/', '-') or 'overview'}-{width}-{'dark' if dark else 'light'}.png"
                    await page.picture(Path(folder) / name)
    assert found == {}


REACHABLE = """[...document.querySelectorAll('a[href], button, input, select, summary, [tabindex="0"]')]
  .filter((one) => one.checkVisibility())"""
NAMED = "((one) => `${one.tagName} ${one.id || one.textContent.trim().slice(0, 40) || one.getAttribute('aria-label')}`)"
FOCUSED = f"""(() => {{ const one = document.activeElement; const style = getComputedStyle(one);
  return [{NAMED}(one), style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0]; }})()"""


async def press(page: Page, key: str, code: int, text: str = "") -> None:
    whole = {"key": key, "code": key, "windowsVirtualKeyCode": code}
    await page.command("Input.dispatchKeyEvent", type="keyDown", text=text, **whole)
    await page.command("Input.dispatchKeyEvent", type="keyUp", **whole)


@pytest.mark.longer
async def test_everything_is_reachable_by_keyboard_with_visible_focus(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path, page: Page
) -> None:
    async with start_detector(tmp_path, allow_cure=True, lease_seconds=600.0) as detector:
        for path in await world(detector, process, deadlock):
            await page.look_at(f"{detector.web}{path}")
            if path.startswith(("/incidents/", "/snapshots/")) and not path.endswith("/cure"):
                await page.until("!!window.stilltrueGraph")
            there = await page.run(f"{REACHABLE}.map({NAMED})")
            found = []
            for _ in there:
                await press(page, "Tab", 9)
                found.append(await page.run(FOCUSED))
            assert [name for name, _ in found] == there, path
            assert [name for name, outlined in found if not outlined] == [], path


async def test_an_incident_is_ended_with_the_keyboard_alone(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path, page: Page
) -> None:
    async with start_detector(tmp_path, allow_cure=True, lease_seconds=600.0) as detector:
        a, b = process("orders-1", service="orders"), process("stock-1", service="stock")
        stuck = deadlock(a, b)
        a.cures = b.cures = stuck.cure
        await detector.join(a, b)
        while not (found := await detector.incidents()):
            await detector.ask()

        async def goes_to(text: str) -> None:
            while text not in await page.run("document.activeElement.textContent.trim() + document.activeElement.tagName"):
                await press(page, "Tab", 9)
            await press(page, "Enter", 13, "\r")

        await page.look_at(f"{detector.web}/incidents/{found[0].id}")
        await goes_to("Abort it ...A")
        await page.until("document.readyState === 'complete' && location.pathname.endsWith('/cure')")
        await goes_to("Abort 1 callBUTTON")
        await page.until("document.body?.textContent.includes('is over')")
        assert len(a.asked_to_cure + b.asked_to_cure) == 1
