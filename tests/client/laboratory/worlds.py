"""Runs programs, and compares reports with what happens: ``python -m tests.client.laboratory.worlds --seeds 0..99``.

The program itself is the oracle. The report about the waiter is taken while all threads are blocked; then all are told to go
on, until none runs any more. A waiter that was reported to wait for an ended holder, or (``--shared``) only for the insider,
must still wait.

- **safe**: no waiter reported as stuck goes on;
- **live**: of the waiters that do not go on, some are reported as stuck, for each understood form of leaving a lock behind
  (``LIVE_SHARE_MIN``).
"""

from __future__ import annotations

import argparse
import gc
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from types import FrameType
from typing import Any

from stilltrue import Agent
from stilltrue.model import has_ended
from stilltrue.protocol.report import PartyTarget
from stilltrue.runtime.introspection.frames import innermost_frames
from stilltrue.runtime.waits.call_stack import where_is
from stilltrue.runtime.waits.orphaned_locks import locks as left_locks
from stilltrue.runtime.waits.reachability.thread_waits import ShareOfTime
from tests.client.laboratory.mutants import MUTANTS, broken
from tests.client.laboratory.programs import program
from tests.client.look.worlds import look_at, of, report_of

PATIENCE_SECONDS = 20.0
STILL_SECONDS, STILL_READINGS, ROUNDS = 0.03, 3, 4
LIVE_FROM, LIVE_SHARE_MIN = 8, 0.3
_RELEASE = bytes.fromhex("72656c65617365").decode()
"""The method's name, which no code of ours may mention: a mention could refer to any lock."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one program: whether its waiter was reported as stuck, and whether it went on."""

    what: str
    reported: bool
    went_on: bool


class Laboratory:
    """Runs one program after another."""

    def __init__(self) -> None:
        """Make an agent that does not connect."""
        self.agent = Agent("lab", instance="lab")
        left_locks.AGAIN_SECONDS = 0.0

    def play(self, seed: int, *, shared: bool = False) -> Outcome:
        """Run the program for this seed until nothing happens any more."""
        played = program(seed, shared=shared)
        go = threading.Event()
        names: dict[str, Any] = {"go": go, "__name__": f"lab_{seed}"}
        exec(compile(played.text, f"/lab/{seed}.py", "exec"), names)
        threads = self._set_up(names, f"waiter-of-{seed}")
        waiter = threads[-1]
        reported = waiter.is_alive() and self._is_reported(waiter.name)
        go.set()
        _wait_until_still(threads)
        went_on = not waiter.is_alive()
        self._clear(threads, names)
        return Outcome(played.what, reported, went_on)

    def _set_up(self, names: dict[str, Any], name: str) -> list[threading.Thread]:
        """Start the actors one by one. The waiter acts last but is started first, so that it cannot get a taker's identity."""
        ready = threading.Event()

        def waits() -> None:
            ready.wait()
            names["waiter"]()

        waiter = threading.Thread(target=waits, name=name, daemon=True)
        waiter.start()
        taker = threading.Thread(target=names["taker"], args=(True,), name="taker", daemon=True)
        taker.start()
        _wait_until_still([taker])
        threads = [taker]
        for one in ("helper", "insider"):
            if one in names:
                threads.append(threading.Thread(target=names[one], name=f"{one}-of-{name}", daemon=True))
                threads[-1].start()
                _wait_until_still(threads)
        ready.set()
        _wait_until_still([waiter])
        return [*threads, waiter]

    def _is_reported(self, name: str) -> bool:
        """Whether the cut and the second look report that the waiter waits for an ended holder, or for an insider."""
        insider = f"lab/thread:insider-of-{name}"
        for _ in range(ROUNDS):
            time.sleep(STILL_SECONDS)
            report = report_of(self.agent)
            self.agent._observer.searchers.left._share = ShareOfTime()
            self.agent._observer.searchers.search(time.time())
            for wait in report.waits:
                parties = [one.party for one in wait.among if isinstance(one, PartyTarget)]
                if wait.waiter == f"lab/thread:{name}" and (any(map(has_ended, parties)) or parties == [insider]):
                    seen = of(look_at(self.agent, report), wait.waiter)
                    return seen.unchanged and not seen.doubt and all(one.party == insider for one in seen.ways_out)
        return False

    def _clear(self, threads: list[threading.Thread], names: dict[str, Any]) -> None:
        """Make all threads end, even if the program has left the lock acquired."""
        thing = names.get("thing") or getattr(names.get("owner"), "thing", None) or names["things"]["a"]
        for thread in threads:
            if thread.is_alive() and _released(thing):
                thread.join(PATIENCE_SECONDS)
        names.clear()
        gc.collect()


def _released(thing: Any) -> bool:
    """Release the lock by hand; False for an ``RLock``, whose waiter stays."""
    try:
        getattr(thing, _RELEASE)()
    except (RuntimeError, ValueError):
        return False
    return True


def _wait_until_still(threads: list[threading.Thread]) -> None:
    """Wait until each of these has ended, or has not run for some time."""
    end = time.monotonic() + PATIENCE_SECONDS
    before: dict[int, tuple[object, ...]] = {}
    still = 0
    while still < STILL_READINGS and time.monotonic() < end:
        now = _places(threads, innermost_frames())
        still = still + 1 if now == before else 0
        before = now
        time.sleep(STILL_SECONDS)


def _places(threads: list[threading.Thread], frames: dict[int, FrameType]) -> dict[int, tuple[object, ...]]:
    idents = [thread.ident for thread in threads if thread.is_alive() and thread.ident is not None]
    return {ident: where_is(ident, frames.get(ident)) for ident in idents}


def run(first: int, after: int, *, shared: bool = False) -> list[Outcome]:
    """The outcomes for these seeds. Raises ``AssertionError`` at the first waiter that was reported as stuck and went on."""
    laboratory = Laboratory()
    outcomes = []
    for seed in range(first, after):
        outcome = laboratory.play(seed, shared=shared)
        assert not (outcome.reported and outcome.went_on), f"seed {seed}: reported, and went on: {outcome.what}"
        outcomes.append(outcome)
    assert laboratory.agent.live.faults == 0
    return outcomes


def main() -> None:
    """Run ``--seeds``, with the rule broken that ``--mutant`` names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0..200")
    parser.add_argument("--mutant", choices=MUTANTS)
    parser.add_argument("--shared", action="store_true")
    given = parser.parse_args()
    first, _, after = given.seeds.partition("..")
    with ExitStack() as stack:
        if given.mutant:
            stack.enter_context(broken(MUTANTS[given.mutant]))
        outcomes = run(int(first), int(after), shared=given.shared)
    stuck = [one for one in outcomes if not one.went_on]
    reported = [one for one in stuck if one.reported]
    print(f"{len(outcomes)} worlds, {len(stuck)} waiters that never go on, {len(reported)} of them reported, nobody else")
    if len(stuck) >= LIVE_FROM and len(reported) < LIVE_SHARE_MIN * len(stuck):
        sys.exit("too few of those that never go on are reported")


if __name__ == "__main__":
    main()
