"""An operator's ten questions, each answered within two clicks of the overview: the table in docs/detector.md."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stilltrue.protocol.requests.look import Look
from stilltrue.v1 import snapshot_pb2
from tests.service.browser import Page

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CLICKS_MAX = 2


class Operator:
    """An operator who begins at the overview, clicks, and reads."""

    def __init__(self, page: Page, url: str, width: int) -> None:
        self._page = page
        self._url = url
        self._width = width
        self.clicks = 0

    async def begins(self) -> None:
        self.clicks = 0
        await self._page.look_at(self._url, width=self._width)

    async def clicks_on(self, selector: str, text: str = "") -> None:
        """Click the first element of ``selector`` that says ``text`` and can be seen."""
        self.clicks += 1
        assert self.clicks <= CLICKS_MAX
        shown = f"one.checkVisibility() && one.textContent.includes({json.dumps(text)})"
        wanted = f"[...document.querySelectorAll({json.dumps(selector)})].find((one) => {shown})"
        await self._page.until(f"!!{wanted}")
        await self._page.run(f"{wanted}.click(); 0")

    async def reads(self, text: str) -> None:
        """It stands on the page, unfolded."""
        try:
            await self._page.until(f"document.querySelector('main')?.innerText.includes({json.dumps(text)})")
        except TimeoutError:
            shown = await self._page.run("document.querySelector('main')?.innerText")
            raise AssertionError(f"{text!r} is not to be read in {shown}") from None


async def answer(detector: Any, holds: int) -> Any:
    """The first answer that is so: on a busy machine one may be undetermined, as a member is late."""
    while (verdict := await detector.ask()).holds != holds:
        pass
    return verdict


@pytest.mark.longer
@pytest.mark.parametrize("width", [390, 1280])
async def test_ten_questions_are_answered_within_two_clicks_each(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path, page: Page, width: int
) -> None:
    a, b = process("orders-1", service="orders", labels={"version": "42"}), process("stock-1", service="stock")

    def seen(look: Look) -> Look:
        stack = ("shop/orders.py:42 in place",)
        return replace(look, parties=tuple(replace(one, stack=stack, trace=TRACE) for one in look.parties))

    a.see = b.see = seen
    stuck = deadlock(a, b)
    settings = {"allow_cure": True, "lease_seconds": 600.0, "trace_url": "https://jaeger.example/trace/{trace}"}
    async with start_detector(tmp_path, **settings) as detector:
        await detector.join(a, b)
        while not (found := await detector.incidents()):
            await detector.ask()
        before = found[0].id
        stuck.cure()
        while not (await detector.incidents())[0].HasField("closed"):
            await detector.ask()
        free = (await answer(detector, snapshot_pb2.HOLDS_FALSE)).snapshot.id
        again = deadlock(a, b)
        a.cures = b.cures = again.cure
        await a.kill()
        await b.kill()
        await detector.join(a, b)
        while len(found := await detector.incidents()) < 2:
            await detector.ask()
        now = next(one for one in found if one.id != before)
        (victim,) = (await answer(detector, snapshot_pb2.HOLDS_TRUE)).victims
        operator = Operator(page, f"{detector.web}/", width)

        await operator.begins()  # who is stuck, since when, what do I abort: no click
        await operator.reads("Deadlocked for")
        await operator.reads(f"2 services, {len(now.core)} parties; {len(now.behind)} more wait behind them")
        for party in again.core:
            await operator.reads(f"{party} has waited")
        await operator.reads(f"Aborting {victim} would free them all.")
        assert (await page.run("document.title")).startswith("Deadlocked: 2 services")

        await operator.clicks_on("summary", "is in the code")  # whose code, which trace
        await operator.reads("shop/orders.py:42 in place")
        link = f"https://jaeger.example/trace/{TRACE}"
        assert await page.run(f"document.querySelector('[id^=places] a[href={json.dumps(link)}]').checkVisibility()")

        await operator.begins()  # since when exactly, did it happen before, what waits behind
        await operator.clicks_on("h2 a", now.id)
        await operator.reads("the last wait of its core began")
        await operator.reads("second time within a week")
        await operator.reads(before)
        await operator.reads("version=42")  # which deploy is it
        for party in now.behind:
            await operator.reads(party)
        await operator.clicks_on("a.button", "Abort it")  # what happens if I abort it
        await operator.reads(f"Aborting 1 call frees {len(now.core) + len(now.behind) - 1} other parties")

        await operator.begins()  # is every member covered
        await operator.reads("2 of 2")
        await operator.clicks_on("nav a", "members")
        await operator.reads("2 live, 0 missing, 0 lost")

        await operator.begins()  # what changed between snapshots
        await operator.clicks_on("td[data-label=snapshot] a")
        await operator.reads("Since snapshot")
        await page.look_at(f"{detector.web}/snapshots/{now.first_snapshot}?since={free}", width=width)
        await operator.reads("deadlock: true, was false")
        await operator.reads(f"deadlocked since: {', '.join(sorted([*now.core, *now.behind]))}")

        again.cure()  # is it over
        await answer(detector, snapshot_pb2.HOLDS_FALSE)
        await operator.begins()
        await operator.reads("Nothing is stuck, as of")
        await operator.clicks_on("td[data-label=incident] a", now.id)
        await operator.reads("ended after")
        told = await page.run("[...document.querySelectorAll('ol.timeline time')].map((one) => one.dateTime)")
        assert told == sorted(told), "the timeline goes forward"
        assert page.complaints == []
        assert await page.run("document.documentElement.scrollWidth") <= width
