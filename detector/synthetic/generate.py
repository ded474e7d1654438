"""Writes archives of a synthetic fleet, with the planted truth in ``truth.json``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from detector.analysis.assembly import assembled
from detector.archive.files import ArchiveError, ArchiveFiles, day_of
from detector.archive.rows.schema import SNAPSHOTS
from detector.ops.process.worker_processes import WorkerPool
from detector.synthetic.fleet import FleetColumns
from detector.synthetic.fleet_model import Fleet, Ring

Edge = tuple[str, str, float]
REPORTS_PER_FILE = 60_000
FILES_PER_JOB = 4
"""With fewer files for each, more processes are not worth their start-up time."""
RING_POOL = 2
SNAPSHOTS_PER_RING = 2
"""With fewer snapshots per ring, nothing is planted."""
ENDED_SECONDS = 0.05
TRUTH = "truth.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivePlan:
    """The archive to generate. ``load``: mean calls from outside per process; ``begun``: start of snapshot 1, seconds."""

    processes: int
    snapshots: int
    begun: float
    period_seconds: float = 60.0
    incidents: int = 4
    near_misses: int = 4
    load: float = 0.5
    missing_share: float = 0.01
    seed: int = 1


def generate(
    store: ArchiveFiles,
    plan: ArchivePlan,
    edges: Sequence[tuple[str, str, float]] = (),
    progress: Callable[[int], None] = print,
    jobs: int = 1,
) -> None:
    """Write the archive that ``plan`` describes; call ``progress`` with the number of snapshots done.

    Parameters
    ----------
    edges : a call graph of services, ``(caller, callee, weight)``, of which the busiest are used; empty: a random one.
    jobs : the number of processes that write files; the archive does not depend on it.
    """
    random = np.random.default_rng(plan.seed)
    fleet = _fleet(plan.processes, list(edges) or _random_graph(plan.processes, random), random)
    rings = _rings(plan, fleet, random)
    pools = fleet.pools.copy()
    pools[[member for ring in rings for member in ring.members]] = RING_POOL
    fleet = Fleet(names=fleet.names, pools=pools, callers=fleet.callers, callees=fleet.callees, weights=fleet.weights)
    shared = (store.location, plan, fleet, rings)
    pieces = list(_pieces(plan))
    if jobs == 1 or len(pieces) < FILES_PER_JOB * jobs:
        _init_worker(*shared)
        for first, count in pieces:
            progress(_write(first, count))
    else:
        with WorkerPool(jobs, _init_worker, *shared) as pool:
            for done in pool.map(_write, *zip(*pieces, strict=True)):
                progress(done)
    _write_truth(store, plan, fleet, rings)


class _Worker:
    """The state of a worker process, so that the fleet is built once and not for each file."""

    def __init__(self, location: str, plan: ArchivePlan, fleet: Fleet, rings: Sequence[Ring]) -> None:
        self.store = ArchiveFiles(location)
        self.plan = plan
        self.members = fleet.names
        self.columns = FleetColumns(fleet, rings, seed=plan.seed, period_seconds=plan.period_seconds, begun=plan.begun)


_WORKER: list[_Worker] = []
"""The state of this process; the initializer of a pool can pass it only through a global."""


def _init_worker(location: str, plan: ArchivePlan, fleet: Fleet, rings: Sequence[Ring]) -> None:
    _WORKER[:] = [_Worker(location, plan, fleet, rings)]


def _write(first: int, count: int) -> int:
    """Write the files of ``count`` snapshots from ``first``; return the last snapshot's number."""
    worker = _WORKER[0]
    reports = worker.columns.reports(first, count, load=_load(worker.plan, first), missing_share=worker.plan.missing_share)
    day = day_of(worker.plan.begun + worker.plan.period_seconds * (first - 1))
    worker.store.write("reports", day, reports)
    worker.store.write("snapshots", day, _snapshots(reports, worker.members))
    return first + count - 1


def _pieces(plan: ArchivePlan) -> Iterator[tuple[int, int]]:
    """Yield the first snapshot and the number of snapshots of each file."""
    first = 1
    while first <= plan.snapshots:
        count = _file_size(plan, first)
        yield first, count
        first += count


def read_graph(path: Path) -> list[Edge]:
    """Read a call graph in Jaeger's format: a list (or ``data``) of objects with ``parent``, ``child``, ``callCount``."""
    try:
        raw = json.loads(path.read_text())
        rows = raw["data"] if isinstance(raw, dict) else raw
        return [(str(row["parent"]), str(row["child"]), float(row["callCount"])) for row in rows]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArchiveError(f"{path}: not a call graph (a list of parent, child, callCount): {error}") from None


def _load(plan: ArchivePlan, first: int) -> float:
    """Return the load at a snapshot, which is higher by day than by night."""
    hour = (plan.begun + plan.period_seconds * (first - 1)) / 3600 % 24
    return plan.load * (1 + 0.5 * float(np.sin((hour - 9) / 24 * 2 * np.pi)))


