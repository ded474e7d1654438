"""The report matches the tables: the arcs of incidents, the labels of axes, and what it omits."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from detector.analysis.findings.incidents import PastIncident
from detector.analysis.findings.recorded_waits import recorded_waits
from detector.analysis.report.plots import histogram, service_map, spans, ticks
from detector.analysis.report.sections import EPISODES_MAX, report_page
from detector.analysis.result import Analysis
from detector.archive.rows.local_state_rows import Row
from detector.archive.units import open_archive
from detector.service.storage.archive_sink import FOLDER
from stilltrue.v1 import detector_pb2 as pb
from tests.service.conftest import Deadlock, FakeProcess, detecting

BEGUN = 1_790_000_000.0


def _incident(number: int, services: tuple[str, ...]) -> PastIncident:
    at = BEGUN + 60.0 * number
    return PastIncident(
        id=f"i-{number:03d}",
        first_snapshot=number,
        last_snapshot=number,
        snapshots=1,
        formed=at - 5,
        opened=at,
        seen=at,
        closed=at + 60,
        parties=tuple(f"{service}-0/x" for service in services),
        processes=tuple(f"{service}-0" for service in services),
        services=services,
    )


def _analysis(incidents: tuple[PastIncident, ...], **more: object) -> Analysis:
    names = ("near_misses", "coverage", "blocked", "pools", "locks", "holding", "skewed", "silent")
    nothing: dict[str, tuple[Row, ...]] = dict.fromkeys(names, ())
    values: dict[str, object] = {
        "location": "x", "engine": "local", "predicates": ("deadlock",), "snapshots": 100, "reports": 300, "begun": BEGUN,
        "ended": BEGUN + 6000, "period_seconds": 60.0, "answers": {}, "incidents": incidents, "risks": (), "orphans": 0,
        "left_out": (), **nothing, **more,
    }  # fmt: skip
    return Analysis(**values)  # type: ignore[arg-type]


def _page(analysis: Analysis) -> str:
    return report_page(analysis)


def _arcs(page: str) -> dict[str, str]:
    found = re.findall(r'<path d="M[^"]*" fill="none" stroke="(#\w+)"[^>]*><title>([^:]*): ', page)
    return {title: colour for colour, title in found}


def test_only_arcs_between_services_of_one_incident_are_red() -> None:
    holding = tuple(
        {"service": one, "callee": two, "samples": 9}
        for one, two in (("a", "b"), ("c", "d"), ("a", "c"), ("a-b", "b"), ("b", "e"))
    )
    arcs = _arcs(_page(_analysis((_incident(1, ("a", "b")), _incident(2, ("c", "d"))), holding=holding)))
    red = {title for title, colour in arcs.items() if colour == "#c62839"}
    assert red == {"a waits for b", "c waits for d"}
    assert len(arcs) == len(holding)


def test_arrows_end_beside_their_dots_even_within_one_service() -> None:
    holding = ({"service": "a", "callee": "b", "samples": 1}, {"service": "b", "callee": "b", "samples": 2})
    page = _page(_analysis((), holding=holding))
    dots = re.findall(r'<circle cx="(\d+)" cy="(\d+)"', page)
    ends = re.findall(r'<path d="M[^"]*?([\d.]+) ([\d.]+)" fill="none"', page)
    assert len(ends) == 2
    for end in ends:
        away = min(math.dist(tuple(map(float, end)), tuple(map(float, dot))) for dot in dots)
        assert 8 < away < 12


def test_a_single_time_to_detection_is_not_shown_as_a_range() -> None:
    assert ">0.157 s</text>" in histogram([0.157], ("time", "incidents"), "s")
    assert ">1 to 3 s</text>" in histogram([1.0, 5.0], ("time", "incidents"), "s")


def test_omitted_rows_are_mentioned() -> None:
    many = tuple(_incident(number, ("a", "b")) for number in range(EPISODES_MAX + 7))
    page = _page(_analysis(many))
    assert f"{EPISODES_MAX} of {EPISODES_MAX + 7} here (the newest are listed); all are in the table incidents." in page
    assert '<code class="t">i-000</code>' not in page
    assert f'<code class="t">{many[-1].id}</code>' in page
    assert not re.search(r"\d+ of [\d,]+ here", _page(_analysis(many[:3])))


def test_every_plot_names_its_axes() -> None:
    pools = ({"service": "a", "pool": "p", "size": 2, "full_share": 0.5, "busy_mean": 1.0, "queued_mean": 0.1},)
    coverage = ({"hour": BEGUN, "complete": 3, "incomplete": 1, "rejected": 0},)
    page = _page(_analysis((_incident(1, ("a", "b")),), pools=pools, coverage=coverage))
    for plot in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        assert '<g fill="#516070"' in plot
    for name in ("time (UTC)", "processes", "time to detection", "incidents", "service / pool", "snapshots an hour"):
        assert f">{name}" in page


@pytest.mark.parametrize("seconds", [3, 40, 700, 5000, 86_400, 30 * 86_400, 365 * 86_400])
def test_times_along_an_axis_differ(seconds: float) -> None:
    plot = spans([("x", BEGUN, BEGUN + seconds, "red", "")], BEGUN, BEGUN + seconds, "processes")
    words = re.findall(r">(\d[^<]*)</text>", plot)
    assert 2 <= len(words) <= 8
    assert len(set(words)) == len(words)


def test_ticks_are_round() -> None:
    assert ticks(7.0, 31.0, 10.0) == [10.0, 20.0, 30.0]


def test_cells_are_labelled_for_narrow_pages_and_parties_are_folded() -> None:
    page = _page(_analysis((_incident(1, ("a", "b")),)))
    assert '<td data-label="incident"><code class="t">i-001</code></td>' in page
    assert "<details><summary>2</summary><div>a-0/x</div><div>b-0/x</div></details>" in page
    assert "prefers-color-scheme:dark" in page


def test_an_incident_unfolds_to_the_detectors_explanation() -> None:
    waits = {"i-001": ("a-0/x has waited 2.0 s for <b>", "aborting 1 party would free both (the fewest possible): a-0/x")}
    page = _page(_analysis((_incident(1, ("a", "b")), _incident(2, ("a", "b"))), waits=waits))
    assert "<div>a-0/x has waited 2.0 s for &lt;b&gt;</div><div>aborting 1 party would free both" in page
    assert "<summary>2</summary><div>a-0/x</div><div>b-0/x</div>" in page, "nothing is known of the other"


@pytest.mark.longer
async def test_the_detectors_explanation_is_read_from_its_archive(tmp_path: Path) -> None:
    a, b = FakeProcess("a"), FakeProcess("b")
    Deadlock(a, b)
    async with detecting(tmp_path) as detector:
        await detector.join(a, b)
        while not (found := await detector.incidents()):
            await detector.ask()
        while not any(one.kept for one in (await detector.stub.ListSnapshots(pb.ListSnapshotsRequest())).snapshots):
            await detector.ask()
    told = recorded_waits(open_archive(str(tmp_path / FOLDER)))
    assert list(told) == [found[0].id]
    assert any("has waited" in line for line in told[found[0].id])
    assert any(line.startswith("aborting 1 party would free all 4") for line in told[found[0].id])


def test_a_map_is_as_tall_as_its_services_need() -> None:
    def box(*names: str) -> list[float]:
        around = [(one, other, 1.0) for one, other in zip(names, names[1:] + names[:1], strict=True)]
        return [float(each) for each in re.findall(r'viewBox="0 (\d+) 640 (\d+)"', service_map(around, []))[0]]

    assert box("orders", "stock") == [280, 80], "one line"
    assert box("orders", "stock", "billing", "web") == [0, 640]
