"""The nemesis: seeded rounds of a deadlock that comes and goes, under faults and hostile outsiders; the oracle looks on.

``python -m tests.chaos.nemesis --seed 7 --seconds 600``. Ends with 1, and says the seed, when a promise is broken. With
``--ask-seconds 1`` it asks less often, which leaves more of the processors to others.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
from pathlib import Path

from tests.chaos import faults, outsiders
from tests.chaos.fleet import Fleet
from tests.chaos.oracle import BreachError
from tests.chaos.rounds import ACTS, NAMES, Nemesis

assert {faults.__name__, outsiders.__name__} == {run.__module__ for run in ACTS.values()}


async def play(seed: int, seconds: float, folder: Path, ask_seconds: float = 0.05) -> str:
    """One run: what happened, in a line. Raises :class:`BreachError`."""
    fleet = Fleet(folder, NAMES)
    try:
        await fleet.open()
        nemesis = Nemesis(fleet, seed, seconds, ask_seconds)
        await nemesis.run()
    finally:
        await fleet.close()
    acts = ", ".join(f"{name} {count}" for name, count in sorted(nemesis.done.items()))
    answers = ", ".join(f"{name.removeprefix('HOLDS_')} {count}" for name, count in sorted(nemesis.oracle.answers.items()))
    return (
        f"seed {seed}, {seconds:g} s: no breach; answers: {answers}; unanswered {nemesis.unanswered}; "
        f"starved {nemesis.starved}; {nemesis.holdings.summary()}; {acts}"
    )


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--ask-seconds", type=float, default=0.05, help="pause between two questions")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="stilltrue-chaos-"))
    try:
        told = asyncio.run(play(given.seed, given.seconds, folder, given.ask_seconds))
    except BreachError as breach:
        sys.exit(f"seed {given.seed}: {breach} (logs: {folder})")
    sys.stdout.write(f"{told}\n")
    os._exit(0)  # gRPC's threads need not be waited for


if __name__ == "__main__":
    main()
