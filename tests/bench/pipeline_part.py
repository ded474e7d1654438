"""One part of the pipeline's bench in one Spark session; prints a line of JSON for each thing measured."""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from detector.archive.units import open_archive
from detector.spark.batch import table, verdicts_of_archive, verdicts_of_reports
from detector.spark.giant.numbering import number_names
from detector.spark.giant.reduction import reduce_giant
from detector.spark.session import open_session

WARM_TURNS = 3


def main() -> None:
    """Measure one part."""
    options = argparse.ArgumentParser()
    options.add_argument("part", choices=["batch", "shuffle", "plain", "giant", "names"])
    options.add_argument("folder", type=Path)
    options.add_argument("--master", default="local[2]")
    options.add_argument("--parties", type=int, default=0)
    asked = options.parse_args()
    spark = open_session(asked.master)
    PARTS[asked.part](spark, asked)
    spark.stop()


def _batch(spark: SparkSession, asked: argparse.Namespace) -> None:
    archive = open_archive(str(asked.folder))
    reports = archive.rows("reports")
    _turns("whole files", reports, lambda: _drain(verdicts_of_archive(spark, archive, ["deadlock"])))


def _shuffle(spark: SparkSession, asked: argparse.Namespace) -> None:
    archive = open_archive(str(asked.folder))
    reports = archive.rows("reports")
    rows, headers = table(spark, archive, "reports"), table(spark, archive, "snapshots")
    _turns("shuffle", reports, lambda: _drain(verdicts_of_reports(rows, ["deadlock"], headers=headers, rows=reports)))


def _plain(spark: SparkSession, asked: argparse.Namespace) -> None:
    """Joins and pandas, on the same archive as the others; all ways must find as many snapshots with a deadlock."""
    ways = import_module("plain_ways")
    archive = open_archive(str(asked.folder))
    reports = archive.rows("reports")
    rows = table(spark, archive, "reports")
    verdicts = verdicts_of_archive(spark, archive, ["deadlock"])
    wanted = verdicts.where("holds = 'true'").count()
    for name, way in (("DataFrame joins", ways.by_joins), ("pandas, a snapshot a call", ways.by_pandas)):
        turns = [_timed(partial(way, rows)) for _ in range(2)]  # the first one is cold
        found, seconds = turns[-1]
        assert found == wanted, (name, found, wanted)
        _say(name=name, seconds=seconds, count=reports)


def _giant(spark: SparkSession, asked: argparse.Namespace) -> None:
    spark.range(2).count()
    with _Peak() as peak:
        found, seconds = _timed(lambda: reduce_giant(spark, str(asked.folder), asked.parties, str(asked.folder.parent)))
    how = {"blocked": found.blocked, "rounds": found.rounds, "shards": found.shards}
    _say(name=asked.folder.name, seconds=seconds, peak_megabytes=peak.megabytes, **how)


def _names(spark: SparkSession, asked: argparse.Namespace) -> None:
    """A graph with names: numbers for them, then the reduction."""
    spark.range(2).count()
    work = f"{asked.folder}-numbered"
    with _Peak() as peak:
        numbered, seconds = _timed(lambda: number_names(spark, str(asked.folder), work))
    _say(name="numbers for the names", seconds=seconds, parties=numbered.parties, peak_megabytes=peak.megabytes)
    with _Peak() as peak:
        found, seconds = _timed(lambda: reduce_giant(spark, numbered.waits, numbered.parties, work))
    _say(name="and the reduction", seconds=seconds, blocked=found.blocked, peak_megabytes=peak.megabytes)


class _Peak:
    """The largest memory (VmHWM) of any Python process below this one, looked at ten times a second."""

    def __init__(self) -> None:
        self.megabytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            self.megabytes = max([self.megabytes, *map(_megabytes, _below("self"))])


def _below(process: str) -> list[str]:
    """The processes that a process has started, and theirs."""
    found = []
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            own = children.read_text().split()
        except OSError:
            continue
        found += [*own, *(deeper for child in own for deeper in _below(child))]
    return found


def _megabytes(process: str) -> int:
    try:
        told = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    except OSError:
        return 0
    return int(told.get("VmHWM", "0").split()[0]) // 1024 if "python" in told["Name"] else 0


def _turns(name: str, count: int, work: Callable[[], None]) -> None:
    """Once cold, then the fastest of a few warm ones."""
    _say(name=f"{name}, cold", seconds=_timed(work)[1], count=count)
    _say(name=name, seconds=min(_timed(work)[1] for _ in range(WARM_TURNS)), count=count)


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.monotonic()
    found = work()
    return found, time.monotonic() - began


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _say(**told: Any) -> None:
    print(json.dumps(told), flush=True)


PARTS = {"batch": _batch, "shuffle": _shuffle, "plain": _plain, "giant": _giant, "names": _names}

if __name__ == "__main__":
    main()
