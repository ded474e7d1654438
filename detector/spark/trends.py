"""What a long archive tells and no single verdict does: DataFrame in, DataFrame out, native columns and joins only.

Every snapshot is a sample of the fleet at one instant. So a count of samples times the time between snapshots is a time, and
the mean number being served at a pool is the L of Little's law, whatever the rate and the length of the calls are.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

HOUR_SECONDS = 3600
EPISODE_GAP_SNAPSHOTS = 5


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
    """Calls made by a party that occupies a worker meanwhile, by service: ``service`` holds and waits for ``callee``."""
    serving = F.filter("served", lambda call: call["serving"] & (call["pool"] != ""))
    made = reports.select("service", "made", F.transform(serving, lambda call: call["party"]).alias("busy"))
    held = made.select("service", F.explode(F.filter("made", _held)).alias("call"))
    servers = held.select("service", F.explode(F.map_keys("call.servers")).alias("process"))
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


def sightings(verdicts: DataFrame) -> DataFrame:
    """Cores by their id, near misses by the processes that would have been in the core: how often seen, from when to when.

    Rows of verdicts with findings. Near misses at the same processes are one ``episode`` as long as no more than
    ``EPISODE_GAP_SNAPSHOTS`` lie between; ``saved_by`` kept it open when it was first seen.
    """
    found = verdicts.where((F.col("predicate") == "deadlock") & F.col("findings").isNotNull())
    processes = F.array_sort(
        F.array_distinct(F.transform("found.parties", lambda party: F.split_part(party, F.lit("/"), F.lit(1))))
    )
    same = Window.partitionBy("kind", "id", "processes").orderBy("snapshot")
    return (
        found.select("snapshot", "begun", "ended", F.explode("findings").alias("found"))
        .select("snapshot", "begun", "ended", "found.*", processes.alias("processes"))
        .withColumn(
            "fresh", (F.col("kind") != "core") & (F.col("snapshot") - F.lag("snapshot").over(same) > EPISODE_GAP_SNAPSHOTS)
        )
        .withColumn("episode", F.count_if("fresh").over(same))
        .groupBy("kind", "id", "processes", "episode")
        .agg(
            F.count("*").alias("snapshots"),
            F.min("snapshot").alias("first_snapshot"),
            F.max("snapshot").alias("last_snapshot"),
            F.min("begun").alias("first"),
            F.max("begun").alias("last"),
            F.min("ended").alias("opened"),
            F.max("ended").alias("seen"),
            F.min("formed").alias("formed"),
            F.max(F.size("parties")).alias("parties_max"),
            F.min_by("parties", "snapshot").alias("parties"),
            F.min_by("keys", "snapshot").alias("keys"),
            F.min_by("saved_by", "snapshot").alias("saved_by"),
        )
    )
