"""The report of an analysis: one HTML file with nothing outside it, read from the top down as an operator would ask."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from detector.core.times import write_time
from detector.predicates.explain import duration
from detector.spark.svg import AMBER, BLUE, GREY, RED, bars, histogram, service_map, spans, time_bars

if TYPE_CHECKING:
    from detector.spark.analyze import Analysis

ROWS_MAX = 15
EPISODES_MAX = 40
MAP_EDGES_MAX = 60
BAR_SHARE_MIN = 0.003
STYLE = """
:root{color-scheme:light}body{font:15px/1.5 system-ui,sans-serif;color:#1d2733;background:#f6f8fa;margin:0}
main{max-width:980px;margin:0 auto;padding:32px 24px 64px}h1{font-size:26px;margin:0 0 4px}h2{font-size:18px;margin:0 0 4px}
section{background:#fff;border:1px solid #e4e9ee;border-radius:8px;padding:18px 22px;margin:18px 0}
p{margin:4px 0 10px;max-width:75ch}.lead{color:#516070}.none{color:#8a97a5;font-style:italic}
.tiles{display:flex;flex-wrap:wrap;gap:12px;margin:18px 0 0}.tile{flex:1 1 88px;background:#fff;border:1px solid #e4e9ee;
border-radius:8px;padding:10px 14px}.tile b{display:block;font-size:20px;white-space:nowrap}
.tile span{color:#516070}.bad b{color:#c62839}
.warn b{color:#d98a00}table{border-collapse:collapse;width:100%;font-size:13px}th{text-align:left;color:#516070;font-weight:600}
th,td{padding:4px 10px 4px 0;border-bottom:1px solid #e4e9ee;vertical-align:top}td.n,th.n{text-align:right}code{font-size:12px}
.t{white-space:nowrap}
"""


def write_report(analysis: Analysis, path: Path) -> None:
    """Write the report to ``path``."""
    title = f"Stilltrue: {analysis.location}"
    body = "".join(_sections(analysis))
    path.write_text(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>{body}</main></body></html>\n"
    )


def _sections(found: Analysis) -> Iterable[str]:
    yield _head(found)
    yield _section(
        "Incidents over time",
        "A deadlock that was seen, from the beginning of its last wait until it was gone.",
        _incidents(found),
    )
    yield _section(
        "Time to detection",
        "From the beginning of the core's last wait to the end of the first snapshot that showed it.",
        _detection(found),
    )
    yield _section(
        "Near misses",
        "Runs of snapshots in which one more wait would have closed a core: one party kept it open.",
        _near_misses(found),
    )
    yield _section(
        "Risk",
        "Circles of services that hold a worker while they wait for the next one's. The score is the chance that all their "
        "pools are full at once, taken as independent: it ranks, it is no forecast.",
        _risk(found),
    )
    yield _section(
        "Wait-for map of services",
        "Who was seen holding a worker while waiting for whom; red: within an incident.",
        _map(found),
    )
    yield _section("Pools", "The share of snapshots in which no worker was free.", _pools(found))
    yield _section(
        "Blocked time", "By service and method, over all snapshots: samples times the time between them.", _blocked(found)
    )
    if found.locks:
        yield _section("Locks", "Fleet-wide resources, by how long they were waited for.", _locks(found))
    yield _section("Coverage", "What was looked at: silence is not health.", _coverage(found))


def _head(found: Analysis) -> str:
    seen = found.answers.get("deadlock", {})
    detection = [each.detection_seconds for each in found.incidents if each.detection_seconds is not None]
    tiles = [
        ("bad" if found.incidents else "", f"{len(found.incidents)}", "incidents"),
        ("warn" if found.near_misses else "", f"{len(found.near_misses)}", f"near misses in {found.near_places} places"),
        ("", duration(median(detection)) if detection else "-", "median time to detection"),
        ("", f"{found.snapshots:,}", "snapshots"),
        ("", f"{found.reports:,}", "reports"),
        ("warn" if seen.get("undetermined") else "", f"{seen.get('undetermined', 0):,}", "undetermined"),
        ("bad" if found.left_out or found.orphans else "", f"{len(found.left_out)}", "files left out"),
    ]
    shown = "".join(
        f'<div class="tile {kind}"><b>{escape(value)}</b><span>{escape(name)}</span></div>' for kind, value, name in tiles
    )
    between = (
        f"{write_time(round(found.begun))} to {write_time(round(found.ended))}, a snapshot every {found.period_seconds:g} s"
    )
    return f'<h1>{escape(found.location)}</h1><p class="lead">{escape(between)}</p><div class="tiles">{shown}</div>'


def _section(title: str, lead: str, body: str) -> str:
    return f'<section><h2>{escape(title)}</h2><p class="lead">{escape(lead)}</p>{body}</section>'


def _incidents(found: Analysis) -> str:
    rows = []
    for each in found.incidents[:EPISODES_MAX]:
        until = each.closed or found.ended
        text = f"{each.id}: {', '.join(each.processes)}, {duration(until - each.opened)} after it was seen"
        rows.append((_who(each.processes), each.formed or each.opened, until, RED, text))
    table = _table(
        ["incident", "processes", "parties", "formed", "seen after", "lasted", "here"],
        [
            [
                f'<code class="t">{each.id}</code>',
                escape(", ".join(each.processes)),
                str(len(each.parties)),
                _time(each.formed or each.opened),
                "-" if each.detection_seconds is None else _whole(duration(each.detection_seconds)),
                _whole(duration((each.closed or found.ended) - (each.formed or each.opened)))
                + ("" if each.closed else ", still there"),
                _whole(f"time {each.recurrence}" if each.recurrence > 1 else "first time"),
            ]
            for each in found.incidents[:EPISODES_MAX]
        ],
        "No deadlock was seen.",
    )
    return spans(rows, found.begun, found.ended) + table


def _detection(found: Analysis) -> str:
    return histogram([each.detection_seconds for each in found.incidents if each.detection_seconds is not None], "s")


def _near_misses(found: Analysis) -> str:
    rows = [
        (_who(row.processes), row["first"], row["last"] + found.period_seconds, AMBER, f"{row.snapshots} snapshots")
        for row in found.near_misses[:EPISODES_MAX]
    ]
    table = _table(
        ["processes", "snapshots", "from", "to", "kept open by"],
        [
            [
                escape(", ".join(row.processes)),
                str(row.snapshots),
                _time(row["first"]),
                _time(row["last"]),
                f"<code>{escape(row.saved_by)}</code>",
            ]
            for row in found.near_misses[:EPISODES_MAX]
        ],
        "Nothing came close.",
    )
    return spans(rows, found.begun, found.ended) + table


def _risk(found: Analysis) -> str:
    shown = found.risks[:ROWS_MAX]
    seen = [each for each in shown if each.score >= BAR_SHARE_MIN * shown[0].score]
    chart = bars([(" > ".join(each.services), each.score, f"{each.score:.2g}") for each in seen], AMBER)
    table = _table(
        ["circle", "score", "full, each", "samples"],
        [
            [
                escape(" > ".join((*each.services, each.services[0]))),
                f"{each.score:.2g}",
                escape(", ".join(f"{share:.1%}" for share in each.full)),
                str(each.samples),
            ]
            for each in shown
        ],
        "No circle of bounded pools was seen.",
    )
    return chart + table


def _map(found: Analysis) -> str:
    services = {row.service: row for row in found.pools}
    hot = {
        name for each in found.incidents for process in each.processes for name in services if process.startswith(f"{name}-")
    }
    hot |= {process for each in found.incidents for process in each.processes if process in services}
    edges = sorted(found.holding, key=lambda row: (not (row.service in hot and row.callee in hot), -row.samples))[
        :MAP_EDGES_MAX
    ]
    return service_map([(row.service, row.callee, float(row.samples)) for row in edges], frozenset(hot))


def _pools(found: Analysis) -> str:
    rows = [
        (
            f"{row.service} / {row.pool}",
            row.full_share or 0.0,
            f"{row.full_share or 0:.1%} full, {row.busy_mean:.1f} of {row['size']} busy, {row.queued_mean:.1f} queued",
        )
        for row in found.pools[:ROWS_MAX]
    ]
    return bars(rows, BLUE)


def _blocked(found: Analysis) -> str:
    return bars(
        [
            (f"{row.service} {row.method}", row.blocked_seconds, duration(row.blocked_seconds))
            for row in found.blocked[:ROWS_MAX]
        ]
    )


def _locks(found: Analysis) -> str:
    return bars([(row.resource, row.waited_seconds, duration(row.waited_seconds)) for row in found.locks[:ROWS_MAX]])


def _coverage(found: Analysis) -> str:
    layers = [
        ("complete", BLUE, [float(row.complete) for row in found.coverage]),
        ("incomplete", AMBER, [float(row.incomplete) for row in found.coverage]),
        ("rejected", RED, [float(row.rejected) for row in found.coverage]),
    ]
    answers = _table(
        ["predicate", "true", "false", "undetermined"],
        [
            [escape(name), *(str(told.get(word, 0)) for word in ("true", "false", "undetermined"))]
            for name, told in sorted(found.answers.items())
        ],
        "Nothing was evaluated.",
    )
    silent = [
        (row.process, float(row.snapshots), f"silent in {row.snapshots} snapshot{'s' * (row.snapshots > 1)}")
        for row in found.silent[:8]
    ]
    notes = [f"{found.orphans} orphans (a call seen that had not been sent)." if found.orphans else "No orphan on any channel."]
    if found.skewed:
        row = found.skewed[0]
        worst = max(row.ahead_seconds, row.behind_seconds)
        notes.append(
            f"{len(found.skewed)} processes cut outside their snapshot by their own clock, {row.process} by {worst:.3g} s."
        )
    left = _table(
        ["file left out", "why"], [[escape(path), escape(why)] for path, why in found.left_out], "Every file was read."
    )
    times = [float(row.hour) for row in found.coverage]
    chart = time_bars(times, layers, 3600.0)
    return f"{chart}{answers}<p>{escape(' '.join(notes))}</p>{bars(silent, GREY) if silent else ''}{left}"


def _who(processes: Sequence[str]) -> str:
    """Short enough to stand beside a line of a chart; the table below names them all."""
    return " + ".join(processes) if len(processes) < 3 else f"{processes[0]} + {len(processes) - 1} more"


def _time(seconds: float) -> str:
    return _whole(write_time(round(seconds))[:16].replace("T", " "))


def _whole(text: str) -> str:
    """On one line."""
    return f'<span class="t">{escape(text)}</span>'


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], none: str) -> str:
    """``rows`` are HTML already."""
    if not rows:
        return f'<p class="none">{escape(none)}</p>'
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
