"""The data source over a live detector: every row once, across restarts and compaction; clear errors."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from detector.archive.compact import compact
from detector.archive.files import ArchiveFiles
from detector.core.registry import find_predicate
from detector.service.storage.archive_sink import FOLDER
from detector.spark.source.data_source import OPTIONS, SourceOptionError, after_rows, parts, register, source_options
from tests.archive.reports_of_rows import report_of
from tests.synthetic.random_snapshots import Judged, WorldShape, judged, random_snapshots

DOC = Path(__file__).resolve().parents[3] / "docs" / "pipeline.md"


@pytest.fixture(scope="module")
def short() -> Judged:
    return judged(random_snapshots(5, 40, WorldShape(missing_share=0.1)), [find_predicate("deadlock")])


@pytest.fixture
def source(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


def _load(spark: SparkSession, address: str, **options: Any) -> DataFrame:
    reader = spark.read.format("stilltrue").option("address", address)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    return sorted((row.asDict(recursive=True) for row in frame.collect()), key=lambda row: (row["snapshot"], row["process"]))


@pytest.mark.longer
def test_all_rows_in_any_number_of_parts(
    source: SparkSession, short: Judged, serving: Any, archived: Any, tmp_path: Path
) -> None:
    archived(short, tmp_path, 0, 40)
    with serving(tmp_path) as address:
        frame = _load(source, address, rows_per_partition=37)
        assert frame.rdd.getNumPartitions() == -(-short.reports.num_rows // 37)
        rows = _rows(frame)
        few = _load(source, address, table="snapshots", columns="members, snapshot")
        assert few.columns == ["snapshot", "members"]
        assert sorted(row.snapshot for row in few.collect()) == list(range(1, 41))
        one = _load(source, address, rows_per_partition=37, snapshot_min=33, snapshot_max=33, day_min="2017-07-14")
        assert _rows(one.where("snapshot = 33")) == [row for row in rows if row["snapshot"] == 33]
        assert one.rdd.getNumPartitions() < frame.rdd.getNumPartitions()
        assert _load(source, address, day_max="2017-07-14").count() == 0
    wanted_reports = [made.assembled.reports[name] for made in short.made for name in sorted(made.assembled.reports)]
    assert [report_of({**row, "facts": list(row["facts"].items()), **_maps(row)}) for row in rows] == wanted_reports


def _maps(row: dict[str, Any]) -> dict[str, Any]:
    """Spark gives maps as dicts, the archive as pairs."""
    made = [{**call, "servers": call["servers"], "facts": list(call["facts"].items())} for call in row["made"]]
    seen = [
        {**each, "answered": [{**call, "facts": list(call["facts"].items())} for call in each["answered"]]}
        for each in row["seen"]
    ]
    return {"made": made, "seen": seen}


def _stream(spark: SparkSession, address: str, folder: Path, **options: Any) -> None:
    reader = spark.readStream.format("stilltrue").option("address", address)
    for name, value in options.items():
        reader = reader.option(name, value)
    query = (
        reader.load().writeStream.format("parquet").option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(120)
    assert query.exception() is None


@pytest.mark.not_in_ci
@pytest.mark.longer
def test_a_stream_continues_across_a_restart_and_compaction(
    source: SparkSession, short: Judged, serving: Any, archived: Any, tmp_path: Path
) -> None:
    folder, wish = tmp_path / "out", {"table": "snapshots", "columns": "snapshot", "rows_per_batch_max": 7}
    archived(short, tmp_path, 0, 25, reports_max=30)
    with serving(tmp_path) as address:
        _stream(source, address, folder, **wish)
    assert compact(ArchiveFiles(str(tmp_path / FOLDER))).before
    archived(short, tmp_path, 25, 40)
    with serving(tmp_path) as address:
        _stream(source, address, folder, **wish)
        _stream(source, address, folder, **wish)
    assert sorted(row.snapshot for row in source.read.parquet(str(folder / "rows")).collect()) == list(range(1, 41))
    assert len(list((folder / "checkpoint" / "commits").glob("[0-9]*"))) == 4 + 3


@pytest.mark.not_in_ci
@pytest.mark.longer
def test_removed_rows_are_an_error_or_skipped(
    source: SparkSession, short: Judged, serving: Any, archived: Any, tmp_path: Path
) -> None:
    store = archived(short, tmp_path, 0, 20, reports_max=30)
    wish = {"table": "snapshots", "columns": "snapshot"}
    with serving(tmp_path) as address:
        _stream(source, address, tmp_path / "out", **wish | {"starting": "earliest"})
        archived(short, tmp_path, 20, 40, reports_max=30)
        gone = store.scan("snapshots").files[-2]
        Path(gone.path).unlink()
        with pytest.raises(PySparkException, match="removed to free space"):
            _stream(source, address, tmp_path / "out", **wish)
        _stream(source, address, tmp_path / "out", **wish, fail_on_data_loss=False)
    assert source.read.parquet(str(tmp_path / "out" / "rows")).count() == 40 - gone.rows


@pytest.mark.longer
def test_another_archive_is_not_a_continuation(
    source: SparkSession, short: Judged, serving: Any, archived: Any, tmp_path: Path
) -> None:
    wish = {"table": "snapshots", "columns": "snapshot"}
    archived(short, tmp_path / "one", 0, 20)
    with serving(tmp_path / "one") as address:
        _stream(source, address, tmp_path / "out", **wish)
    with serving(tmp_path / "two") as address, pytest.raises(PySparkException, match="another archive"):
        _stream(source, address, tmp_path / "out", **wish)


@pytest.mark.longer
def test_a_wrong_address_has_a_clear_message(source: SparkSession) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(PySparkException, match=f"no detector at {address}"):
            _load(source, address, retry_seconds=0).count()


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("table", "nothing", "no table 'nothing'; available: reports"),
        ("columns", "nothing", "no column 'nothing' in reports"),
        ("address", "somewhere", "not a valid HOST:PORT"),
        ("tabel", "reports", "no option 'tabel'; available:"),
        ("rows_per_batch_max", "0", "rows_per_batch_max: '0' is not an integer of at least 1"),
        ("rows_per_batch_max", "\u00b9", "rows_per_batch_max: '\u00b9' is not an integer of at least 1"),
        ("starting", "\u00b9", "starting: '\u00b9' is not one of earliest, latest"),
        ("starting", "now", "starting: 'now' is not one of earliest, latest"),
        ("tls_cert_file", "x.pem", "must be set together"),
        ("snapshot_min", "first", "snapshot_min, snapshot_max, day_min, day_max: invalid literal"),
    ],
)
def test_wrong_options_have_a_clear_message(option: str, value: str, words: str) -> None:
    with pytest.raises(SourceOptionError, match=words):
        source_options({option: value})


def test_errors_in_options_reach_the_caller_of_load(source: SparkSession) -> None:
    with pytest.raises(PySparkException, match="no table 'nothing'"):
        _load(source, "127.0.0.1:1", table="nothing")


def test_option_names_are_case_insensitive() -> None:
    asked = source_options({"Rows_Per_Batch_Max": "5", "TABLE": "snapshots"})
    assert (asked.rows_per_batch_max, asked.table) == (5, "snapshots")
    assert "table" in OPTIONS


def test_parts_leave_nothing_out() -> None:
    ranges = ((-10, 0), (100, 130), (130, 131), (500, 504))
    for rows in range(1, 50):
        for since in (-10, -5, 0, 50, 100, 128, 131):
            found = parts(ranges, since, 504, rows)
            ends = [since, *(part.until for part in found)]  # type: ignore[attr-defined]
            assert [part.since for part in found] == ends[:-1]  # type: ignore[attr-defined]
            assert ends[-1] == 504
    assert after_rows(ranges, -10, 15) == 105
    assert after_rows(ranges, 504, 3) == 504


@pytest.mark.longer
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.not_in_ci
def test_the_documented_snippet_runs_as_it_stands_with_another_python_first_on_the_path(
    short: Judged, serving: Any, archived: Any, tmp_path: Path
) -> None:
    (snippet,) = [code for code in re.findall(r"```python\n(.*?)```", DOC.read_text(), re.DOTALL) if "register(spark)" in code]
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho 'the wrong Python' >&2\nexit 1\n")
    other.chmod(0o755)
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    env["PATH"] = f"{other.parent}{os.pathsep}{env['PATH']}"
    archived(short, tmp_path, 0, 40)
    with serving(tmp_path) as address:
        own = 'SparkSession.builder.master("local[1]").getOrCreate()'
        code = snippet.replace("127.0.0.1:7600", address).replace("open_session()", own)
        code = f"from pyspark.sql import SparkSession\n{code}"
        run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert run.returncode == 0, run.stderr[-2000:]
    assert "|predicate|" in run.stdout.replace(" ", "")