def _file_size(plan: ArchivePlan, first: int) -> int:
    """Return the number of snapshots of a file, which are all of one day."""
    now = plan.begun + plan.period_seconds * (first - 1)
    left = int((86_400 - now % 86_400) // plan.period_seconds) + 1
    while left > 1 and day_of(now + plan.period_seconds * (left - 1)) != day_of(now):
        left -= 1
    return max(1, min(left, REPORTS_PER_FILE // plan.processes, plan.snapshots - first + 1))


def _snapshots(reports: pa.Table, members: Sequence[str]) -> pa.Table:
    """Return the rows of ``snapshots`` as the detector writes them, with the names of missing members."""
    rows = assembled(reports)
    numbers, missing = reports.column("snapshot").to_numpy(), rows.column("missing").to_pylist()
    processes = reports.column("process")
    for at, number in enumerate(rows.column("snapshot").to_pylist()):
        if missing[at]:
            low, high = np.searchsorted(numbers, (number, number + 1)).tolist()
            absent = sorted(set(members) - set(processes[low:high].to_pylist()))
            missing[at] = [{"service": name.rsplit("-", 1)[0], "instance": name, "incarnation": 1} for name in absent]
    replaced = {
        "missing": pa.array(missing, SNAPSHOTS.field("missing").type),
        "ended": pc.add(rows.column("begun"), ENDED_SECONDS),
        "begun_by": pa.repeat("period", rows.num_rows),
    }
    return pa.table([replaced.get(name, rows.column(name)) for name in SNAPSHOTS.names], schema=SNAPSHOTS)


def _random_graph(services: int, random: np.random.Generator) -> list[Edge]:
    """Return a layered call graph with some calls back: each service calls up to four others, mostly later ones."""
    edges = []
    for caller in range(services):
        for _ in range(int(random.integers(1, 5))):
            later = caller < services - 1 and random.random() < 0.9
            callee = int(random.integers(caller + 1, services)) if later else int(random.integers(0, services))
            if callee != caller:
                edges.append((f"service{caller:04d}", f"service{callee:04d}", float(random.integers(1, 100))))
    return edges


def _fleet(processes: int, edges: list[Edge], random: np.random.Generator) -> Fleet:
    """Return a fleet of the busiest services of a call graph, with one process or more for each."""
    calls: dict[str, float] = {}
    for caller, callee, weight in edges:
        calls[caller] = calls.get(caller, 0.0) + weight
        calls[callee] = calls.get(callee, 0.0) + weight
    services = sorted(calls, key=lambda name: (-calls[name], name))[:processes]
    chosen = {name: at for at, name in enumerate(services)}
    kept = [(chosen[a], chosen[b], weight) for a, b, weight in edges if a in chosen and b in chosen and a != b]
    if len(services) < 4 or not kept:
        raise ArchiveError("the call graph has too few services that call each other")
    count = len(services)
    names = [f"{services[at % count]}-{at // count}" for at in range(processes)]
    copies = [(a + turn, b + turn, weight) for turn in range(0, processes, count) for a, b, weight in kept]
    inside = [(a, b, np.sqrt(weight)) for a, b, weight in copies if a < processes and b < processes]
    weights = np.asarray([weight for *_, weight in inside])
    return Fleet(
        names=names,
        pools=random.integers(6, 17, processes),
        callers=np.asarray([a for a, *_ in inside], np.int64),
        callees=np.asarray([b for _, b, _ in inside], np.int64),
        weights=weights / weights.sum(),
    )


def _rings(plan: ArchivePlan, fleet: Fleet, random: np.random.Generator) -> list[Ring]:
    """Return planted rings, one after the other in time. Each set of processes has two on average, so that rings recur."""
    total = plan.incidents + plan.near_misses
    if not total or plan.snapshots < SNAPSHOTS_PER_RING * total:
        return []
    sizes = random.integers(2, 5, (total + 1) // 2)
    sizes = sizes[np.cumsum(sizes) <= len(fleet.names)]  # a process is in one ring, so a small fleet has fewer of them
    members = random.permutation(len(fleet.names))
    places = [tuple(part.tolist()) for part in np.split(members[: sizes.sum()], np.cumsum(sizes)[:-1])]
    near = np.zeros(total, np.bool_)
    near[random.permutation(total)[: plan.near_misses]] = True
    slot = plan.snapshots // total
    rings = []
    for number in range(total):
        first = 2 + number * slot + int(random.integers(0, max(1, slot // 3)))
        length = int(random.integers(1, max(2, min(slot // 2, 40))))
        formed = plan.begun + plan.period_seconds * (first - 1) - float(random.uniform(0.1, 0.9)) * plan.period_seconds
        place = places[int(random.integers(0, len(places)))]
        last = min(first + length - 1, plan.snapshots)
        rings.append(Ring(number=number, members=place, first=first, last=last, formed=formed, near_miss=bool(near[number])))
    return rings


def _write_truth(store: ArchiveFiles, plan: ArchivePlan, fleet: Fleet, rings: Sequence[Ring]) -> None:
    truth: dict[str, Any] = {
        "snapshots": plan.snapshots,
        "processes": plan.processes,
        "period_seconds": plan.period_seconds,
        "planted": [
            {
                "kind": "near miss" if ring.near_miss else "deadlock",
                "processes": sorted(fleet.names[member] for member in ring.members),
                "first_snapshot": ring.first,
                "last_snapshot": ring.last,
                "formed": ring.formed,
            }
            for ring in rings
        ],
    }
    with store.filesystem.open_output_stream(f"{store.root}/{TRUTH}") as sink:
        sink.write((json.dumps(truth, indent=1) + "\n").encode())
