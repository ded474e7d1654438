"""``stilltrue demo``: runs real gRPC processes that deadlock, and shows the verdict."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import click
from rich.console import Console

from detector.commands.options.finite_range import FiniteRange
from detector.commands.shared.run import EXIT_TERMINATED, CommandError
from detector.demo.demos import DEMOS, Demo
from detector.demo.harness import SAFE_PATH, Harness, HarnessError

DEFAULT_DEMOS = ("pools", "job")
NO_ARCHIVE = (
    "With pyarrow (pip install 'stilltrue-detector[archive]') the detector also archives every snapshot as Parquet, and "
    "'stilltrue analyze' evaluates all of them at once, on this machine or on Spark."
)
_EXAMPLES = """
\b
Examples:
  stilltrue demo                 pools that call in a cycle, a job that ends, an analysis of the archive
  stilltrue demo locks --keep    locks taken in opposite orders; keeps everything running
  stilltrue demo healthy --seconds 60 --period-seconds 0.1
"""


@click.command(epilog=_EXAMPLES)
@click.argument("name", required=False, type=click.Choice(sorted(DEMOS)), metavar="[SCENE]")
@click.option("--keep", is_flag=True, help="Keep everything running until Ctrl-C.")
@click.option("--seconds", default=20.0, show_default=True, type=FiniteRange(1, 86_400), help="How long `healthy` runs.")
@click.option(
    "--period-seconds",
    default=1.0,
    show_default=True,
    type=FiniteRange(0.02, 60),
    help="Interval between snapshots.",
)
@click.option(
    "--dir",
    "folder",
    envvar=["STILLTRUE_DEMO_DIR", "STILLTRUE_DEMO_FOLDER"],
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for logs, data and pictures.  [default: a new temporary directory]",
)
def demo(*, name: str | None, keep: bool, seconds: float, period_seconds: float, folder: Path | None) -> None:
    """Start a detector and real gRPC processes on loopback, let them deadlock, and show the verdict.

    SCENE is pools, locks, job or healthy; by default pools and job run, and the archive of pools is
    analysed (if pyarrow is installed). Everything is stopped at the end.
    """
    console = Console(emoji=False)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells make background jobs ignore SIGINT
    where = folder or Path(tempfile.mkdtemp(prefix="stilltrue-demo-"))
    try:
        for index, demo_name in enumerate((name,) if name else DEFAULT_DEMOS):
            if index:
                console.print()
            console.rule(demo_name)
            _show(demo_name, where / demo_name, console, keep=keep, seconds=seconds, period_seconds=period_seconds)
        if name is None:
            _analyse(where / DEFAULT_DEMOS[0], console)
    except HarnessError as error:
        raise CommandError(str(error)) from error
    finally:
        console.print(f"\nEverything has been stopped. Logs and data: {where}", highlight=False)


def _analyse(folder: Path, console: Console) -> None:
    """Analyse the archive of a demo if pyarrow is installed; otherwise print how to install it."""
    console.print()
    console.rule("the archive")
    if find_spec("pyarrow") is None:
        console.print(NO_ARCHIVE, soft_wrap=True, markup=False, highlight=False)
        return
    out = folder / "analysis"
    console.print("The detector has archived every snapshot as Parquet; the analysis evaluates all of them at once:")
    console.print(f"\n[bold]$ stilltrue analyze {folder}/data/archive --out {out}[/bold]", soft_wrap=True, highlight=False)
    command = [sys.executable, "-m", "detector", "analyze", str(folder / "data" / "archive"), "--out", str(out)]
    with (folder / "analysis.log").open("wb") as log:
        done = subprocess.run(
            command, env={**os.environ, **SAFE_PATH}, stdout=subprocess.PIPE, stderr=log, text=True, check=False
        )
    console.print(done.stdout.strip(), soft_wrap=True, markup=False, highlight=False)
    if done.returncode:
        raise HarnessError(f"the analysis exited with {done.returncode}; see {folder / 'analysis.log'}")


def _show(name: str, folder: Path, console: Console, *, keep: bool, seconds: float, period_seconds: float) -> None:
    with Harness(folder) as harness:
        harness.start_detector("--period-seconds", str(period_seconds))
        console.print(f"The detector listens on {harness.detector}; its web UI: http://{harness.http}/", highlight=False)
        DEMOS[name](Demo(harness, console), seconds)
        if keep:
            console.print(
                f"\nStill running: try [bold]stilltrue ask deadlock --detector {harness.detector}[/bold] "
                f"or http://{harness.http}/, and stop with Ctrl-C.",
                highlight=False,
            )
            with contextlib.suppress(KeyboardInterrupt):
                signal.pause()
