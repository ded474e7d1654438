"""``stilltrue check-predicate``: searches for a run in which a predicate holds and later does not, so is not stable."""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress

from detector.commands.shared.run import CommandError
from detector.core.predicate import Predicate
from detector.core.registry import PluginError
from detector.simulator.checks.stability import Counterexample, check
from detector.simulator.diagram import diagram

_EXAMPLES = """
\b
Examples:
  stilltrue check-predicate my_predicates:LeaderGone
  stilltrue check-predicate stilltrue_detector.predicates.deadlock:Deadlock --worlds 2000
  stilltrue check-predicate my_predicates:Busy --diagram why.svg
"""


@click.command(name="check-predicate", epilog=_EXAMPLES)
@click.argument("place", metavar="MODULE:CLASS")
@click.option(
    "--worlds", type=click.IntRange(1, 1_000_000), default=500, show_default=True, help="Number of seeded worlds to try."
)
@click.option(
    "--diagram",
    "picture",
    envvar=["STILLTRUE_CHECK_PREDICATE_DIAGRAM", "STILLTRUE_CHECK_PREDICATE_PICTURE"],
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the counterexample as an SVG diagram.",
)
def check_predicate(*, place: str, worlds: int, picture: Path | None) -> None:
    """Search for a run in which a predicate holds and later does not, shrink it, and print it step by step.

    Exit code: 0 none found; 1 the predicate is not stable; 2 it cannot be loaded, or fails.
    """
    make = _class(place)
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("worlds", total=worlds)
        try:
            found = check(make, worlds=worlds, progress=partial(_advance, progress, task))
        except PluginError as error:
            raise CommandError(f"{place}: {error}") from None
    if found is None:
        click.echo(f"{place}: no counterexample in {worlds:,} worlds (this is not a proof).")
        return
    _show(place, found)
    if picture is not None:
        text = diagram(found.events, snapshot=found.held.snapshot.id, title=f"{place} is not stable")
        picture.write_text(text, encoding="utf-8")
        click.echo(f"wrote {picture}")
    raise SystemExit(1)


def _advance(progress: Progress, task: object, count: int) -> None:
    progress.update(task, completed=count)  # type: ignore[arg-type]


def _show(place: str, found: Counterexample) -> None:
    click.echo(
        f"{place} is not stable: it held in snapshot {found.held.snapshot.id} and not in snapshot {found.fell.snapshot.id}"
    )
    click.echo(f"    held: {found.held.witness.text}")
    click.echo(f"    fell: {found.fell.witness.text}")
    click.echo("The run, minimized:")
    for line in found.story:
        click.echo(f"  {line}")
        if line.endswith(found.fell.witness.text):
            break


def _class(place: str) -> type[Predicate]:
    """Load the predicate class ``module:Class``. Raises ``click.UsageError`` if it is unusable."""
    module, _, name = place.partition(":")
    if not module or not name:
        raise click.UsageError(f"{place!r} is not a valid MODULE:CLASS; for example my_predicates:LeaderGone")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(import_module(module), name)
        made = found()
    except ImportError as error:
        raise click.UsageError(f"{place}: cannot import {module}: {error}") from error
    except AttributeError as error:
        raise click.UsageError(f"{place}: {module} has no {name}") from error
    except TypeError as error:
        raise click.UsageError(f"{place}: {name}() must be callable without arguments: {error}") from error
    if not isinstance(made, Predicate):
        raise click.UsageError(f"{place}: {name} is not a predicate: it must have a name and evaluate(snapshot)")
    assert isinstance(found, type)
    return found
