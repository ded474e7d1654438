"""The report in a real browser: sorted by a click, no wider than a phone, and without complaints from axe."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from detector.analysis.findings.pictures import IncidentDrawing
from detector.analysis.findings.risk import Risk
from detector.analysis.report.sections import report_page
from detector.core.document.reader import read_document
from detector.drawing.draw import Format, draw
from detector.predicates.deadlock import Deadlock
from tests.analysis.test_report import _analysis, _incident
from tests.service.browser import PROGRAM, browsing
from tests.service.web.test_accessibility import AXE, RUN

FIRST = "document.querySelector('tbody td[data-label=incident]').textContent"

PICTURES = "[...document.querySelectorAll('.picture img')].map((one) => one.checkVisibility() && one.naturalWidth > 100)"


def click(head: str) -> str:
    return f"[...document.querySelectorAll('th button')].find((one) => one.textContent === {head!r}).click()"


@pytest.mark.longer
async def test_sorted_by_a_click_narrow_dark_and_without_findings(tmp_path: Path) -> None:
    if PROGRAM is None or not AXE:
        assert os.environ.get("CI") != "true", "chromium or axe-core is not here"
        pytest.skip("chromium or axe-core is not here")
    holding = (
        {"service": "a", "callee": "b", "samples": 9},
        {"service": "b", "callee": "a-service-with-a-long-name", "samples": 1},
    )
    incidents = tuple(_incident(number, ("a", "b", "c")[: 2 + number % 2]) for number in range(1, 12))
    file = tmp_path / "report.html"
    risks = (Risk(services=("a", "b"), score=0.2, full=(0.4, 0.5), samples=3, change="let a hold no worker while it calls b"),)
    analysis = _analysis(incidents, holding=holding, left_out=(("a/very/long/path" * 9, "torn"),), risks=risks)
    waits = read_document(
        {"id": 7, "waits": [{"waiter": "a-0/x", "among": ["b-0/x"]}, {"waiter": "b-0/x", "among": ["a-0/x"]}]}
    )
    picture = draw(waits, Deadlock().evaluate(waits), Format.SVG)
    file.write_text(report_page(analysis, {each.id: IncidentDrawing(svg=picture, waits=()) for each in incidents[-3:]}))
    async with browsing() as page:
        for width in (390, 1280):
            for dark in (False, True):
                await page.look_at(f"file://{file}", width=width, dark=dark)
                assert await page.run("document.documentElement.scrollWidth") <= width
                assert await page.run(PICTURES) == [True, False, False], "one picture is open, and it is drawn"
                await page.run(f"{AXE[-1].read_text()}; 0")
                assert await page.run(RUN) == []
                if folder := os.environ.get("STILLTRUE_PICTURES"):
                    await page.picture(Path(folder) / f"report-{width}-{'dark' if dark else 'light'}.png")
        assert await page.run(FIRST) == "i-001"
        await page.run(click("incident"))
        assert await page.run(FIRST) == "i-001"
        await page.run(click("incident"))
        assert await page.run(FIRST) == "i-011"
        await page.run(click("parties"))
        assert await page.run(FIRST) != "i-011"
        assert page.complaints == []
