"""Runs many seeds on several cores; reports totals per world, and the runs that violated a promise."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context

from detector.simulator import run
from detector.simulator.plans import recipes
from detector.simulator.run import Result
from detector.simulator.simulated_detector import Tally
from stilltrue.model import Holds

CHUNK_WORLDS = 50
BREACHES_KEPT_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run of a world with a seed. ``processes``: None to let the seed choose their number."""

    name: str
    seed: int
    processes: int | None = None

    @property
    def line(self) -> str:
        """The command that replays the run."""
        processes = f" --processes {self.processes}" if self.processes else ""
        return f"stilltrue simulate --world {self.name} --seed {self.seed}{processes} --trace"


@dataclass(slots=True, kw_only=True)
class Summary:
    """The counts of all runs of one world."""

    name: str
    runs: int = 0
    steps: int = 0
    snapshots: int = 0
    incomplete: int = 0
    theorems: int = 0
    verdicts: dict[str, dict[Holds, int]] = field(default_factory=dict)
    broken: int = 0

    def add(self, tally: Tally, *, broken: bool) -> None:
        """Count one more run."""
        self.runs += 1
        self.steps += tally.steps
        self.snapshots += tally.snapshots
        self.incomplete += tally.incomplete
        self.theorems += tally.theorems
        self.broken += broken
        for predicate, counts in tally.verdicts.items():
            mine = self.verdicts.setdefault(predicate, dict.fromkeys(Holds, 0))
            for holds, count in counts.items():
                mine[holds] += count


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A run that broke a promise, and the first breach."""

    job: Job
    breach: str


def jobs(names: Sequence[str], seeds: range, processes: int | None = None) -> list[Job]:
    """One job per seed, cycling through the worlds ``names`` (all of them if empty)."""
    chosen = list(names) or list(recipes.RECIPES)
    return [Job(name=chosen[seed % len(chosen)], seed=seed, processes=processes) for seed in seeds]


def campaign(todo: Sequence[Job], *, cores: int = 1) -> Iterator[list[tuple[Job, Tally, str]]]:
    """Run the jobs; yields chunks, in order, of (job, tally, first breach); the breach is empty if there is none."""
    chunks = [todo[at : at + CHUNK_WORLDS] for at in range(0, len(todo), CHUNK_WORLDS)]
    if cores <= 1 or len(chunks) == 1:
        yield from map(_chunk, chunks)
        return
    # Ctrl-C reaches all processes of a terminal; the workers ignore it, so that only this process reports it and ends them
    with get_context("spawn").Pool(cores, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        yield from pool.imap(_chunk, chunks)


def _chunk(todo: Sequence[Job]) -> list[tuple[Job, Tally, str]]:
    return [(job, *_outcome(job)) for job in todo]


def _outcome(job: Job) -> tuple[Tally, str]:
    try:
        result: Result = run.play(job.name, job.seed, job.processes)
    except Exception as error:  # noqa: BLE001  (any exception of the code under test is a finding)
        return Tally(), f"{type(error).__name__}: {error} ({traceback.format_exc(limit=-1).splitlines()[-3].strip()})"
    return result.tally, result.breaches[0] if result.breaches else ""
