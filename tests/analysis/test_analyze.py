"""An archive analysed end to end: the planted incidents are found, and unreadable files are reported."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from base64 import b64decode
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from detector.analysis.analyze import _number_gaps, analyze
from detector.analysis.counters import NO_TIMES, SnapshotTimes
from detector.analysis.engine import Kernel, LocalEngine, WorkerDiedError, reports_of
from detector.analysis.findings.pictures import IncidentDrawing, draw_incidents
from detector.analysis.result import Analysis
from detector.analysis.result_folder import CountsError, Results
from detector.archive.compact import compact
from detector.archive.files import ArchiveFile, ArchiveFiles
from detector.archive.rows.row_decoder import verdict_of
from detector.archive.units import Unit, open_archive
from detector.archive.writer import ArchiveWriter
from detector.commands.archives.analyze import analyze as command
from detector.synthetic.generate import ENDED_SECONDS, ArchivePlan, generate
from tests.analysis.dying_kernel import DyingKernel, LocatingKernel
from tests.synthetic.random_snapshots import WorldShape, judged, random_snapshots

PLAN = ArchivePlan(processes=30, snapshots=240, begun=1_790_021_600.0, incidents=2, near_misses=2, load=0.1, seed=4)


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Analysis]:
    folder, out = tmp_path_factory.mktemp("planted"), tmp_path_factory.mktemp("out")
    generate(ArchiveFiles(str(folder)), PLAN, progress=lambda _: None)
    (folder / "snapshots" / "day=2026-09-21" / "000000009999-000000009999-torn.parquet").write_bytes(b"PAR1 torn")
    return folder, out, analyze(LocalEngine(), open_archive(str(folder)), str(out), progress=lambda _: None)


def test_the_report_shows_exactly_the_planted_incidents_and_near_misses(analysed: tuple[Path, Path, Analysis]) -> None:
    folder, _, found = analysed
    planted = json.loads((folder / "truth.json").read_text())["planted"]
    wanted = [each for each in planted if each["kind"] == "deadlock"]
    assert [(list(each.processes), each.first_snapshot, each.last_snapshot) for each in found.incidents] == [
        (each["processes"], each["first_snapshot"], each["last_snapshot"]) for each in wanted
    ]
    near = {
        (tuple(each["processes"]), *(_begun(each[f"{end}_snapshot"]) for end in ("first", "last")))
        for each in planted
        if each["kind"] == "near miss"
    }
    assert len(near) == PLAN.near_misses
    assert near == {(tuple(row["processes"]), row["first"], row["last"]) for row in found.near_misses}
    for incident, truth in zip(found.incidents, wanted, strict=True):
        assert incident.detection_seconds is not None
        assert 0 <= incident.detection_seconds <= PLAN.period_seconds
        assert truth["formed"] <= (incident.formed or 0) <= incident.opened
        assert incident.closed is not None


def test_each_planted_incident_is_drawn_with_its_waits_and_victims(analysed: tuple[Path, Path, Analysis]) -> None:
    _, out, found = analysed
    page = (out / "report.html").read_text()
    pictures = [b64decode(image).decode() for image in re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', page)]
    assert len(pictures) == len(found.incidents) == PLAN.incidents
    for incident, picture in zip(reversed(found.incidents), pictures, strict=True):
        assert all(f">{party}\n" in picture or f"\n{party}\n" in picture for party in incident.parties), "in a box's title"
        assert "suggested victim" in picture
        waits = found.waits[incident.id]
        assert any("has waited" in line or "waits for" in line for line in waits)
        assert any(line.startswith("aborting") for line in waits)
        assert f"Who waited for whom: {incident.id}" in page


def _begun(snapshot: int) -> float:
    return PLAN.begun + PLAN.period_seconds * (snapshot - 1)


def test_the_totals_of_a_report_add_up(analysed: tuple[Path, Path, Analysis]) -> None:
    _, out, found = analysed
    assert found.snapshots == PLAN.snapshots
    assert found.period_seconds == PLAN.period_seconds
    assert sum(row["snapshots"] for row in found.coverage) == PLAN.snapshots
    assert found.orphans == 0
    assert (found.begun, found.ended) == (PLAN.begun, _begun(PLAN.snapshots) + ENDED_SECONDS)
    rows = pq.read_table(out / "incidents").to_pylist()
    assert [row["services"] for row in rows] == [sorted(name[:-2] for name in row["processes"]) for row in rows]
    assert [Path(path).name for path, _ in found.left_out] == ["000000009999-000000009999-torn.parquet"]
    assert {row["pool"] for row in found.pools} == {"workers"}
    assert found.holding
    assert found.blocked[0]["blocked_seconds"] > 0
    page = (out / "report.html").read_text()
    assert "torn.parquet" in page
    assert "torn.parquet: " not in page  # its path once, not again in the reason
    assert all(each.id in page for each in found.incidents)
    assert not {"<script", "http-equiv", "src=", "href="} & set(page.split())
    assert json.loads((out / "summary.json").read_text())["snapshots"] == PLAN.snapshots


def test_times_come_from_the_snapshots_whatever_their_verdicts(tmp_path: Path) -> None:
    run = judged(random_snapshots(3, 12, WorldShape(missing_share=0.9)), [])
    writer = ArchiveWriter(ArchiveFiles(str(tmp_path / "archive")))
    for made in run.made:
        writer.add(made.assembled, members=made.members)
    writer.flush()
    found = analyze(LocalEngine(), open_archive(str(tmp_path / "archive")), str(tmp_path / "out"), progress=lambda _: None)
    assert found.answers["deadlock"]["undetermined"] > 3
    first, last = run.made[0].assembled.snapshot.ref, run.made[-1].assembled.snapshot.ref
    assert (found.begun, found.ended, found.period_seconds) == (first.begun, last.ended, 60.0)
    assert found.blocked[0]["blocked_seconds"] == 60.0 * found.blocked[0]["samples"]


def test_concurrent_compaction_loses_nothing(location: Path, tmp_path: Path) -> None:
    shutil.copytree(location, tmp_path / "archive")
    archive = open_archive(str(tmp_path / "archive"))
    wanted = analyze(LocalEngine(), archive, str(tmp_path / "out"), progress=lambda _: None)
    assert compact(archive.store).before
    said: list[str] = []
    found = analyze(LocalEngine(), archive, str(tmp_path / "later"), progress=said.append)
    assert [each for each in said if "starting over" in each] == ["files were compacted during the analysis: starting over"]
    assert found == wanted


def _listed(out: Path, table: str) -> dict[str, int]:
    """The files of a result table with their times of modification."""
    return {str(path.relative_to(out)): path.stat().st_mtime_ns for path in sorted(out.rglob(f"{table}/day=*/*.parquet"))}


def test_evaluated_days_are_not_read_again(
    analysed: tuple[Path, Path, Analysis], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = tmp_path / "archive", str(tmp_path / "out")
    shutil.copytree(analysed[0], folder)
    analyze(LocalEngine(), open_archive(str(folder)), out, progress=lambda _: None)
    before = _listed(tmp_path / "out", "verdicts")
    changed = sorted(folder.glob("snapshots/day=*"))[-1]
    for path in sorted(changed.glob("*.parquet")):
        shutil.copy(path, path.with_name(f"copy-{path.name}"))
    opened: list[str] = []
    read = ArchiveFiles.read_parts

    def counted(store: ArchiveFiles, file: ArchiveFile, *more: Any) -> pa.Table:
        opened.append(file.path)
        return read(store, file, *more)

    monkeypatch.setattr(ArchiveFiles, "read_parts", counted)

    def drawn_aside(*given: Any) -> dict[str, IncidentDrawing]:
        """What the report draws is read each time."""
        there = len(opened)
        found = draw_incidents(*given)
        del opened[there:]
        return found

    monkeypatch.setattr("detector.analysis.analyze.draw_incidents", drawn_aside)
    said: list[str] = []
    found = analyze(LocalEngine(), open_archive(str(folder)), out, progress=said.append)
    assert {Path(path).parent.name for path in opened} == {changed.name}
    after = _listed(tmp_path / "out", "verdicts")
    kept = {path: at for path, at in before.items() if changed.name not in path}
    assert kept.items() <= after.items()
    assert not {path for path in before if changed.name in path} & set(after), "what the manifest does not name is gone"
    assert "keeping the results of 1 day whose files have not changed" in said
    monkeypatch.undo()
    anew = analyze(LocalEngine(), open_archive(str(folder)), str(tmp_path / "anew"), progress=lambda _: None)
    assert found == anew
    for table in ("verdicts", "incidents", "pools", "clocks", "coverage"):
        told = [sorted(map(str, pq.read_table(tmp_path / name / table).to_pylist())) for name in ("out", "anew")]
        assert told[0] == told[1], table
    analyze(LocalEngine(), open_archive(str(folder)), out, ("termination",), progress=said.append)
    assert "termination" in {row["predicate"] for row in pq.read_table(tmp_path / "out" / "verdicts").to_pylist()}


def test_an_interrupted_analysis_leaves_the_previous_results(
    location: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = Results(location=str(tmp_path / "out"))
    analyze(LocalEngine(), open_archive(str(location)), results.location, progress=lambda _: None)
    before, report = results.last(), (tmp_path / "out" / "report.html").read_text()
    monkeypatch.setattr(Results, "commit", _full)
    with pytest.raises(OSError, match="full"):
        analyze(LocalEngine(), open_archive(str(location)), results.location, ("termination",), progress=lambda _: None)
    assert results.last() == before
    assert (tmp_path / "out" / "report.html").read_text() == report
    rows = results.read(before.tables["verdicts"], pa.schema([("predicate", pa.string())]))
    assert set(rows.column("predicate").to_pylist()) == {"deadlock", "gridlock"}


def _full(*_: object) -> None:
    raise OSError("the disk is full")


def test_the_command_runs_repeatedly_over_a_torn_archive(analysed: tuple[Path, Path, Analysis]) -> None:
    folder, out, _ = analysed
    before = pq.read_table(out / "verdicts")
    arguments = [str(folder), "--out", str(out), "--predicate", "termination", "--until", "2026-09-21"]
    arguments += ["--set", "token-lost.fact=lease"]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.stderr
    assert "left out: " in result.stderr
    assert result.stdout.endswith(f", 1 file left out; report: {out / 'report.html'}\n")
    verdicts = pq.read_table(out / "verdicts")
    day = sum(file.rows for file in open_archive(str(folder), until="2026-09-21").files("snapshots"))
    assert day < PLAN.snapshots
    assert verdicts.num_rows == 4 * day
    asked = [row for row in verdicts.to_pylist() if row["predicate"] == "token-lost"]
    assert all("the fact 'lease'" in verdict_of(row).witness.text for row in asked)
    assert set(verdicts.column("snapshot").to_pylist()) < set(before.column("snapshot").to_pylist())
    assert json.loads((out / "summary.json").read_text())["predicates"] == ["deadlock", "gridlock", "termination", "token-lost"]
    assert result.stdout.startswith(f"{day} snapshots, ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{folder}", "--since", "2027-01-01"], "no snapshots from 2027-01-01"),
        (["{folder}", "--predicate", "nothing"], "no predicate 'nothing'"),
        (["{folder}", "--set", "token-lost.expcted=3"], "expcted"),
        (["{folder}/reports"], "no archive here"),
        (["what://x"], "what://x"),
    ],
)
def test_wrong_usage_is_an_error_in_one_line(
    analysed: tuple[Path, Path, Analysis], arguments: list[str], words: str, tmp_path: Path
) -> None:
    told = [each.format(folder=analysed[0]) for each in arguments]
    result = CliRunner().invoke(command, [*told, "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("occupied", ["reports/day=2026-11-01", "_stream/state", "verdicts/batch=0"])
def test_a_folder_with_an_archive_or_a_streams_results_is_refused_unchanged(
    analysed: tuple[Path, Path, Analysis], occupied: str, tmp_path: Path
) -> None:
    """The tables of an archive and of results have the same names: the files of one were removed for those of the other."""
    own = tmp_path / "verdicts" / "day=2026-11-01" / "x.parquet"
    for folder in (own.parent, tmp_path / occupied):
        folder.mkdir(parents=True)
    own.touch()
    result = CliRunner().invoke(command, [str(analysed[0]), "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "choose another folder for these results" in result.stderr
    assert result.stderr.count("\n") == 1
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [own]


def test_missing_results_are_an_error_with_their_numbers(location: Path, tmp_path: Path) -> None:
    class Elsewhere(LocalEngine):
        """Its workers write to a folder of the same name on a disk of their own."""

        def run(self, location: str, units: Sequence[Unit], kernel: Kernel) -> pa.Table:
            found = super().run(location, units, kernel)
            for path in (tmp_path / "out").rglob("part-*.parquet"):
                path.unlink()
            return found

    archive = open_archive(str(location))
    count = 2 * archive.rows("snapshots")
    with pytest.raises(CountsError, match=rf"^expected {count} verdicts in .*out/verdicts, found 0: do all workers"):
        analyze(Elsewhere(), archive, str(tmp_path / "out"), progress=lambda _: None)
    assert not (tmp_path / "out" / "report.html").exists()


def test_a_kernel_that_loses_rows_is_an_error_with_their_numbers(location: Path, tmp_path: Path) -> None:
    class Forgetful(LocalEngine):
        """It forgets half of what there is to do."""

        def run(self, location: str, units: Sequence[Unit], kernel: Kernel) -> pa.Table:
            return super().run(location, units[::2], kernel)

    with pytest.raises(CountsError, match=r"verdicts for \d+ snapshots and 2 predicates: \d+ expected"):
        analyze(Forgetful(), open_archive(str(location)), str(tmp_path / "out"), progress=lambda _: None)


def test_a_relative_folder_is_that_of_the_command_wherever_workers_run(
    location: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers of a cluster have working directories of their own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()

    class Elsewhere(LocalEngine):
        def run(self, location: str, units: Sequence[Unit], kernel: Kernel) -> pa.Table:
            os.chdir(tmp_path / "elsewhere")
            try:
                return super().run(location, units, kernel)
            finally:
                os.chdir(tmp_path)

    analyze(Elsewhere(), open_archive(str(location)), "out", progress=lambda _: None)
    assert (tmp_path / "out" / "verdicts").is_dir()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_snapshots_are_divided_among_processes_by_their_reports(location: Path, tmp_path: Path) -> None:
    """A snapshot of a thousand processes is as much work as a thousand reports, and is one row."""
    archive = open_archive(str(location))
    asked = dict[str, float]()

    class Asked(LocalEngine):
        def run(self, location: str, units: Sequence[Unit], kernel: Kernel) -> pa.Table:
            asked[kernel.name] = reports_of(units, kernel)
            return super().run(location, units, kernel)

    analyze(Asked(), archive, str(tmp_path / "out"), progress=lambda _: None)
    assert archive.rows("reports") > 2 * archive.rows("snapshots")
    assert set(asked) == {"evaluate snapshots", "count reports"}
    assert all(reports == pytest.approx(archive.rows("reports")) for reports in asked.values())


@pytest.mark.slow
def test_a_kernel_with_many_reports_a_row_runs_in_several_processes(
    location: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))  # its processes import the kernel
    units = open_archive(str(location)).units("snapshots")
    rows = sum(unit.rows for unit in units)
    with LocalEngine(processes=2, reports_per_process_min=int(10 * rows)) as engine:
        here = engine.run(str(location), units, LocatingKernel(reports_per_row=15))
        assert set(here.column("process").to_pylist()) == {os.getpid()}
        there = engine.run(str(location), units, LocatingKernel(reports_per_row=25))
        assert os.getpid() not in there.column("process").to_pylist()


@pytest.mark.slow
def test_work_of_a_killed_process_is_retried_a_bounded_number_of_times(
    location: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))  # its processes import the kernel
    archive = open_archive(str(location))
    units = archive.units("reports")
    with LocalEngine(processes=2, reports_per_process_min=10) as engine:
        found = engine.run(str(location), units, DyingKernel(tmp_path / "died"))
        assert sum(found.column("rows").to_pylist()) == archive.rows("reports")
        assert (tmp_path / "died").exists()
        with pytest.raises(WorkerDiedError, match="cannot count rows: its worker process was killed 2 times in a row"):
            engine.run(str(location), units, DyingKernel(tmp_path / "dies", always=True))


def test_snapshots_without_any_row_are_listed_by_number(location: Path, tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    shutil.copytree(location, folder)
    whole = _headers(folder)
    gone = sorted(whole)[len(whole) // 2 : len(whole) // 2 + 7]
    for table in ("reports", "snapshots"):
        for file in folder.glob(f"{table}/*/*.parquet"):
            rows = pq.ParquetFile(file).read()
            kept = rows.filter(pc.invert(pc.is_in(rows.column("snapshot"), pa.array(gone))))
            pq.write_table(kept, file)
    found = analyze(LocalEngine(), open_archive(str(folder)), str(tmp_path / "out"), progress=lambda _: None)
    assert [each[1:] for each in found.absent] == [(gone[0], gone[-1])]
    assert f"neither a row nor a report of 7 snapshots ({gone[0]} to {gone[-1]})" in found.lost()[-1]


def test_numbers_skipped_by_a_restart_are_not_missing() -> None:
    """A detector that starts again skips up to a thousand numbers, in no time."""
    numbers = np.asarray([*range(1, 20), 24, 25, *range(1020, 1030), 1040])
    begun = np.asarray([*range(1, 20), 24.0, 25.0, *range(40, 50), 60.0])
    ends = {"one": SnapshotTimes(numbers, begun, begun)}
    assert list(_number_gaps(ends, [])) == [("one", 20, 23), ("one", 1030, 1039)]
    assert list(_number_gaps(ends, [("one", 21), ("two", 22), ("one", 1033)])) == [
        ("one", 20, 20),
        ("one", 22, 23),
        ("one", 1030, 1032),
        ("one", 1034, 1039),
    ]
    assert list(_number_gaps({"one": NO_TIMES}, [("one", 5)])) == []


def _headers(folder: Path) -> list[int]:
    return [number for file in folder.glob("snapshots/*/*.parquet") for number in pq.read_table(file)["snapshot"].to_pylist()]


WORKING = """
import sys
from pathlib import Path
from detector.analysis.engine import LocalEngine
from detector.archive.units import open_archive
from tests.analysis.dying_kernel import StandingKernel
if __name__ == "__main__":
    archive = open_archive(sys.argv[1])
    with LocalEngine(processes=2, reports_per_process_min=10) as engine:
        engine.run(sys.argv[1], archive.units("reports"), StandingKernel(Path(sys.argv[2])))
