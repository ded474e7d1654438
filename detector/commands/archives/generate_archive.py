"""``stilltrue generate-archive``: writes the archive of a synthetic fleet, with known deadlocks and near misses."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress

from detector.commands.options import completed_names as names
from detector.commands.options.day import Day
from detector.commands.options.finite_range import FiniteRange
from detector.commands.shared.run import CommandError

EPILOG = """\b
Examples:
  stilltrue generate-archive demo-archive
  stilltrue generate-archive month --processes 1000 --days 30 --incidents 12 --near-misses 8
  stilltrue generate-archive real --graph jaeger-dependencies.json --processes 400 --days 2

The archive's truth.json lists what was planted; `stilltrue analyze` should find exactly that. Exit code: 0; 2 for wrong usage.
"""


@click.command(name="generate-archive", epilog=EPILOG)
@click.argument("archive", shell_complete=names.folders)
@click.option("--processes", type=click.IntRange(4, 1_000_000), default=100, show_default=True, help="Processes in the fleet.")
@click.option("--days", type=FiniteRange(min=0, min_open=True), default=1.0, show_default=True, help="Number of days.")
@click.option("--period-seconds", type=FiniteRange(0.1, 86400), default=60.0, show_default=True, help="Snapshot interval.")
@click.option("--since", type=Day(), default="2026-11-01", show_default=True, help="First day (UTC).")
@click.option("--incidents", type=click.IntRange(0, 1000), default=4, show_default=True, help="Deadlocks to plant.")
@click.option("--near-misses", type=click.IntRange(0, 1000), default=4, show_default=True, help="Near misses to plant.")
@click.option("--load", type=FiniteRange(0, 100), default=0.5, show_default=True, help="Average number of calls per process.")
@click.option(
    "--missing-share", type=FiniteRange(0, 1), default=0.01, show_default=True, help="Incomplete snapshots, as a share."
)
@click.option(
    "--graph",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Call graph exported by Jaeger.",
)
@click.option("--jobs", type=click.IntRange(1, 256), help="Number of writer processes; default: one per core.")
@click.option("--seed", type=int, default=1, show_default=True, help="Random seed; equal seeds give equal archives.")
def generate_archive(
    archive: str,
    *,
    processes: int,
    days: float,
    period_seconds: float,
    since: datetime,
    incidents: int,
    near_misses: int,
    load: float,
    missing_share: float,
    graph: Path | None,
    jobs: int | None,
    seed: int,
) -> None:
    """Write the snapshots of a synthetic fleet to ARCHIVE (a directory, or a URI such as s3://bucket/path)."""
    try:
        from detector.archive.files import ArchiveError, ArchiveFiles  # noqa: PLC0415
        from detector.synthetic.generate import (  # noqa: PLC0415 - pyarrow is an extra
            SNAPSHOTS_PER_RING,
            ArchivePlan,
            generate,
            read_graph,
        )
    except ImportError:
        raise CommandError("archives need pyarrow: pip install 'stilltrue-detector[archive]'") from None
    plan = ArchivePlan(
        processes=processes,
        snapshots=max(1, round(days * 86400 / period_seconds)),
        begun=since.replace(tzinfo=UTC).timestamp(),
        period_seconds=period_seconds,
        incidents=incidents,
        near_misses=near_misses,
        load=load,
        missing_share=missing_share,
        seed=seed,
    )
    if plan.snapshots < SNAPSHOTS_PER_RING * (incidents + near_misses):
        raise CommandError(
            f"{plan.snapshots} snapshots are too few for {incidents} incidents and {near_misses} near misses "
            f"({SNAPSHOTS_PER_RING} for each): plant fewer, or generate more --days"
        )
    console = Console(stderr=True)
    try:
        store = ArchiveFiles(archive)
        if any(store.days(table) for table in ("reports", "snapshots")):
            raise CommandError(f"{archive} already contains an archive: name another directory")
        edges = read_graph(graph) if graph else []
        with Progress(console=console, disable=not console.is_terminal) as bar:
            task = bar.add_task("snapshots", total=plan.snapshots)
            generate(store, plan, edges, lambda done: bar.update(task, completed=done), jobs or os.cpu_count() or 1)
    except (ArchiveError, OSError) as error:
        raise CommandError(str(error)) from None
    click.echo(f"{plan.snapshots} snapshots of {processes} processes in {archive}; ground truth: {archive}/truth.json")
