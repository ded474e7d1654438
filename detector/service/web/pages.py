"""The pages that people look at: what stands, who is there, what was seen. No script, nothing from elsewhere."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from detector.core.times import duration, write_time
from detector.drawing.draw import Format
from detector.service.detection.driver import Driver
from detector.service.detection.incidents import Incident
from detector.service.detection.members import Member
from detector.service.storage.snapshot_store import SnapshotStore
from detector.service.web.picture import picture_of
from stilltrue.model import Holds, Verdict
from stilltrue.protocol.wire import verdict_from_wire
from stilltrue.v1 import detector_pb2 as pb
from stilltrue.v1 import snapshot_pb2

_SHOWN_MAX = 20
_MEMBERS_MAX = 200
_NAMES_MAX = 8
_WORDS = {Holds.TRUE: "true", Holds.FALSE: "not", Holds.UNDETERMINED: "undetermined"}
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem;color:#222;background:#fff}
table{border-collapse:collapse;width:100%;margin:.5rem 0 1.5rem}td,th{text-align:left;padding:.25rem .75rem .25rem 0;
vertical-align:top;border-bottom:1px solid #ddd;overflow-wrap:break-word}h1{font-size:1.4rem}
h2{font-size:1.1rem;margin-top:2rem}
.true,.open{color:#b00020;font-weight:600}.not,.live,.complete{color:#1b6e3c}.undetermined,.missing,.lost,.incomplete{color:#8a5a00}
.rejected{color:#b00020}.quiet{color:#666}a{color:#1a4f8b}svg{max-width:100%;height:auto}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#16181b}td,th{border-color:#333}a{color:#8ab4f8}
.true,.open,.rejected{color:#ff8a80}.not,.live,.complete{color:#81c995}.undetermined,.missing,.lost,.incomplete{color:#fdd663}
svg{background:#fff}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One answer to a browser."""

    body: str
    content_type: str = "text/html; charset=utf-8"


class Pages:
    """Makes the pages; on the event loop."""

    def __init__(self, *, driver: Driver, snapshot_store: SnapshotStore) -> None:
        """What is shown."""
        self._driver = driver
        self._snapshot_store = snapshot_store

    async def page(self, path: str) -> Page | None:
        """The page at ``path``; None when there is none."""
        match path.strip("/").split("/"):
            case [""]:
                return await self._overview()
            case ["incidents"]:
                return _html("Incidents", _incident_table(await self._incidents(1000), self._driver))
            case ["incidents", name]:
                return await self._incident(name)
            case ["snapshots", name]:
                return await self._snapshot(name)
            case _:
                return None

    async def _overview(self) -> Page:
        members = self._driver.roster.all()
        snapshots = await self._snapshot_store.summaries(_SHOWN_MAX)
        parts = [
            "<h2>Verdicts</h2>",
            _table(("predicate", "scope", "answer", "evidence", "snapshot"), map(_verdict_row, self._driver.current.all())),
            "<h2>Incidents</h2>",
            _incident_table(await self._incidents(_SHOWN_MAX), self._driver),
            f"<h2>Members ({len(members)})</h2>",
            _table(
                ("process", "service", "state", "connected", "heard", "labels"), map(self._member_row, members[:_MEMBERS_MAX])
            ),
            f"<p class=quiet>and {len(members) - _MEMBERS_MAX} more</p>" if len(members) > _MEMBERS_MAX else "",
            "<h2>Newest snapshots</h2>",
            _table(("snapshot", "began", "took", "members", "outcome", "begun by", "missing"), map(_summary_row, snapshots)),
            '<p><a href="/metrics">metrics</a> · <a href="/incidents">all incidents</a></p>',
        ]
        return _html("Stilltrue", "".join(parts), refresh_seconds=5)

    async def _incidents(self, limit: int) -> list[Incident]:
        return await self._snapshot_store.incidents(limit, self._driver.incidents.open_ones(), open_only=False)

    async def _incident(self, name: str) -> Page | None:
        found = [incident for incident in await self._incidents(100_000) if incident.id == name]
        if not found:
            return None
        incident = found[0]
        rows = [
            ("predicate", escape(incident.predicate)),
            ("state", _state(incident, self._driver.lost_of(incident))),
            ("formed", _moment(incident.formed)),
            ("first seen", f"{_moment(incident.opened)} in {_snapshot_link(incident.first_snapshot)}{_after(incident)}"),
            ("last seen", f"{_moment(incident.seen)} in {_snapshot_link(incident.last_snapshot)}"),
            ("core", escape(", ".join(incident.core))),
            ("behind it", escape(", ".join(incident.behind)) or "-"),
            ("evidence", escape(incident.text)),
        ]
        waits = "".join(f"<li>{escape(wait)}</li>" for wait in incident.waits)
        answer = await self._snapshot_store.snapshot(incident.first_snapshot)
        picture = await _picture(answer, incident.predicate) if answer else "<p class=quiet>its first snapshot is not kept</p>"
        return _html(f"Incident {name}", f"{_pairs(rows)}<ul>{waits}</ul>{picture}")

    async def _snapshot(self, name: str) -> Page | None:
        number, _, kind = name.partition(".")
        if not (number.isascii() and number.isdigit() and len(number) < 19) or kind not in {"", "json", "svg"}:
            return None
        answer = await self._snapshot_store.snapshot(int(number))
        if answer is None:
            return None
        if kind == "json":
            return Page(body=answer.document_json + "\n", content_type="application/json")
        if kind == "svg":
            return Page(body=await asyncio.to_thread(picture_of, answer, Format.SVG), content_type="image/svg+xml")
        summary = answer.summary
        rows = [
            ("outcome", f"<span class={escape(summary.outcome)}>{escape(summary.outcome)}</span>"),
            ("began", f"{_moment(summary.ref.begun)}, for {escape(summary.begun_by)}"),
            ("took", _took(summary.ref)),
            ("members", str(summary.ref.members)),
            ("missing", escape(", ".join(summary.missing)) or "-"),
            ("document", f'<a href="/snapshots/{summary.ref.id}.json">JSON</a>'),
        ]
        verdicts = _table(
            ("predicate", "scope", "answer", "evidence", "snapshot"),
            (_verdict_row(verdict_from_wire(verdict)) for verdict in answer.verdicts),
        )
        return _html(f"Snapshot {summary.ref.id}", _pairs(rows) + verdicts + await _picture(answer, ""))

    def _member_row(self, member: Member) -> tuple[str, ...]:
        now = time.time()
        state = self._driver.state_of(member).value
        return (
            escape(member.name),
            escape(member.process.service),
            f"<span class={state}>{state}</span>",
            f"{duration(max(0.0, now - member.connected_at))} ago",
            f"{duration(max(0.0, now - member.heard_at))} ago",
            escape(" ".join(f"{name}={value}" for name, value in sorted(member.labels.items()))) or "-",
        )


