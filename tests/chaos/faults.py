"""What the nemesis does to the detector, the members, their links, the disk and the clock."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal

import grpc.aio

from tests.chaos.link import State
from tests.chaos.oracle import BreachError
from tests.chaos.rounds import NAMES, Nemesis, act

KILL_UNTIL = 0.5
"""The share of a run after which its detector is not killed any more (rule 1 of ``holdings.py``)."""

LIST_SECONDS_MAX = 10.0


@act
async def detector_is_killed(nemesis: Nemesis) -> None:
    """What was listed a moment before is on disk; ids go on rising; members come back one after the other."""
    fleet, oracle = nemesis.fleet, nemesis.oracle
    if nemesis.passed >= KILL_UNTIL:
        nemesis.done["detector_is_killed"] -= 1
        return
    newest = oracle.newest
    order = nemesis.some()
    for name in order:
        fleet.links[name].set(State.CUT)
    with contextlib.suppress(grpc.aio.AioRpcError, TimeoutError):
        async with asyncio.timeout(LIST_SECONDS_MAX):
            await nemesis.lists()
    await fleet.restart_detector()
    nemesis.forget_channel()
    for name in order:
        await nemesis.pause(0.0, 1.0)
        fleet.links[name].set(State.WHOLE)
    verdict = await nemesis.ask()
    if verdict is not None and verdict.snapshot.id and verdict.snapshot.id <= newest:
        raise BreachError(f"snapshot {verdict.snapshot.id} after {newest}: ids do not rise")


@act
async def detector_is_stopped(nemesis: Nemesis) -> None:
    """It wakes up to leases that ended while nobody could be heard."""
    assert nemesis.fleet.detector is not None
    nemesis.fleet.detector.send(signal.SIGSTOP)
    await nemesis.pause(1.0, 4.0)
    nemesis.fleet.detector.send(signal.SIGCONT)


@act
async def members_are_stopped(nemesis: Nemesis) -> None:
    """For longer than a lease."""
    names = nemesis.some()
    for name in names:
        nemesis.fleet.members[name].send(signal.SIGSTOP)
    await nemesis.pause(0.5, 4.0)
    for name in names:
        nemesis.fleet.members[name].send(signal.SIGCONT)


@act
async def bystander_is_killed(nemesis: Nemesis) -> None:
    """And comes back as another incarnation."""
    names = [name for name in NAMES if name not in nemesis.oracle.stuck]
    await nemesis.fleet.restart_member(nemesis.random.choice(names))


@act
async def links_fail(nemesis: Nemesis) -> None:
    """Cut, slow, or half open, each member's in its own way."""
    states = [State.CUT, State.SLOW, State.HALF_OPEN]
    for name in nemesis.some():
        nemesis.fleet.links[name].set(nemesis.random.choice(states))
    await nemesis.pause(0.5, 4.0)
    for link in nemesis.fleet.links.values():
        link.set(State.CUT if link.state is State.HALF_OPEN else State.WHOLE)  # what was swallowed never comes
        link.set(State.WHOLE)


@act
async def disk_is_full(nemesis: Nemesis) -> None:
    """No file of the detector's may grow."""
    nemesis.fleet.limit(resource.RLIMIT_FSIZE, 4096)
    await nemesis.pause(1.0, 3.0)
    nemesis.fleet.limit(resource.RLIMIT_FSIZE, None)


@act
async def disk_is_read_only(nemesis: Nemesis) -> None:
    """Nothing can be created, renamed or opened for writing. Only where file modes bind the detector."""
    if not nemesis.fleet.modes_count:
        nemesis.done["disk_is_read_only: root without setpriv"] += 1
        return
    nemesis.fleet.read_only(True)
    try:
        await nemesis.pause(1.0, 3.0)
    finally:
        nemesis.fleet.read_only(False)


@act
async def disk_vanishes(nemesis: Nemesis) -> None:
    """The directory is deleted under it: a new one holds what a restart needs a moment later."""
    nemesis.fleet.vanish()
    nemesis.oracle.listed.clear()
    while not (nemesis.fleet.data / "stilltrue.sqlite3").exists():
        await nemesis.ask()
    await nemesis.pause(1.0, 2.0)


@act
async def descriptors_run_out(nemesis: Nemesis) -> None:
    """New connections fail; those that are there go on."""
    nemesis.fleet.limit(resource.RLIMIT_NOFILE, nemesis.fleet.open_descriptors())
    with contextlib.suppress(OSError):
        sockets = [await asyncio.open_connection("127.0.0.1", nemesis.fleet.http_port) for _ in range(20)]
        await nemesis.pause(0.5, 2.0)
        for _, writer in sockets:
            writer.close()
    nemesis.fleet.limit(resource.RLIMIT_NOFILE, None)


@act
async def clock_steps(nemesis: Nemesis) -> None:
    """The wall clock goes forward, and back. Only where libfaketime is installed."""
    if nemesis.fleet.clock is None:
        nemesis.done["clock_steps: no libfaketime"] += 1
        return
    for step in (8, -3600, 0):
        nemesis.fleet.clock.write_text(f"{step:+d}s\n")
        await nemesis.pause(0.3, 1.5)
