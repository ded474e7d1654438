"""Measures the pipeline on this machine: `python tests/bench/pipeline.py [--giant 10000000]` prints a table."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from detector.archive.generate import Plan, generate
from detector.archive.store import Store
from detector.spark.evaluate import verdicts_of_archive, verdicts_of_reports
from detector.spark.giant import reduce_giant
from detector.spark.session import open_session
from detector.spark.tables import open_archive, table

RING = 1000


def main() -> None:
    """Generate, evaluate in three ways, reduce giants."""
    options = argparse.ArgumentParser()
    options.add_argument("--snapshots", type=int, default=10_000)
    options.add_argument("--giant", type=int, default=10_000_000, help="targets of the giant graphs; 0: none")
    options.add_argument("--master", default="local[2]")
    asked = options.parse_args()
    spark = open_session(asked.master)
    with tempfile.TemporaryDirectory() as folder:
        _batch(spark, Path(folder), asked.snapshots)
        if asked.giant:
            _giants(spark, Path(folder), asked.giant)
    spark.stop()


def _batch(spark: SparkSession, folder: Path, snapshots: int) -> None:
    plan = Plan(processes=100, snapshots=snapshots, begun=1.79e9, incidents=10, near_misses=10)
    began = time.monotonic()
    generate(Store(str(folder / "archive")), plan, progress=lambda _: None)
    archive = open_archive(str(folder / "archive"))
    reports = archive.rows("reports")
    _say("generate", time.monotonic() - began, reports, "reports")
    for turn in ("cold", "warm", "warm"):
        _time(f"whole files, {turn}", reports, lambda: _drain(verdicts_of_archive(spark, archive, ["deadlock"])))
    rows, headers = table(spark, archive, "reports"), table(spark, archive, "snapshots")
    for turn in ("cold", "warm"):
        work = verdicts_of_reports(rows, ["deadlock"], headers=headers, rows=reports)
        _time(f"reports with a shuffle, {turn}", reports, partial(_drain, work))


def _giants(spark: SparkSession, folder: Path, targets: int) -> None:
    random = np.random.default_rng(1)
    order = random.permutation(targets + 1)
    chain = (order[:-1], np.ones(targets, np.int32), np.ones(targets, np.int32), order[1:])
    half = targets // 2
    ring = np.arange(RING)
    some = random.random(half) < 0.95
    waiter = np.flatnonzero(some)
    sizes = random.integers(1, 4, len(waiter)).astype(np.int32)
    needs = (random.random(len(waiter)) * sizes).astype(np.int32) + 1
    k_of_n = (
        np.concatenate((waiter, half + ring)),
        np.concatenate((needs, np.ones(RING, np.int32))),
        np.concatenate((sizes, np.ones(RING, np.int32))),
        np.concatenate((random.integers(0, half, sizes.sum()), half + (ring + 1) % RING)),
    )
    star = (
        np.arange(targets + 1),
        np.append(np.int32(targets), np.ones(targets, np.int32)),
        np.append(np.int32(targets), np.ones(targets, np.int32)),
        np.concatenate((np.arange(1, targets + 1), np.zeros(targets, np.int64))),
    )
    for name, (waiters, needed, counts, among) in {"k-of-n": k_of_n, "shuffled chain": chain, "star": star}.items():
        place = folder / name.replace(" ", "-")
        place.mkdir()
        offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(among.astype(np.int64)))
        pq.write_table(
            pa.table({"waiter": pa.array(waiters.astype(np.int64)), "needs": pa.array(needed), "among": lists}),
            place / "waits.parquet",
            row_group_size=1_000_000,
        )
        parties = int(max(waiters.max(), among.max())) + 1
        began = time.monotonic()
        found = reduce_giant(spark, str(place), parties, str(folder))
        told = f"giant {name}: {found.blocked} left, {found.rounds} rounds, {found.shards} shards"
        _say(told, time.monotonic() - began, len(among), "targets")


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _time(name: str, count: int, work: Callable[[], None]) -> None:
    began = time.monotonic()
    work()
    _say(name, time.monotonic() - began, count, "reports")


def _say(name: str, seconds: float, count: int, unit: str) -> None:
    print(f"{name:70} {seconds:8.1f} s {count / seconds / 1000:10.0f}k {unit}/s", flush=True)


if __name__ == "__main__":
    main()
