"""Text in a real browser at 1280 pixels: words are whole, and times have 24 hours, as in the commands' output."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.service.browser import Page

TIMES = "[...document.querySelectorAll('time[datetime]')].map((one) => one.textContent)"
LINES = """[...document.querySelectorAll('td[data-label=answer], td[data-label=outcome]')]
  .filter((cell) => /^\\w+$/.test(cell.textContent)).map((cell) => {
  const text = document.createRange(); text.selectNodeContents(cell); return text.getClientRects().length; })"""


async def test_times_have_24_hours(start_detector: Any, process: Any, deadlock: Any, tmp_path: Path, page: Page) -> None:
    await page.command("Emulation.setLocaleOverride", locale="en-US")
    await page.command("Emulation.setTimezoneOverride", timezoneId="UTC")
    a, b = process("orders-1", service="orders"), process("stock-1", service="stock")
    async with start_detector(tmp_path, lease_seconds=600.0) as detector:
        deadlock(a, b)
        await detector.join(a, b)
        while not (found := await detector.incidents()):
            await detector.ask()
        for path in ("/", f"/incidents/{found[0].id}"):
            await page.look_at(f"{detector.web}{path}")
            await page.run(
                "document.querySelectorAll('time[datetime]').forEach((one) => { one.dateTime = '2026-11-20T23:31:17Z' })"
            )
            await page.run("localTimes()")
            times = await page.run(TIMES)
            assert times, path
            assert all(re.search(r"\b23:31:17$", time) for time in times), times


async def test_an_answer_is_one_word_however_long_its_evidence_is(
    start_detector: Any, process: Any, tmp_path: Path, page: Page
) -> None:
    members = [process(f"stock-{at}-in-a-cluster-with-a-long-name", service="stock") for at in range(20)]
    async with start_detector(tmp_path, lease_seconds=600.0) as detector:
        await detector.join(*members)
        for member in members[1:]:
            member.silent = True
        await detector.ask("termination")
        await page.look_at(f"{detector.web}/")
        if folder := os.environ.get("STILLTRUE_PICTURES"):
            await page.picture(Path(folder) / "undetermined-1280.png")
        lines = await page.run(LINES)
        assert lines
        assert set(lines) == {1}


NAMES = """[...document.querySelectorAll('.name')].filter((one) => one.getClientRects().length).map((one) => {
  const text = document.createRange(); text.selectNodeContents(one);
  return [one.textContent, new Set([...text.getClientRects()].map((line) => line.top)).size]; })"""


@pytest.mark.parametrize("width", [1280, 390])
async def test_a_name_with_hyphens_is_on_one_line_if_it_fits(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path, page: Page, width: int
) -> None:
    a, b = process("orders-7d9f8-x2kzq", service="orders"), process("stock-6c5d4-p9wvt", service="stock")
    stuck = deadlock(a, b)
    async with start_detector(tmp_path, lease_seconds=600.0) as detector:
        await detector.join(a, b)
        while not (found := await detector.incidents()):
            await detector.ask()
        for path in ("/", f"/incidents/{found[0].id}", "/snapshots/latest"):
            await page.look_at(f"{detector.web}{path}", width=width)
            names = await page.run(NAMES)
            assert {lines for _, lines in names} == {1}, names
            assert {party for party in stuck.core if any(party in name for name, _ in names)} == set(stuck.core)
        text = "x-" * 200
        await page.run(f"document.querySelector('.name').textContent = '{text}'")
        assert await page.run("document.documentElement.scrollWidth") <= width, "a longer one wraps"
