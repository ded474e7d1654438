"""``stilltrue simulate``: seeded worlds checked by the oracle, one world step by step, or a scenario file."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from detector.commands.shared.render import GAP
from detector.simulator.campaign import BREACHES_KEPT_MAX, Broken, Summary, campaign, jobs
from detector.simulator.checks.exploration import SMALL_WORLDS, explore
from detector.simulator.diagram import diagram
from detector.simulator.mutants.hunt import hunt
from detector.simulator.mutants.table import MUTANTS
from detector.simulator.plans import recipes
from detector.simulator.run import Run
from detector.simulator.scenario.language import ScenarioError
from detector.simulator.scenario.run import run_scenario
from stilltrue.model import Holds

_EXAMPLES = """
\b
Examples:
  stilltrue simulate                                      1,000 worlds of all kinds
  stilltrue simulate --seeds 0..100000                    many worlds, on all cores
  stilltrue simulate --world pools --seed 17 --trace      one world, step by step
  stilltrue simulate --world fans --processes 1000 --seeds 0..3
  stilltrue simulate tests/scenarios/single_token.txt --diagram out.svg
  stilltrue simulate --explore                            every interleaving of the small worlds
  stilltrue simulate --mutants                            break each rule on purpose: the table of docs/proofs.md
"""


TABLE_WIDTH_MIN = 120
_COLUMNS = (
    "world", "worlds", "steps", "snapshots", "incomplete", "theorem 1", "deadlocks", "not", "undetermined", "terminated",
    "broken",
)  # fmt: skip
_LEFT_OUT_FIRST = ("theorem 1", "not", "terminated", "steps", "incomplete")
"""Columns that a terminal which is too narrow does not show, in this order."""
REPORT_WORLDS = 1_000
"""Without a terminal, a progress line is printed after this many worlds."""


def _seed_range(_ctx: click.Context, _param: click.Parameter, value: str) -> range:
    """Parse ``A..B``: the seeds from A up to but not including B."""
    match = re.fullmatch(r"(\d+)\.\.(\d+)", value)
    if match is None or int(match[1]) >= int(match[2]):
        raise click.BadParameter(f"{value!r} is not a valid range of seeds: write A..B with A less than B, such as 0..1000")
    return range(int(match[1]), int(match[2]))


@click.command(epilog=_EXAMPLES)
@click.argument("scenario", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--world", type=click.Choice(sorted(recipes.RECIPES)), metavar="KIND",
    help=f"Kind of world: {', '.join(sorted(recipes.RECIPES))}.  [default: all]",
)  # fmt: skip
@click.option(
    "--seeds", callback=_seed_range, metavar="A..B", default="0..1000", show_default=True, help="Run one world per seed."
)
@click.option("--seed", type=click.IntRange(0), help="Run only the world with this seed.")
@click.option("--processes", type=click.IntRange(1, 100_000), help="Number of processes per world.  [default: 2 to 5, by seed]")
@click.option(
    "--cores", type=click.IntRange(1, 256), default=os.cpu_count() or 1, show_default=True, help="Number of cores to use."
)
@click.option("--trace", is_flag=True, help="Print one world step by step.")
@click.option(
    "--diagram",
    "picture",
    envvar=["STILLTRUE_SIMULATE_DIAGRAM", "STILLTRUE_SIMULATE_PICTURE"],
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw one world or scenario as an SVG diagram.",
)
@click.option(
    "--explore",
    "exploring",
    envvar=["STILLTRUE_SIMULATE_EXPLORE", "STILLTRUE_SIMULATE_EXPLORING"],
    is_flag=True,
    help="Explore every interleaving of the small worlds instead.",
)
@click.option(
    "--mutants",
    "mutating",
    envvar=["STILLTRUE_SIMULATE_MUTANTS", "STILLTRUE_SIMULATE_MUTATING"],
    is_flag=True,
    help="Break each rule on purpose and count the worlds until a check catches it.",
)
def simulate(
    *,
    scenario: Path | None,
    world: str | None,
    seeds: range,
    seed: int | None,
    processes: int | None,
    cores: int,
    trace: bool,
    picture: Path | None,
    exploring: bool,
    mutating: bool,
) -> None:
    """Run the real recorder, initiator and predicates in simulated worlds, and check every verdict against ground truth.

    Exit code: 0 every promise was kept; 1 a promise was broken (and the command that replays it is printed).
    """
    console = Console(emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, TABLE_WIDTH_MIN)
    if scenario is not None:
        _scenario(scenario, picture)
    elif exploring:
        _explore(console)
    elif mutating:
        _mutants(console)
    elif seed is not None or trace or picture is not None:
        _one(world or "pools", seed if seed is not None else seeds.start, processes, trace=trace, picture=picture)
    else:
        _many([world] if world else [], seeds, processes, cores, console)


def _many(names: list[str], seeds: range, processes: int | None, cores: int, console: Console) -> None:
    todo = jobs(names, seeds, processes)
    summaries: dict[str, Summary] = {}
    broken: list[Broken] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    done = 0
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("worlds", total=len(todo))
        for chunk in campaign(todo, cores=cores):
            for job, tally, breach in chunk:
                summaries.setdefault(job.name, Summary(name=job.name)).add(tally, broken=bool(breach))
                if breach:
                    broken.append(Broken(job=job, breach=breach))
                    progress.console.print(
                        f"{breach}\n    {job.line}", markup=False, highlight=False, soft_wrap=True
                    )  # at once
            progress.update(task, advance=len(chunk), description=f"worlds ({len(broken)} broken)" if broken else "worlds")
            done, before = done + len(chunk), done
            if not progress.console.is_terminal and done // REPORT_WORLDS > before // REPORT_WORLDS:
                progress.console.print(f"{done:,} of {len(todo):,} worlds, {len(broken):,} broken", highlight=False)
    console.print(_table([summaries[name] for name in sorted(summaries)], console.width))
    for one in broken[:BREACHES_KEPT_MAX]:  # repeated below the table
        click.echo(f"{one.breach}\n    {one.job.line}")
    total = sum(summary.snapshots for summary in summaries.values())
    click.echo(f"{len(todo):,} worlds, {total:,} snapshots: {_outcome(len(broken))}")
    raise SystemExit(1 if broken else 0)


def _outcome(broken: int) -> str:
    return "every promise was kept" if not broken else f"{broken:,} worlds broke a promise"


def _table(summaries: list[Summary], width: int) -> Table:
    """A row for each kind of world; without the columns that do not fit."""
    rows = [_COLUMNS, *map(_row, summaries)]
    shown = list(range(len(_COLUMNS)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name in _LEFT_OUT_FIRST:
        if sum(widths[index] + GAP for index in shown) - GAP > width:
            shown.remove(_COLUMNS.index(name))
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
    for index in shown:
        table.add_column(_COLUMNS[index], justify="right" if index else "left", no_wrap=True)
    for row in rows[1:]:
        table.add_row(*(row[index] for index in shown))
    return table


def _row(one: Summary) -> tuple[str, ...]:
    deadlock = one.verdicts.get("deadlock", dict.fromkeys(Holds, 0))
    ended = one.verdicts.get("termination", dict.fromkeys(Holds, 0))
    numbers = (one.runs, one.steps, one.snapshots, one.incomplete, one.theorems)
    verdicts = (deadlock[Holds.TRUE], deadlock[Holds.FALSE], deadlock[Holds.UNDETERMINED], ended[Holds.TRUE])
    return one.name, *(f"{number:,}" for number in (*numbers, *verdicts, one.broken))


def _one(name: str, seed: int, processes: int | None, *, trace: bool, picture: Path | None) -> None:
    run = Run(recipes.plan(name, seed, processes), story=[])
    result = run.play()
    if trace:
        click.echo("\n".join(result.story))
    if picture is not None:
        picture.write_text(diagram(run.world.events, title=f"world {name}, seed {seed}"), encoding="utf-8")
        click.echo(f"wrote {picture}")
    tally = result.tally
    click.echo(f"world {name}, seed {seed}: {tally.steps} steps, {tally.snapshots} snapshots: {_outcome(len(result.breaches))}")
    for breach in result.breaches:
        click.echo(f"    {breach}")
    raise SystemExit(1 if result.breaches else 0)


def _scenario(path: Path, picture: Path | None) -> None:
    try:
        outcome = run_scenario(path.read_text(encoding="utf-8"))
    except (ScenarioError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{path}: {error}") from error
    for line in outcome.printed:
        click.echo(line)
    if picture is not None:
        picture.write_text(diagram(outcome.events, title=path.stem), encoding="utf-8")
        click.echo(f"wrote {picture}")


def _explore(console: Console) -> None:
    table = Table("world", box=None, pad_edge=False)
    for name in ("processes", "states", "steps", "ends", "snapshots", "broken"):
        table.add_column(name, no_wrap=True)
    broken = 0
    with console.status("exploring") as status:
        for plan in SMALL_WORLDS:
            status.update(f"exploring {plan.name}")
            found = explore(plan)
            broken += len(found.breaches)
            counts = (len(plan.instances), found.states, found.steps, found.ends, found.snapshots, len(found.breaches))
            name = plan.name if found.whole else f"{plan.name} (stopped)"
            table.add_row(name, *(f"{count:,}" for count in counts))
    console.print(table)
    raise SystemExit(1 if broken else 0)


def _mutants(console: Console) -> None:
    table = Table("rule", "mutant", "caught after (worlds)", "by", box=None, pad_edge=False)
    missed = 0
    with console.status("hunting") as status:
        for mutant in MUTANTS:
            status.update(f"hunting {mutant.name}")
            caught = hunt(mutant)
            missed += caught is None
            table.add_row(mutant.rule, mutant.name, *((f"{caught.worlds:,}", caught.promise) if caught else ("not caught", "")))
    console.print(table)
    raise SystemExit(1 if missed else 0)
