"""Counting in the workers equals counting with DataFrames, torn files are named, and no call is lost."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from detector.analysis.engine import LocalEngine
from detector.analysis.findings.coverage import Headers, read_units
from detector.analysis.kernels import LEFT_OUT, Count
from detector.analysis.tables import totals
from detector.archive.units import Archive, open_archive
from detector.spark.batch import table
from detector.spark.engine import SparkEngine

PERIOD = 60.0
HOUR_SECONDS = 3600
KEY = ("snapshot", "process", "incarnation")


@pytest.fixture(scope="module")
def archive(spark: SparkSession, location: Path) -> Archive:
    return open_archive(str(location))


def read_headers(archive: Archive) -> Headers:
    """The headers of an archive's snapshots; a file that proves unreadable is named."""
    headers = Headers()
    rows, failed = read_units(archive, archive.units("snapshots"))
    headers.left_out += failed
    headers.count(rows)
    return headers


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


@pytest.mark.longer
def test_counting_in_the_workers_equals_counting_with_dataframes(spark: SparkSession, archive: Archive) -> None:
    headers = read_headers(archive)
    counted = SparkEngine(spark).run(archive.store.location, archive.units("reports"), Count(ends=headers.ends()))
    found = totals(counted, PERIOD)
    reports, snapshots = table(spark, archive, "reports"), table(spark, archive, "snapshots")
    wanted = {
        "orphans": orphans(reports),
        "blocked": blocked_time(reports, PERIOD),
        "pools": pool_use(reports),
        "locks": lock_waits(reports, PERIOD),
        "holding": holding_calls(reports),
    }
    for name, frame in wanted.items():
        assert [{key: row[key] for key in row if key != "archive"} for row in found[name]] == _rows(frame), name
    assert all(found[name] for name in wanted if name != "orphans")
    assert headers.coverage() == _rows(coverage(snapshots))
    assert headers.missing() == _rows(missing_members(snapshots))
    clocks = _rows(clock_skew(reports, snapshots))
    assert len(clocks) == len(found["clocks"])
    for row, other in zip(found["clocks"], clocks, strict=True):
        assert row["process"] == other["process"]
        assert row["ahead_seconds"] == other["ahead_seconds"]
        assert row["delay_mean_seconds"] == pytest.approx(other["delay_mean_seconds"], abs=1e-5)


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_a_torn_file_is_named_and_the_rest_counted(spark: SparkSession, archive: Archive, tmp_path: Path, engine: str) -> None:
    shutil.copytree(archive.store.root, tmp_path / "archive")
    copy = open_archive(str(tmp_path / "archive"))
    torn = copy.files("reports")[1]
    data = bytearray(Path(torn.path).read_bytes())
    data[4 : len(data) // 2] = b"\0" * (len(data) // 2 - 4)  # the footer still reads
    Path(torn.path).write_bytes(data)
    ends = read_headers(copy).ends()
    runs = LocalEngine() if engine == "local" else SparkEngine(spark)
    rows = runs.run(copy.store.location, copy.units("reports"), Count(ends=ends)).to_pylist()
    assert [row["one"] for row in rows if row["kind"] == LEFT_OUT] == [torn.path]
    assert sum(row["samples"] for row in rows if row["kind"] == "process") == copy.rows("reports") - torn.rows


def test_no_call_is_lost_between_two_cuts(spark: SparkSession, archive: Archive) -> None:
    rows = message_balance(table(spark, archive, "reports").where("snapshot <= 60")).collect()
    assert rows
    assert all(row.made == row.held + row.answered + row.unseen for row in rows)
    assert sum(row.held for row in rows) > 0


def test_an_orphan_is_found(spark: SparkSession, archive: Archive) -> None:
    reports = table(spark, archive, "reports").where("snapshot <= 60")
    assert orphans(reports).count() == 0
    assert orphans(reports.selectExpr("* except (next_number)", "1L as next_number")).count() > 0


def coverage(snapshots: DataFrame) -> DataFrame:
    """By hour: snapshots by outcome, members expected and missing. Silence is never read as health."""
    outcome = F.col("outcome")
    return (
        snapshots.select((F.floor(F.col("begun") / HOUR_SECONDS) * HOUR_SECONDS).alias("hour"), "outcome", "members", "missing")
        .groupBy("hour")
        .agg(
            F.count("*").alias("snapshots"),
            F.count(F.when(outcome == "complete", 1)).alias("complete"),
            F.count(F.when(outcome == "incomplete", 1)).alias("incomplete"),
            F.count(F.when(outcome == "rejected", 1)).alias("rejected"),
            F.sum("members").alias("members"),
            F.sum(F.size("missing")).alias("missing"),
        )
        .orderBy("hour")
    )


def blocked_time(reports: DataFrame, period_seconds: float) -> DataFrame:
    """By service and method of the waiting party: how long parties were blocked in all, and the longest wait seen."""
    waits = reports.select("begun", "service", F.explode("resolved").alias("wait"))
    return (
        waits.select(
            "service",
            F.regexp_extract("wait.waiter", r"/([^#@~]*)", 1).alias("method"),
            (F.col("begun") - F.col("wait.since")).alias("waited"),
        )
        .groupBy("service", "method")
        .agg(
            F.count("*").alias("samples"),
            (F.count("*") * period_seconds).alias("blocked_seconds"),
            F.max("waited").alias("longest_wait_seconds"),
        )
        .orderBy(F.desc("samples"), "service", "method")
    )


def pool_use(reports: DataFrame) -> DataFrame:
    """By service and pool: its size, how many workers were busy and calls queued, and how often none was free."""
    each = reports.select("service", "served", F.explode("pools").alias("bounded"))
    busy = F.size(F.filter("served", lambda call: call["serving"] & (call["pool"] == F.col("bounded.name"))))
    return (
        each.select("service", F.col("bounded.name").alias("pool"), "bounded.size", "bounded.queued", busy.alias("busy"))
        .groupBy("service", "pool")
        .agg(
            F.max("size").alias("size"),
            F.count("*").alias("samples"),
            F.avg("busy").alias("busy_mean"),
            F.max("busy").alias("busy_max"),
            F.avg("queued").alias("queued_mean"),
            F.max("queued").alias("queued_max"),
            F.avg((F.col("busy") >= F.col("size")).cast("double")).alias("full_share"),
        )
        .orderBy(F.desc("full_share"), F.desc("queued_mean"), "service", "pool")
    )


def lock_waits(reports: DataFrame, period_seconds: float) -> DataFrame:
    """By fleet-wide resource: how long it was waited for in all."""
    among = reports.select(F.explode("waits").alias("wait")).select(F.explode("wait.among").alias("target"))
    named = among.where(F.col("target.resource").isNotNull()).select(F.col("target.resource").alias("resource"))
    counted = named.groupBy("resource").agg(F.count("*").alias("samples"))
    return counted.withColumn("waited_seconds", F.col("samples") * period_seconds).orderBy(F.desc("samples"), "resource")


def holding_calls(reports: DataFrame) -> DataFrame:
    """Calls made by a party that occupies a worker meanwhile, by service: ``service`` holds and waits for ``callee``.

    The callee is the process that has the call by its own report; where none has, each that has answered on the channel.
    """
    serving = F.filter("served", lambda call: call["serving"] & (call["pool"] != ""))
    made = reports.select(*KEY, "service", "made", F.transform(serving, lambda call: call["party"]).alias("busy"))
    held = made.select(*KEY, "service", F.explode(F.filter("made", _held)).alias("call")).select(
        *KEY, "service", F.col("call.number").alias("number"), F.map_keys("call.servers").alias("answered")
    )
    having = reports.select("snapshot", F.col("process").alias("server"), F.explode("served").alias("call")).select(
        "snapshot",
        "server",
        F.col("call.caller.process").alias("process"),
        F.col("call.caller.incarnation").alias("incarnation"),
        F.col("call.number").alias("number"),
    )
    known = held.join(having, [*KEY, "number"], "left")
    callees = F.when(F.col("server").isNotNull(), F.array("server")).otherwise(F.col("answered"))
    servers = known.select("service", F.explode(callees).alias("process"))
    services = reports.select("process", F.col("service").alias("callee")).distinct()
    counted = servers.groupBy("service", "process").agg(F.count("*").alias("samples"))
    return (
        counted.join(F.broadcast(services), "process")
        .groupBy("service", "callee")
        .agg(F.sum("samples").alias("samples"))
        .orderBy(F.desc("samples"), "service", "callee")
    )


def _held(call: Column) -> Column:
    return ~call["doubtful"] & F.array_contains(F.col("busy"), call["party"])


def orphans(reports: DataFrame) -> DataFrame:
    """Rule 5 on every channel of every snapshot: calls that a server had seen and their caller had not sent at its cut."""
    seen = reports.select("snapshot", F.col("process").alias("server"), F.explode("seen").alias("seen")).select(
        "snapshot",
        "server",
        F.col("seen.caller.process").alias("process"),
        F.col("seen.caller.incarnation").alias("incarnation"),
        F.col("seen.highest").alias("highest"),
    )
    sent = reports.select(*KEY, "next_number").dropDuplicates(["snapshot", "process"])
    return (
        seen.join(sent, list(KEY))
        .where(F.col("highest") >= F.col("next_number"))
        .select("snapshot", "server", "process", "incarnation", "highest", "next_number")
        .orderBy("snapshot", "server", "process")
    )


def message_balance(reports: DataFrame) -> DataFrame:
    """By snapshot: calls outstanding at their callers, and how many of them a member served or queued, answered, or never saw.

    ``made`` = ``held`` + ``answered`` + ``unseen``: no call is lost between two cuts.
    """
    once = reports.dropDuplicates(["snapshot", "process"])
    made = once.select(*KEY, F.explode(F.filter("made", lambda call: ~call["doubtful"])).alias("call")).select(
        *KEY, F.col("call.number").alias("number")
    )
    held = once.select("snapshot", F.explode("served").alias("call")).where("call.caller is not null")
    answers = once.select("snapshot", F.explode("seen").alias("seen")).select(
        "snapshot",
        F.col("seen.caller").alias("caller"),
        F.explode(F.concat("seen.answered.number", F.coalesce("seen.plain", F.array().cast("array<long>")))).alias("number"),
    )
    found = held.select("snapshot", "call.caller", "call.number", F.lit(0).alias("place")).unionByName(
        answers.withColumn("place", F.lit(1))
    )
    places = (
        found.select(
            "snapshot",
            F.col("caller.process").alias("process"),
            F.col("caller.incarnation").alias("incarnation"),
            "number",
            "place",
        )
        .groupBy(*KEY, "number")
        .agg(F.min("place").alias("place"))
    )
    return (
        made.join(places, [*KEY, "number"], "left")
        .groupBy("snapshot")
        .agg(
            F.count("*").alias("made"),
            F.count(F.when(F.col("place") == 0, 1)).alias("held"),
            F.count(F.when(F.col("place") == 1, 1)).alias("answered"),
            F.count(F.when(F.col("place").isNull(), 1)).alias("unseen"),
        )
        .orderBy("snapshot")
    )


def clock_skew(reports: DataFrame, snapshots: DataFrame) -> DataFrame:
    """By process: how far its clock stands from the detector's, as far as its cuts show it.

    A cut is taken between a snapshot's beginning and its end, by the detector's clock. ``ahead_seconds`` and
    ``behind_seconds`` are the most by which a cut's own time lay after the end or before the beginning.
    """
    times = snapshots.select("snapshot", F.col("begun").alias("began"), "ended")
    off = reports.select("snapshot", "process", "cut_at").join(times, "snapshot")
    return (
        off.groupBy("process")
        .agg(
            F.greatest(F.lit(0.0), F.max(F.col("cut_at") - F.col("ended"))).alias("ahead_seconds"),
            F.greatest(F.lit(0.0), F.max(F.col("began") - F.col("cut_at"))).alias("behind_seconds"),
            F.avg(F.col("cut_at") - F.col("began")).alias("delay_mean_seconds"),
        )
        .orderBy(F.desc(F.greatest("ahead_seconds", "behind_seconds")), "process")
    )


def missing_members(snapshots: DataFrame) -> DataFrame:
    """By process: in how many snapshots it was expected and did not report, first and last."""
    gone = snapshots.select("begun", F.explode("missing").alias("member"))
    return (
        gone.groupBy(F.col("member.instance").alias("process"), F.col("member.service").alias("service"))
        .agg(F.count("*").alias("snapshots"), F.min("begun").alias("first"), F.max("begun").alias("last"))
        .orderBy(F.desc("snapshots"), "process")
    )
