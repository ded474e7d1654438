"""The web pages: current verdicts, members, snapshots and incidents. No scripts, no external resources."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from detector.core.times import duration, write_time
from detector.drawing.draw import Format
from detector.ops.http import Answer
from detector.service.detection.driver import Driver
from detector.service.detection.incidents import Incident
from detector.service.detection.members import Member
from detector.service.storage.snapshot_store import SnapshotStore
from detector.service.web.picture import picture_of
from stilltrue.protocol.wire.verdict import verdict_from_wire

_HTML = "text/html; charset=utf-8"
_SHOWN_MAX = 20
_LISTED_MAX = 1000
_ANSWERS = {"true": "true", "false": "not", "undetermined": "undetermined"}


class Pages:
    """Makes the pages; on the event loop, but for what takes long."""

    def __init__(self, *, driver: Driver, snapshot_store: SnapshotStore) -> None:
        """The sources of what is shown."""
        self._driver = driver
        self._snapshot_store = snapshot_store
        self._templates = Environment(
            loader=PackageLoader("detector.service.web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
        )
        self._templates.globals.update(
            answers=_ANSWERS,
            moment=_moment,
            duration=duration,
            ago=_ago,
            labels=_labels,
            blind=Member.blind_spots,
            lost_of=driver.lost_of,
            state_of=lambda member: driver.state_of(member).value,
        )

    async def page(self, path: str) -> Answer | None:
        """The page at ``path``; None when there is none."""
        match path.strip("/").split("/"):
            case [""]:
                return await self._overview()
            case ["incidents"]:
                return self._html("incidents", "Incidents", incidents=await self._incidents(_LISTED_MAX))
            case ["incidents", name]:
                return await self._incident(name)
            case ["snapshots", name]:
                return await self._snapshot(name)
            case _:
                return None

    async def _overview(self) -> Answer:
        return self._html(
            "overview",
            "Stilltrue",
            home=True,
            refresh_seconds=5,
            verdicts=self._driver.current.all(),
            incidents=await self._incidents(_SHOWN_MAX),
            members=self._driver.roster.all(),
            summaries=await self._snapshot_store.summaries(_SHOWN_MAX),
        )

    async def _incidents(self, limit: int) -> list[Incident]:
        return await self._snapshot_store.incidents(limit, self._driver.incidents.open_ones(), open_only=False)

    async def _incident(self, name: str) -> Answer | None:
        incident = next((each for each in await self._incidents(100_000) if each.id == name), None)
        if incident is None:
            return None
        answer = await self._snapshot_store.snapshot(incident.first_snapshot)
        picture = await asyncio.to_thread(picture_of, answer, Format.SVG, incident.predicate) if answer else ""
        return self._html("incident", f"Incident {name}", incident=incident, picture=picture, pictured=incident.first_snapshot)

    async def _snapshot(self, name: str) -> Answer | None:
        number, _, kind = name.partition(".")
        if not (number.isascii() and number.isdigit() and len(number) < 19) or kind not in {"", "json", "svg"}:
            return None
        answer = await self._snapshot_store.snapshot(int(number))
        if answer is None:
            return None
        if kind == "json":
            return Answer(body=answer.document_json + "\n", content_type="application/json")
        picture = await asyncio.to_thread(picture_of, answer, Format.SVG)
        if kind == "svg":
            return Answer(body=picture, content_type="image/svg+xml")
        return self._html(
            "snapshot",
            f"Snapshot {number}",
            summary=answer.summary,
            verdicts=[verdict_from_wire(verdict) for verdict in answer.verdicts],
            picture=picture,
            pictured=answer.summary.ref.id,
        )

    def _html(self, template: str, title: str, *, home: bool = False, refresh_seconds: int = 0, **values: Any) -> Answer:
        page = self._templates.get_template(f"{template}.html.jinja")
        return Answer(
            body=page.render(title=title, home=home, refresh_seconds=refresh_seconds, **values) + "\n", content_type=_HTML
        )


def _moment(seconds: float | None) -> Markup | str:
    """A time in UTC, to the second."""
    if seconds is None:
        return "-"
    text = write_time(float(int(seconds)))
    shown = text[11:19] if time.time() - seconds < 43200 else text
    return Markup("<time datetime={}>{}</time>").format(text, shown)


def _ago(seconds: float) -> str:
    return f"{duration(max(0.0, time.time() - seconds))} ago"


def _labels(member: Member) -> list[str]:
    return [f"{name}={value}" for name, value in sorted(member.labels.items())]