"""


def test_no_worker_outlives_an_analysis_that_is_killed(location: Path, tmp_path: Path) -> None:
    program, working = tmp_path / "program.py", tmp_path / "working"
    program.write_text(WORKING)
    working.mkdir()
    command = [sys.executable, str(program), str(location), str(working)]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}) as killed:
        _wait_until(lambda: len(list(working.iterdir())) == 2)
        killed.kill()
    _wait_until(lambda: not any(_runs(int(each.name)) for each in working.iterdir()))


def _wait_until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not true():
        assert time.monotonic() < until
        time.sleep(0.05)


def _runs(process: int) -> bool:
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.startswith("Z")


def test_late_reports_correct_the_verdicts_of_their_day(location: Path, tmp_path: Path) -> None:
    """Lost reports cause no wrong verdict, and once they are back the next analysis gives the service's verdicts."""
    folder, out = tmp_path / "archive", tmp_path / "out"
    shutil.copytree(location, folder)
    whole = analyze(LocalEngine(), open_archive(str(folder)), str(tmp_path / "whole"), progress=lambda _: None)
    headers = sorted(folder.glob("snapshots/*/*.parquet"))[0]
    headers.rename(tmp_path / headers.name)
    less = analyze(LocalEngine(), open_archive(str(folder)), str(out), progress=lambda _: None)
    assert less.snapshots < whole.snapshots
    assert less.lost()
    (tmp_path / headers.name).rename(headers)
    assert analyze(LocalEngine(), open_archive(str(folder)), str(out), progress=lambda _: None) == whole
    rows = [sorted(map(str, pq.read_table(tmp_path / name / "verdicts").to_pylist())) for name in ("whole", "out")]
    assert rows[0] == rows[1]
