"""The same work as the pipeline's as others would write it: the reduction as DataFrame joins, and pandas a snapshot a call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from detector.archive.rows.local_state_rows import Row
from detector.graph.columns import NO_NUMBER, WaitColumns, columns_of_lists
from detector.graph.reduction import reduce

pd: Any = import_module("pandas")  # it has no types of its own


def by_joins(reports: DataFrame) -> int:
    """How many snapshots have a remainder: each round of the reduction is a join and two aggregations."""
    waits = (
        reports.select("snapshot", F.explode("resolved").alias("wait"))
        .where("wait.deadline is null")
        .select("snapshot", "wait.waiter", "wait.needs", "wait.among", F.monotonically_increasing_id().alias("wait"))
        .localCheckpoint()
    )
    edges = waits.select("snapshot", "waiter", "needs", "wait", F.explode("among").alias("target")).localCheckpoint()
    blocked = waits.select("snapshot", "waiter").distinct().localCheckpoint()
    before, now = -1, blocked.count()
    while now and now != before:
        stuck = blocked.withColumnRenamed("waiter", "target").withColumn("stuck", F.lit(1))
        left = (
            edges.join(stuck, ["snapshot", "target"], "left")
            .groupBy("snapshot", "waiter", "wait", "needs")
            .agg(F.count(F.when(F.col("stuck").isNull(), 1)).alias("come"))
            .where("come < needs")
        )
        blocked = left.select("snapshot", "waiter").distinct().localCheckpoint()
        before, now = now, blocked.count()
    return blocked.select("snapshot").distinct().count()


def by_pandas(reports: DataFrame) -> int:
    """The same, a snapshot a call."""
    some = reports.select("snapshot", "resolved")
    return some.groupBy("snapshot").applyInPandas(_one, "snapshot long, stuck boolean").where("stuck").count()


def _one(rows: Any) -> Any:
    resolved: list[dict[str, Any]] = [wait for waits in rows["resolved"] for wait in waits]
    columns = waits_of_resolved([wait for wait in resolved if pd.isna(wait["deadline"])])
    stuck = bool((~reduce(columns).free).any())
    return pd.DataFrame({"snapshot": [int(rows["snapshot"].iloc[0])], "stuck": [stuck]})


def waits_of_resolved(rows: Sequence[Row]) -> WaitColumns:
    """Waits from the ``resolved`` of all reports of one snapshot, in any order."""
    return columns_of_lists(
        waiters=[row["waiter"] for row in rows],
        needs=[row["needs"] for row in rows],
        sizes=[len(row["among"]) for row in rows],
        among=[name for row in rows for name in row["among"]],
        deadline=[_nan(row["deadline"]) for row in rows],
        since=[_nan(row["since"]) for row in rows],
        number=[NO_NUMBER if row["number"] is None else row["number"] for row in rows],
        uncoloured=[row["uncoloured"] for row in rows],
        what=[row["what"] for row in rows],
    )


def _nan(value: float | None) -> float:
    return math.nan if value is None else value
