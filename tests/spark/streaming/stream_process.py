"""A stream in a process of its own, to be killed: `python stream_process.py PLAN.json`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from detector.spark.session import open_session
from detector.spark.streaming.pipeline import archive_stream, detector_stream, start
from detector.spark.streaming.plan import StreamPlan


def main() -> None:
    """Stream what is there, in small micro-batches, then end."""
    asked: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    plan = StreamPlan(
        out=asked["out"],
        predicates=tuple(asked["predicates"]),
        give_up_seconds=asked["give_up_seconds"],
        bytes_per_batch_max=asked["bytes_per_batch_max"],
        rows_per_batch_max=asked["rows_per_batch_max"],
        buckets=3,
    )
    settings = {
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": asked["scratch"],
        "spark.sql.warehouse.dir": f"{asked['scratch']}/warehouse",
    }
    spark = open_session("local[2]", settings)
    if asked["address"]:
        pieces = detector_stream(spark, {"address": asked["address"]}, plan)
    else:
        pieces = archive_stream(spark, asked["archive"], plan)
    query = start(pieces, plan, location=asked["archive"], once=True)
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
