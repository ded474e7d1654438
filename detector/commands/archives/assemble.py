"""``stilltrue assemble``: assembles and evaluates the snapshots of fleets behind collectors, with Spark."""

from __future__ import annotations

from pathlib import Path

import click

from detector.assembly.cluster import Cluster, RecordsUnavailableError, read_properties
from detector.commands.options import completed_names as names
from detector.commands.options.finite_range import FiniteRange
from detector.commands.options.shared_options import FILE, metrics_option
from detector.commands.shared.run import CommandError
from detector.ops.address import Address
from detector.ops.files.location import absolute
from detector.ops.progress_lines import ProgressLines

EPILOG = """\b
Examples:
  stilltrue assemble --kafka 127.0.0.1:9092 --out verdicts
  stilltrue assemble --kafka kafka:9092 --out s3://bucket/verdicts --state /shared/state --master spark://host:7077

The coordinators ('stilltrue serve --kafka') choose what to evaluate; the verdicts go back to them, and as a table to
OUT/verdicts. Stop it at any time, in any way, and restart it with the same --out and --state: no verdict is lost or
duplicated. Needs Java 17 or newer, and: pip install 'stilltrue-detector[spark,kafka]'. Exit code: 0; 2 for wrong usage, no
Kafka or no Java.
"""


@click.command(epilog=EPILOG)
@click.option(
    "--kafka", required=True, metavar="HOST:PORT[,...]",
    help="Kafka's address, or a URI or directory to use instead; the same as the coordinators'.",
)  # fmt: skip
@click.option("--kafka-topics", default="stilltrue", show_default=True, help="Prefix of the topic names.")
@click.option("--kafka-config", type=FILE, help="File with KEY=VALUE lines for Kafka's client.")
@click.option("--out", required=True, shell_complete=names.folders, help="Directory or URI for the verdicts.")
@click.option(
    "--state", type=click.Path(file_okay=False, path_type=Path),
    help="Directory for the state, shared by all workers; default: inside --out, if that is a directory.",
)  # fmt: skip
@click.option("--master", envvar="STILLTRUE_MASTER", help="Spark master URL; default: all cores of this machine.")
@click.option(
    "--give-up-seconds", type=FiniteRange(min=1), default=120.0, show_default=True,
    help="How long to wait for the records of a snapshot, by Kafka's clock.",
)  # fmt: skip
@click.option(
    "--report-bytes-max", default=16 * 2**20, show_default=True, type=click.IntRange(1024, 2**30), help="Limit for one report."
)
@click.option(
    "--partitions", default=4, show_default=True, type=click.IntRange(1, 10_000),
    help="Number of tasks that share the snapshots of all fleets; fixed at the first start.",
)  # fmt: skip
@metrics_option("STILLTRUE_ASSEMBLE_METRICS", "lag, snapshots pending and given up, late records, batch durations")
@click.option("--once", is_flag=True, help="Process the available records, then exit.")
def assemble(
    kafka: str,
    kafka_topics: str,
    kafka_config: Path | None,
    out: str,
    state: Path | None,
    master: str | None,
    give_up_seconds: float,
    report_bytes_max: int,
    partitions: int,
    metrics: Address | None,
    *,
    once: bool,
) -> None:
    """Assemble and evaluate snapshots until SIGINT or SIGTERM."""
    if "://" in out and state is None:
        raise CommandError(f"--out {out} is a URI: the state needs a local directory, --state DIR")
    try:
        from detector.spark.assembly.query import AssemblyPlan, run  # noqa: PLC0415 - Spark and Kafka are extras
        from detector.spark.streaming.query import StreamFailedError  # noqa: PLC0415
    except ImportError as error:
        text = (
            f"the assembly needs PySpark, pyarrow and Kafka's client ({error}): pip install 'stilltrue-detector[spark,kafka]'"
        )
        raise CommandError(text) from None
    try:
        properties = read_properties(kafka_config)
        plan = AssemblyPlan(
            cluster=Cluster(kafka, topics=kafka_topics, properties=properties, record_bytes_max=report_bytes_max),
            out=absolute(out),
            state=(state or Path(out) / "_assembly").absolute(),
            give_up_seconds=give_up_seconds,
            partitions=partitions,
            once=once,
        )
        run(plan, master, ProgressLines(), metrics)
    except (RecordsUnavailableError, StreamFailedError) as error:
        raise CommandError(str(error)) from None
