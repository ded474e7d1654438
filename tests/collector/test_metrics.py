"""The metrics of collectors and the assembly are correct, and the alerts use only metrics that exist."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.registry import Collector

from detector.assembly.cluster import RecordsUnavailableError
from detector.collector.metrics import CollectorMetrics, Counts
from detector.ops.exposition import exposed
from detector.spark.assembly.metrics import AssemblyMetrics, read_up_to
from detector.spark.assembly.tally import Tally, TallyFile
from tests.collector.conftest import collected
from tests.collector.kafka_in_memory import KafkaInMemory
from tests.service.conftest import FakeProcess

ROOT = Path(__file__).parents[2]
PROGRESS = {"durationMs": {"triggerExecution": 2500}, "sources": [{"endOffset": '{"0": 7, "1": 9}'}]}


def told(metrics: Collector) -> dict[str, float]:
    return {
        sample.name: sample.value for family in metrics.collect() for sample in family.samples if "_created" not in sample.name
    }


def scraped(url: str) -> dict[str, float]:
    """A collector's, as Prometheus gets them, without what their names begin with."""
    with urlopen(url) as answer:
        lines = [line.split() for line in answer.read().decode().splitlines() if not line.startswith("#")]
    return {name.removeprefix("stilltrue_collector_"): float(value) for name, value in lines}


async def test_a_collector_counts_connections_and_written_and_failed_reports(kafka: KafkaInMemory, tmp_path: Path) -> None:
    async with collected(tmp_path, collectors=1) as detector:
        await detector.join(FakeProcess("a"), FakeProcess("b"))
        await detector.ask("deadlock")
        found = await asyncio.to_thread(scraped, detector.metrics[0])
        assert (found["streams"], found["coordinator_connected"]) == (2.0, 1.0)
        kept = found["reports_total"]
        assert kept >= 2.0
        assert found["report_bytes_total"] > 10 * kept
        assert (found["reports_refused_total"], found["reports_unkept_total"]) == (0.0, 0.0)
        kafka.refuses = b"b"
        await detector.ask("deadlock")
        found = await asyncio.to_thread(scraped, detector.metrics[0])
        assert found["reports_unkept_total"] >= 1.0
        assert found["reports_total"] > kept


def test_the_assemblys_metrics_match_its_tally_and_kafka(tmp_path: Path) -> None:
    file = TallyFile(tmp_path)
    file.add(0, {"begun": 3, "judged": 1, "verdicts": 4, "late": 2})
    file.add(1, {"begun": 1, "judged": 9})
    file.add(1, {"begun": 2, "judged": 2, "given_up": 1, "unasked": 1, "asked": 1})  # made again: it counts once
    assert file.last() == Tally(batch=1, begun=5, judged=3, given_up=1, unasked=1, asked=1, late=2, verdicts=4)
    found = told(AssemblyMetrics(file, lambda: PROGRESS, lambda read: 100 - sum(read.values())))
    assert {name.removeprefix("stilltrue_assembly_"): value for name, value in found.items()} == {
        "snapshots_waiting": 1, "batches": 1, "batch_seconds": 2.5, "lag_records": 84,
        "snapshots_judged_total": 3, "snapshots_given_up_total": 1, "snapshots_unasked_total": 1, "looks_asked_total": 1,
        "records_late_total": 2, "verdicts_total": 4, "kafka_errors_total": 0,
    }  # fmt: skip


def test_an_assembly_without_reads_or_kafka_has_no_lag_metric(tmp_path: Path) -> None:
    def gone(read: object) -> int:
        raise RecordsUnavailableError("it is gone")

    assert read_up_to({"sources": [{"endOffset": None}]}) is None
    assert "stilltrue_assembly_lag_records" not in told(AssemblyMetrics(TallyFile(tmp_path), lambda: None, gone))
    found = told(AssemblyMetrics(TallyFile(tmp_path), lambda: PROGRESS, gone))
    assert (found["stilltrue_assembly_batches"], found["stilltrue_assembly_kafka_errors_total"]) == (-1, 1)
    assert "stilltrue_assembly_lag_records" not in found


def test_the_alerts_name_only_metrics_that_exist(tmp_path: Path) -> None:
    names = {*told(CollectorMetrics(Counts(), lambda: 0, lambda: True))}
    names |= {*told(AssemblyMetrics(TallyFile(tmp_path), lambda: PROGRESS, lambda read: 0))}
    rules = (ROOT / "helm" / "stilltrue" / "files" / "scale-out.rules.yaml").read_text()
    assert set(re.findall(r"\bstilltrue_(?:collector|assembly)_[a-z_]+", rules)) <= names
    for name in re.findall(r"alert: (\w+)", rules):
        page = (ROOT / "docs" / "runbooks" / f"{name}.md").read_text()
        assert f"/docs/runbooks/{name}.md" in rules
        assert all(heading in page for heading in ("## What it means", "## What to look at", "## What to do"))


@pytest.mark.parametrize("name", ["stilltrue_collector_streams", "stilltrue_collector_reports_total"])
def test_the_metrics_are_served_over_http(name: str) -> None:
    metrics = CollectorMetrics(Counts(reports=4), lambda: 4, lambda: True)
    with exposed(metrics, "127.0.0.1", 0) as port, urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        assert f"{name} 4.0" in answer.read().decode()
