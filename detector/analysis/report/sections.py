"""The sections of the report, in the order in which an operator asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from types import MappingProxyType

from markupsafe import Markup

from detector.analysis.findings.incidents import PastIncident
from detector.analysis.findings.pictures import IncidentDrawing
from detector.analysis.report.html import Code, Folded, Picture, Section, Table, Tile, moment, page, paragraph
from detector.analysis.report.plots import AMBER, BLUE, GREY, RED, bars, histogram, service_map, spans, time_bars
from detector.analysis.report.trends import trends
from detector.analysis.result import Analysis
from detector.archive.rows.local_state_rows import Row
from detector.core.times import duration, write_time

ROWS_MAX = 15
EPISODES_MAX = 40
MAP_EDGES_MAX = 60
BAR_SHARE_MIN = 0.003
NO_PICTURES: Mapping[str, IncidentDrawing] = MappingProxyType({})


def report_page(analysis: Analysis, pictures: Mapping[str, IncidentDrawing] = NO_PICTURES) -> str:
    """Return the report as one self-contained HTML page; ``pictures`` by incident."""
    days = f"{write_time(round(analysis.begun))} to {write_time(round(analysis.ended))}"
    lead = f"{days}, a snapshot every {round(analysis.period_seconds, 2):g} s"
    return page(f"{analysis.location}", lead, _tiles(analysis), list(_sections(analysis, pictures)))


def _tiles(found: Analysis) -> list[Tile]:
    seen = found.answers.get("deadlock", {})
    detection = _detection_seconds(found)
    return [
        Tile("bad" if found.incidents else "", f"{len(found.incidents)}", "incidents"),
        Tile("warn" if found.near_misses else "", f"{len(found.near_misses)}", found.near_misses_text),
        Tile("", duration(median(detection)) if detection else "-", "median time to detection"),
        Tile("", f"{found.snapshots:,}", "snapshots"),
        Tile("", f"{found.reports:,}", "reports"),
        Tile("warn" if seen.get("undetermined") else "", f"{seen.get('undetermined', 0):,}", "undetermined"),
        Tile("bad" if found.left_out or found.orphans else "", f"{len(found.left_out)}", "files left out"),
    ]


def _sections(found: Analysis, pictures: Mapping[str, IncidentDrawing]) -> Iterable[Section]:
    yield Section(
        "Incidents over time",
        "Each deadlock, from the beginning of its last wait until it ended."
        + _part(EPISODES_MAX, len(found.incidents), "incidents", "the newest are listed"),
        [*_incidents(found), *_pictures(found, pictures)],
    )
    if found.incidents or found.near_misses:
        yield Section("Trends", "Incidents and near misses over time.", trends(found))
    if found.incidents:
        yield Section("Deadlocked services", "The number of incidents that involved each service.", [_deadlocked(found)])
    yield Section(
        "Time to detection",
        "From the beginning of the core's last wait to the end of the first snapshot that showed it.",
        [histogram(_detection_seconds(found), ("time to detection", "incidents"), "s") or _none("No incident.")],
    )
    yield Section(
        "Near misses",
        "Runs of snapshots in which one more wait would have caused a deadlock; one party kept it open."
        + _part(EPISODES_MAX, len(found.near_misses), "near_misses", "the longest are shown"),
        _near_misses(found),
    )
    yield Section(
        "Risk",
        "Cycles of services that each hold a worker while waiting for the next. The score is the probability that all their "
        "pools are full at once if they are independent; use it to rank, not to forecast."
        + _part(ROWS_MAX, len(found.risks), "risks"),
        _risk(found),
    )
    edges = _map_edges(found)
    yield Section(
        "Wait-for map of services",
        "Services that held a worker while waiting for another; wider if more often, red within an incident."
        + _part(len(edges), len(found.holding), "holding"),
        [service_map([(row["service"], row["callee"], float(row["samples"])) for row in edges], _incident_services(found))],
    )
    yield Section(
        "Pools",
        "The share of snapshots in which no worker was free; the fullest first." + _part(ROWS_MAX, len(found.pools), "pools"),
        [_pools(found)],
    )
    yield Section(
        "Blocked time",
        "By service and method: the number of snapshots with the wait, times the snapshot period."
        + _part(ROWS_MAX, len(found.blocked), "blocked"),
        [_blocked(found)],
    )
    if found.locks:
        yield Section(
            "Locks",
            "Locks, semaphores and other resources, by the time that parties waited for them."
            + _part(ROWS_MAX, len(found.locks), "locks"),
            [_locks(found)],
        )
    yield Section("Coverage", "What the snapshots covered. Silence is not health.", _coverage(found))


def _part(shown: int, total: int, table: str, which: str = "") -> str:
    """Return a note on how many rows are shown and where the rest is; empty if all are shown."""
    if total <= shown:
        return ""
    return f" {shown} of {total:,} here{which and f' ({which})'}; all are in the table {table}."


def _none(text: str) -> Markup:
    return paragraph(text, "none")


def _deadlocked(found: Analysis) -> Markup:
    times = Counter(service for each in found.incidents for service in each.services)
    rows = sorted(times.items(), key=lambda row: (-row[1], row[0]))
    return bars([(service, float(count), str(count)) for service, count in rows[:ROWS_MAX]], ("service", "incidents"), RED)


def _incidents(found: Analysis) -> list[Table | Markup]:
    often = Counter(each.processes for each in found.incidents)
    places = {place for place, _ in often.most_common(EPISODES_MAX)}
    rows = []
    for each in found.incidents:
        if each.processes in places:
            until = each.closed or found.ended
            text = f"{each.id}: {', '.join(each.processes)}, {duration(until - each.opened)} after it was seen"
            rows.append((_who(each.processes), each.formed or each.opened, until, RED, text))
    listed = Table(
        ["incident", "processes", "parties", "formed", "seen after", "lasted", "occurrence"],
        [
            [
                Code(each.id),
                each.processes,
                Folded(str(len(each.parties)), found.waits.get(each.id) or each.parties),
                moment(each.formed or each.opened),
                ["-" if each.detection_seconds is None else duration(each.detection_seconds)],
                _lasted(each, found.ended),
                [str(each.recurrence)],
            ]
            for each in found.incidents[-EPISODES_MAX:]
        ],
        "No deadlock was seen.",
    )
    return [spans(rows, min([found.begun, *(row[1] for row in rows)]), found.ended, "processes"), listed]


def _pictures(found: Analysis, pictures: Mapping[str, IncidentDrawing]) -> Iterable[Picture]:
    """Yield the pictures, the newest first; only that one is expanded."""
    known = [each for each in reversed(found.incidents) if each.id in pictures]
    for each in known:
        title = f"Who waited for whom: {each.id}, {', '.join(each.processes)}, in snapshot {each.last_snapshot}"
        yield Picture(title, pictures[each.id].svg, shown=each is known[0])


def _lasted(incident: PastIncident, end: float) -> list[str]:
    lasted = duration((incident.closed or end) - (incident.formed or incident.opened))
    return [lasted] if incident.closed else [lasted, "still there"]


def _detection_seconds(found: Analysis) -> list[float]:
    return [each.detection_seconds for each in found.incidents if each.detection_seconds is not None]


def _near_misses(found: Analysis) -> list[Table | Markup]:
    shown = found.near_misses[:EPISODES_MAX]
    rows = [
        (_who(row["processes"]), row["first"], row["last"] + found.period_seconds, AMBER, f"{row['snapshots']} snapshots")
        for row in shown
    ]
    listed = Table(
        ["processes", "snapshots", "from", "to", "kept open by"],
        [
            [row["processes"], str(row["snapshots"]), moment(row["first"]), moment(row["last"]), Code(row["saved_by"])]
            for row in shown
        ],
        "Nothing came close.",
    )
    return [spans(rows, found.begun, found.ended, "processes"), listed]


def _risk(found: Analysis) -> list[Table | Markup]:
    shown = found.risks[:ROWS_MAX]
    seen = [each for each in shown if each.score >= BAR_SHARE_MIN * shown[0].score]
    chart = bars([(" > ".join(each.services), each.score, f"{each.score:.2g}") for each in seen], ("cycle", "score"), AMBER)
    listed = Table(
        ["cycle", "score", "full, each", "samples", "what to change"],
        [
            [
                " > ".join((*each.services, each.services[0])),
                f"{each.score:.2g}",
                ", ".join(f"{share:.1%}" for share in each.full),
                str(each.samples),
                each.change,
            ]
            for each in shown
        ],
        "No cycle of bounded pools was seen.",
    )
    return [chart, listed]


def _map_edges(found: Analysis) -> Sequence[Row]:
    """Return the edges to draw: those within incidents first, then the most frequent ones."""
    deadlocked = _incident_services(found)

    def within(row: Row) -> bool:
        return any({row["service"], row["callee"]} <= services for services in deadlocked)

    return sorted(found.holding, key=lambda row: (not within(row), -row["samples"]))[:MAP_EDGES_MAX]


def _incident_services(found: Analysis) -> Sequence[frozenset[str]]:
    """Return the services of each incident."""
    return [frozenset(services) for services in sorted({each.services for each in found.incidents})]


def _pools(found: Analysis) -> Markup:
    rows = [
        (
            f"{row['service']} / {row['pool']}",
            row["full_share"] or 0.0,
            f"{row['full_share'] or 0:.1%} full, {row['busy_mean']:.1f} of {row['size']} busy, {row['queued_mean']:.1f} queued",
        )
        for row in found.pools[:ROWS_MAX]
    ]
    return bars(rows, ("service / pool", "share of snapshots with no worker free"))


def _blocked(found: Analysis) -> Markup:
    rows = [
        (f"{row['service']} {row['method']}", row["blocked_seconds"], duration(row["blocked_seconds"]))
        for row in found.blocked[:ROWS_MAX]
    ]
    return bars(rows, ("service, method", "time blocked"))


def _locks(found: Analysis) -> Markup:
    rows = [(row["resource"], row["waited_seconds"], duration(row["waited_seconds"])) for row in found.locks[:ROWS_MAX]]
    return bars(rows, ("resource", "time waited for"))


def _coverage(found: Analysis) -> list[Table | Markup]:
    outcomes = (("complete", BLUE), ("incomplete", AMBER), ("rejected", RED))
    layers = [(name, colour, [float(row[name]) for row in found.coverage]) for name, colour in outcomes]
    answers = Table(
        ["predicate", "true", "false", "undetermined"],
        [
            [name, *(str(counts.get(word, 0)) for word in ("true", "false", "undetermined"))]
            for name, counts in sorted(found.answers.items())
        ],
        "Nothing was evaluated.",
    )
    silent = [
        (row["process"], float(row["snapshots"]), f"silent in {row['snapshots']} snapshot{'s' * (row['snapshots'] > 1)}")
        for row in found.silent[:8]
    ]
    left = Table(["file left out", "why"], found.left_out, "Every file was read.")
    chart = time_bars([float(row["hour"]) for row in found.coverage], layers, 3600.0, "snapshots an hour")
    quiet = bars(silent, ("process", "snapshots without its report"), GREY)
    return [chart, answers, paragraph(" ".join(_notes(found))), quiet, left]


def _notes(found: Analysis) -> Iterable[str]:
    for lost in found.lost():
        yield f"{lost[0].upper()}{lost[1:]}."
    yield f"{found.orphans} orphan messages (a bug)." if found.orphans else "No orphan on any channel."
    if found.skewed:
        row = found.skewed[0]
        worst = max(row["ahead_seconds"], row["behind_seconds"])
        yield f"{len(found.skewed)} processes cut outside their snapshot by their own clock, {row['process']} by {worst:.3g} s."


def _who(processes: Sequence[str]) -> str:
    """Return a label short enough for a chart; the table below it names all processes."""
    return " + ".join(processes) if len(processes) < 3 else f"{processes[0]} + {len(processes) - 1} more"
