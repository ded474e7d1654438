"""What a fleet costs one detector: ``python -m tests.bench.fleet`` prints a table and a fit.

Each size runs for ``--seconds`` without questions and as long with them, beginning ``--warm`` seconds after the first
snapshot. The load generator is a separate process, and its processor time has its own columns.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from tests.bench.fleet.bodies import Fleet
from tests.bench.fleet.measure import Measured, as_json, measured
from tests.bench.fleet.plot import fitted

HEAD = (
    "| members | joined (s), processor, load | first (s) | snapshots | missing | processor (s) | load (s) "
    "| snapshot p50, p99 (ms) | ask p50, p99 (ms) | health, worst (ms) | memory, peak (MB) | incidents | answers |\n"
    "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n"
)


def _row(one: Measured) -> str:
    return (
        f"| {one.members} | {one.joined:.1f}, {one.join_processor:.1f}, {one.join_load:.1f} | {one.first:.1f} "
        f"| {one.snapshots} | {one.missing} | {one.processor:.3f} | {one.load:.3f} "
        f"| {1000 * one.snapshot_p50:.0f}, {1000 * one.snapshot_p99:.0f} | {1000 * one.ask_p50:.0f}, {1000 * one.ask_p99:.0f} "
        f"| {1000 * one.health_worst:.0f} | {one.memory:.0f}, {one.memory_peak:.0f} | {one.incidents} | {one.holds} |\n"
    )


async def _table(given: argparse.Namespace) -> list[Measured]:
    sys.stdout.write(HEAD)
    found = []
    for members in given.members:
        fleet = Fleet(members=members, churn=given.churn, deadlocks=given.deadlocks)
        one = await measured(
            fleet,
            seconds=given.seconds,
            warm=given.warm,
            serve=tuple(given.serve.split()),
            profile=given.profile,
            whole=given.whole,
        )
        found.append(one)
        sys.stdout.write(_row(one))
        sys.stdout.flush()
    return found


def main() -> None:
    """Print the table, and keep the figures where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("members", type=int, nargs="*", default=[30, 100, 300, 1000])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--warm", type=float, default=3.0)
    parser.add_argument("--churn", type=float, default=0.0, help="share of the fleet whose calls are replaced in each snapshot")
    parser.add_argument("--deadlocks", type=int, default=0, help="deadlocks of two parties in the fleet")
    parser.add_argument("--whole", action="store_true", help="full reports, as old agents send them")
    parser.add_argument("--serve", default="", help="further arguments of the detector, as one text")
    parser.add_argument("--json", type=Path, help="where to append each row as a line of JSON")
    parser.add_argument("--profile", default="", help="where to write py-spy's stacks of the quiet window")
    given = parser.parse_args()
    found = asyncio.run(_table(given))
    if given.json is not None:
        with given.json.open("a") as file:
            file.writelines(as_json(one) + "\n" for one in found)
    if len(found) > 1:
        slope, start = fitted([{"members": one.members, "processor": one.processor} for one in found])
        sys.stdout.write(f"\nprocessor per snapshot: {1000 * start:.0f} ms + {1000 * slope:.3f} ms a member\n")


if __name__ == "__main__":
    main()