def _verdict_row(verdict: Verdict) -> tuple[str, ...]:
    ref = verdict.snapshot
    word = _WORDS[verdict.holds]
    answer = f"not as of {_moment(ref.begun)}" if verdict.holds is Holds.FALSE else word
    return (
        escape(verdict.predicate),
        escape(ref.scope),
        f"<span class={word}>{answer}</span>",
        escape(verdict.witness.text),
        _snapshot_link(ref.id) if ref.id is not None else "-",
    )


def _summary_row(summary: pb.SnapshotSummary) -> tuple[str, ...]:
    ref = summary.ref
    return (
        _snapshot_link(ref.id) if summary.kept else str(ref.id),
        _moment(ref.begun),
        _took(ref),
        str(ref.members),
        f"<span class={escape(summary.outcome)}>{escape(summary.outcome)}</span>",
        escape(summary.begun_by),
        escape(_few(summary.missing)) or "-",
    )


def _incident_table(incidents: Sequence[Incident], driver: Driver) -> str:
    if not incidents:
        return "<p class=quiet>none was seen</p>"
    rows = (
        (
            f'<a href="/incidents/{escape(incident.id)}">{escape(incident.id)}</a>',
            escape(incident.predicate),
            _state(incident, driver.lost_of(incident)),
            _moment(incident.opened),
            escape(_few(incident.core)),
            escape(_few(incident.behind)) or "-",
        )
        for incident in incidents
    )
    return _table(("incident", "predicate", "state", "first seen", "core", "behind it"), rows)


def _state(incident: Incident, lost: Sequence[str]) -> str:
    if incident.closed is None:
        unconfirmed = f", last confirmed {_moment(incident.seen)}; lost: {escape(_few(lost))}" if lost else ""
        return f"<span class=open>open</span>{unconfirmed}"
    return f"ended {_moment(incident.closed)}: {escape(incident.ending)}"


def _after(incident: Incident) -> str:
    seconds = incident.detection_seconds()
    return "" if seconds is None else f", {duration(seconds)} after it formed"


async def _picture(answer: pb.GetSnapshotResponse, predicate: str) -> str:
    svg = await asyncio.to_thread(picture_of, answer, Format.SVG, predicate)
    return f'<h2>Who waits for whom</h2>{svg}<p><a href="/snapshots/{answer.summary.ref.id}.svg">the picture alone</a></p>'


def _snapshot_link(id: int) -> str:
    return f'<a href="/snapshots/{id}">{id}</a>'


def _moment(seconds: float | None) -> str:
    """A time in UTC, to the second."""
    if seconds is None:
        return "-"
    text = write_time(float(int(seconds)))
    return f"<time datetime={text}>{text[11:19]}</time>" if time.time() - seconds < 43200 else f"<time>{text}</time>"


def _took(ref: snapshot_pb2.SnapshotRef) -> str:
    return f"{(ref.ended - ref.begun) * 1000:.0f} ms"


def _few(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_MAX
    return ", ".join(names[:_NAMES_MAX]) + (f" and {more} more" if more > 0 else "")


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{column}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>" if body else "<p class=quiet>none yet</p>"


def _pairs(rows: Iterable[tuple[str, str]]) -> str:
    return "<table>" + "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in rows) + "</table>"


def _html(title: str, body: str, refresh_seconds: int = 0) -> Page:
    refresh = f'<meta http-equiv="refresh" content="{refresh_seconds}">' if refresh_seconds else ""
    home = "" if title == "Stilltrue" else '<p><a href="/">overview</a></p>'
    return Page(
        body=f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>{refresh}'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body>{home}<h1>{escape(title)}</h1>{body}</body></html>\n"
    )
