"""The report of an analysis: one HTML file with nothing outside it, read from the top down as an operator would ask."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from detector.core.times import duration, write_time
from detector.spark.report.html import moment, page, section, table, unbroken
from detector.spark.report.plots import AMBER, BLUE, GREY, RED, bars, histogram, service_map, spans, time_bars

if TYPE_CHECKING:
    from pyspark.sql import Row

    from detector.spark.analyze import Analysis

ROWS_MAX = 15
EPISODES_MAX = 40
MAP_EDGES_MAX = 60
BAR_SHARE_MIN = 0.003


def write_report(analysis: Analysis, path: Path) -> None:
    """Write the report to ``path``."""
    path.write_text(page(f"Stilltrue: {analysis.location}", "".join(_sections(analysis))), encoding="utf-8")


def _sections(found: Analysis) -> Iterable[str]:
    yield _head(found)
    yield section(
        "Incidents over time",
        "A deadlock that was seen, from the beginning of its last wait until it was gone."
        + _part(EPISODES_MAX, len(found.incidents), "incidents", "the newest are listed"),
        _incidents(found),
    )
    if found.incidents:
        yield section("Deadlocked services", "In how many incidents each service had a process.", _deadlocked(found))
    yield section(
        "Time to detection",
        "From the beginning of the core's last wait to the end of the first snapshot that showed it.",
        _detection(found),
    )
    yield section(
        "Near misses",
        "Runs of snapshots in which one more wait would have closed a core: one party kept it open."
        + _part(EPISODES_MAX, len(found.near_misses), "near_misses", "the longest are shown"),
        _near_misses(found),
    )
    yield section(
        "Risk",
        "Circles of services that hold a worker while they wait for the next one's. The score is the chance that all their "
        "pools are full at once, taken as independent: it ranks, it is no forecast."
        + _part(ROWS_MAX, len(found.risks), "risks"),
        _risk(found),
    )
    yield section(
        "Wait-for map of services",
        "Who was seen holding a worker while waiting for whom, thicker the more often; red: between services of one incident."
        + _part(len(_map_edges(found)), len(found.holding), "holding"),
        _map(found),
    )
    yield section(
        "Pools",
        "The share of snapshots in which no worker was free; the fullest first." + _part(ROWS_MAX, len(found.pools), "pools"),
        _pools(found),
    )
    yield section(
        "Blocked time",
        "By service and method, over all snapshots: samples times the time between them."
        + _part(ROWS_MAX, len(found.blocked), "blocked"),
        _blocked(found),
    )
    if found.locks:
        yield section(
            "Locks",
            "Locks, semaphores and other resources, by how long they were waited for."
            + _part(ROWS_MAX, len(found.locks), "locks"),
            _locks(found),
        )
    yield section("Coverage", "What was looked at: silence is not health.", _coverage(found))


def _head(found: Analysis) -> str:
    seen = found.answers.get("deadlock", {})
    detection = [each.detection_seconds for each in found.incidents if each.detection_seconds is not None]
    tiles = [
        ("bad" if found.incidents else "", f"{len(found.incidents)}", "incidents"),
        (
            "warn" if found.near_misses else "",
            f"{len(found.near_misses)}",
            found.near_said,
        ),
        ("", duration(median(detection)) if detection else "-", "median time to detection"),
        ("", f"{found.snapshots:,}", "snapshots"),
        ("", f"{found.reports:,}", "reports"),
        ("warn" if seen.get("undetermined") else "", f"{seen.get('undetermined', 0):,}", "undetermined"),
        ("bad" if found.left_out or found.orphans else "", f"{len(found.left_out)}", "files left out"),
    ]
    shown = "".join(
        f'<div class="tile {kind}"><b>{escape(value)}</b><span>{escape(name)}</span></div>' for kind, value, name in tiles
    )
    days = f"{write_time(round(found.begun))} to {write_time(round(found.ended))}"
    between = f"{days}, a snapshot every {round(found.period_seconds, 2):g} s"
    return f'<h1>{escape(found.location)}</h1><p class="lead">{escape(between)}</p><div class="tiles">{shown}</div>'


def _part(shown: int, total: int, kept: str, which: str = "") -> str:
    """Said where not all is shown: how much is, and where the rest is."""
    if total <= shown:
        return ""
    return f" {shown} of {total:,} here{which and f' ({which})'}; all are in the table {kept}."


def _deadlocked(found: Analysis) -> str:
    times = Counter(service for each in found.incidents for service in each.services)
    rows = sorted(times.items(), key=lambda row: (-row[1], row[0]))
    shown = [(service, float(count), str(count)) for service, count in rows[:ROWS_MAX]]
    return bars(shown, ("service", "incidents"), RED)


def _incidents(found: Analysis) -> str:
    often = Counter(each.processes for each in found.incidents)
    places = {place for place, _ in often.most_common(EPISODES_MAX)}
    rows = []
    for each in found.incidents:
        if each.processes in places:
            until = each.closed or found.ended
            text = f"{each.id}: {', '.join(each.processes)}, {duration(until - each.opened)} after it was seen"
            rows.append((_who(each.processes), each.formed or each.opened, until, RED, text))
    listed = table(
        ["incident", "processes", "parties", "formed", "seen after", "lasted", "here"],
        [
            [
                f'<code class="t">{each.id}</code>',
                _names(each.processes),
                str(len(each.parties)),
                moment(each.formed or each.opened),
                "-" if each.detection_seconds is None else unbroken(duration(each.detection_seconds)),
                unbroken(duration((each.closed or found.ended) - (each.formed or each.opened)))
                + ("" if each.closed else ", still there"),
                unbroken(f"time {each.recurrence}" if each.recurrence > 1 else "first time"),
            ]
            for each in found.incidents[-EPISODES_MAX:]
        ],
        "No deadlock was seen.",
    )
    return spans(rows, min([found.begun, *(row[1] for row in rows)]), found.ended, "processes") + listed


def _detection(found: Analysis) -> str:
    seconds = [each.detection_seconds for each in found.incidents if each.detection_seconds is not None]
    return histogram(seconds, ("time to detection", "incidents"), "s") or '<p class="none">No incident, nothing to time.</p>'


def _near_misses(found: Analysis) -> str:
    rows = [
        (_who(row.processes), row["first"], row["last"] + found.period_seconds, AMBER, f"{row.snapshots} snapshots")
        for row in found.near_misses[:EPISODES_MAX]
    ]
    listed = table(
        ["processes", "snapshots", "from", "to", "kept open by"],
        [
            [
                _names(row.processes),
                str(row.snapshots),
                moment(row["first"]),
                moment(row["last"]),
                f"<code>{escape(row.saved_by)}</code>",
            ]
            for row in found.near_misses[:EPISODES_MAX]
        ],
        "Nothing came close.",
    )
    return spans(rows, found.begun, found.ended, "processes") + listed


def _risk(found: Analysis) -> str:
    shown = found.risks[:ROWS_MAX]
    seen = [each for each in shown if each.score >= BAR_SHARE_MIN * shown[0].score]
    chart = bars([(" > ".join(each.services), each.score, f"{each.score:.2g}") for each in seen], ("circle", "score"), AMBER)
    listed = table(
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
    return chart + listed


def _map(found: Analysis) -> str:
    edges = [(row.service, row.callee, float(row.samples)) for row in _map_edges(found)]
    return service_map(edges, _burnt(found))


def _map_edges(found: Analysis) -> Sequence[Row]:
    """Those within incidents, then the most frequent ones."""
    burnt = _burnt(found)
    within = {id(row) for row in found.holding if any({row.service, row.callee} <= services for services in burnt)}
    return sorted(found.holding, key=lambda row: (id(row) not in within, -row.samples))[:MAP_EDGES_MAX]


def _burnt(found: Analysis) -> Sequence[frozenset[str]]:
    """The services of each incident."""
    return [frozenset(services) for services in sorted({each.services for each in found.incidents})]


def _pools(found: Analysis) -> str:
    rows = [
        (
            f"{row.service} / {row.pool}",
            row.full_share or 0.0,
            f"{row.full_share or 0:.1%} full, {row.busy_mean:.1f} of {row['size']} busy, {row.queued_mean:.1f} queued",
        )
        for row in found.pools[:ROWS_MAX]
    ]
    return bars(rows, ("service / pool", "share of snapshots with no worker free"))


def _blocked(found: Analysis) -> str:
    return bars(
        [
            (f"{row.service} {row.method}", row.blocked_seconds, duration(row.blocked_seconds))
            for row in found.blocked[:ROWS_MAX]
        ],
        ("service, method", "time blocked"),
    )


def _locks(found: Analysis) -> str:
    rows = [(row.resource, row.waited_seconds, duration(row.waited_seconds)) for row in found.locks[:ROWS_MAX]]
    return bars(rows, ("resource", "time waited for"))


def _coverage(found: Analysis) -> str:
    layers = [
        ("complete", BLUE, [float(row.complete) for row in found.coverage]),
        ("incomplete", AMBER, [float(row.incomplete) for row in found.coverage]),
        ("rejected", RED, [float(row.rejected) for row in found.coverage]),
    ]
    answers = table(
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
    left = table(
        ["file left out", "why"], [[escape(path), escape(why)] for path, why in found.left_out], "Every file was read."
    )
    times = [float(row.hour) for row in found.coverage]
    chart = time_bars(times, layers, 3600.0, "snapshots an hour")
    quiet = bars(silent, ("process", "snapshots without its report"), GREY)
    return f"{chart}{answers}<p>{escape(' '.join(notes))}</p>{quiet}{left}"


def _names(processes: Sequence[str]) -> str:
    return ", ".join(map(unbroken, processes))


def _who(processes: Sequence[str]) -> str:
    """Short enough to stand beside a line of a chart; the table below names them all."""
    return " + ".join(processes) if len(processes) < 3 else f"{processes[0]} + {len(processes) - 1} more"
