"""Checks every cut of an archive: orphans, where each call was, clocks, who did not report. DataFrame in, DataFrame out."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

KEY = ("snapshot", "process", "incarnation")


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
