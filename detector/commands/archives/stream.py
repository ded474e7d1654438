"""``stilltrue stream``: evaluates the snapshots of an archive or a live detector as they arrive, each exactly once."""

from __future__ import annotations

from typing import Any

import click

from detector.commands.options import completed_names as names
from detector.commands.options.finite_range import FiniteRange
from detector.commands.options.shared_options import metrics_option, predicate_settings
from detector.commands.shared.connection import security_options
from detector.commands.shared.run import CommandError
from detector.ops.address import Address
from detector.ops.files.location import absolute
from detector.ops.progress_lines import ProgressLines
from stilltrue.runtime.membership.credentials import Security

EPILOG = """\b
Examples:
  stilltrue stream stilltrue-data/archive --out verdicts --once
  stilltrue stream --detector 127.0.0.1:7600 --out verdicts
  stilltrue stream s3://bucket/archive --out s3://bucket/verdicts --master spark://host:7077 --predicate termination

Stop it at any time, in any way, and restart it with the same --out: it continues where it stopped, and no verdict is lost or
duplicated. Needs Java 17 or newer, and: pip install 'stilltrue-detector[spark]'. Exit code: 0; 2 for wrong usage, no input
or no Java.
"""


@click.command(epilog=EPILOG)
@click.argument("archive", required=False, shell_complete=names.folders)
@click.option(
    "--out",
    required=True,
    shell_complete=names.folders,
    envvar="STILLTRUE_OUT",
    help="Directory or URI for the verdicts and the stream's state; all workers must reach it.",
)
@click.option(
    "--state",
    envvar="STILLTRUE_STATE",
    show_envvar=True,
    help="Directory or URI for the stream's state, if not --out; all workers must reach it.",
)
@click.option("--detector", metavar="HOST:PORT", help="Read from this live detector instead of ARCHIVE.")
@security_options
@click.option(
    "--master", envvar="STILLTRUE_MASTER", show_envvar=True, help="Spark master URL; default: all cores of this machine."
)
@click.option(
    "--predicate",
    "predicates",
    multiple=True,
    shell_complete=names.predicates,
    help="Also evaluate this predicate; repeatable. deadlock and gridlock are always evaluated.",
)
@click.option(
    "--give-up-seconds", type=FiniteRange(min=0, min_open=True), default=600.0, show_default=True,
    help="Finish a snapshot without its missing reports once they are this far behind the newest snapshot.",
)  # fmt: skip
@click.option(
    "--late-seconds", type=FiniteRange(min=0), default=86400.0, show_default=True,
    help="How late a report may be and still correct the verdict of a snapshot that was finished without it.",
)  # fmt: skip
@metrics_option("STILLTRUE_STREAM_METRICS", "lag, snapshots pending and given up, late reports, corrected verdicts")
@click.option("--skip-lost", is_flag=True, help="Continue even if the detector removed rows before they were read.")
@click.option("--once", is_flag=True, help="Process the available snapshots, then exit.")
@predicate_settings("STILLTRUE_STREAM_SET")
def stream(
    archive: str | None,
    *,
    out: str,
    state: str | None,
    detector: str | None,
    security: Security,
    master: str | None,
    predicates: tuple[str, ...],
    settings: dict[str, dict[str, Any]],
    give_up_seconds: float,
    late_seconds: float,
    metrics: Address | None,
    skip_lost: bool,
    once: bool,
) -> None:
    """Write the verdict on every snapshot of ARCHIVE (a directory or URI) or of a live detector, as snapshots arrive."""
    if (archive is None) is (detector is None):
        raise CommandError("name either an ARCHIVE or a --detector")
    given = {
        "address": detector,
        "tls_ca_file": security.ca,
        "tls_cert_file": security.certificate,
        "tls_key_file": security.key,
        "token_file": security.token_file,
        "fail_on_data_loss": "false" if skip_lost else None,
    }
    options = {name: value for name, value in given.items() if value}
    if archive is not None and options:
        raise CommandError("certificates, tokens and --skip-lost need --detector")
    try:
        from detector.spark.streaming.query import StreamFailedError, StreamOptions, run  # noqa: PLC0415 - Spark and Arrow are extras
    except ImportError as error:
        text = f"the pipeline needs PySpark 4.2 or newer and pyarrow ({error}): pip install 'stilltrue-detector[spark]'"
        raise CommandError(text) from None
    stream_options = StreamOptions(
        archive=archive, options=options, out=absolute(out), state=absolute(state or ""), master=master,
        predicates=predicates, settings=settings, give_up_seconds=give_up_seconds, late_seconds=late_seconds, metrics=metrics,
        once=once,
    )  # fmt: skip
    try:
        progress = run(stream_options, ProgressLines())
    except StreamFailedError as error:
        raise CommandError(str(error)) from None
    more = [
        f"{count} {text}"
        for count, text in (
            (progress.waiting(), "wait for reports"),
            (progress.given_up(), "finished without some reports"),
            (progress.corrected, "verdicts corrected by late reports"),
            (progress.late, "reports came too late"),
            (len(progress.torn), f"files could not be read ({out}/left_out says why)"),
            (progress.mixed.count(), "left out: detectors without an id have written to the same folder"),
        )
        if count
    ]
    finished = progress.finished_count()
    why = "" if finished or detector is None else " (a detector writes its rows once a minute)"
    click.echo(f"{', '.join([f'{finished} snapshots finished{why}', *more])}; verdicts: {out}/verdicts")
