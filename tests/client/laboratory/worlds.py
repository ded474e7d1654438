"""Runs programs, and compares what is said with what happens: ``python -m tests.client.laboratory.worlds --seeds 0..99``.

The oracle is the program itself. What is said of the waiter is read while everybody stands; then all are told to go on, and
do so until nobody runs any more. Who was said to wait for one that has ended, or (``--shared``) for the insider alone, must
still wait.

- **safe**: nobody who was called goes on;
- **live**: of those that do not go on, some are called: each form of leaving a lock that is understood (``LIVE_SHARE_MIN``).
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
from stilltrue.runtime.seen.call_stack import where_is
from stilltrue.runtime.seen.left import locks as left_locks
from tests.client.laboratory.mutants import MUTANTS, broken
from tests.client.laboratory.programs import program
from tests.client.look.worlds import look_at, of, report_of

PATIENCE_SECONDS = 20.0
STILL_SECONDS, STILL_READINGS, ROUNDS = 0.03, 3, 4
LIVE_FROM, LIVE_SHARE_MIN = 8, 0.3
_GIVE_BACK = bytes.fromhex("72656c65617365").decode()
"""The name of the method, which no code of ours may speak of: it could mean any lock."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one program: whether its waiter was called, and whether it went on."""

    what: str
    called: bool
    went_on: bool


class Laboratory:
    """One process that plays program after program."""

    def __init__(self) -> None:
        """The agent dials nobody."""
        self.agent = Agent("lab", instance="lab")
        left_locks.AGAIN_SECONDS = 0.0

    def play(self, seed: int, *, shared: bool = False) -> Outcome:
        """The program of this seed, from its beginning until nothing more happens."""
        played = program(seed, shared=shared)
        go = threading.Event()
        names: dict[str, Any] = {"go": go, "__name__": f"lab_{seed}"}
        exec(compile(played.text, f"/lab/{seed}.py", "exec"), names)
        threads = self._set_up(names, f"waiter-of-{seed}")
        waiter = threads[-1]
        called = waiter.is_alive() and self._is_called(waiter.name)
        go.set()
        _until_nobody_runs(threads)
        went_on = not waiter.is_alive()
        self._clear(threads, names)
        return Outcome(played.what, called, went_on)

    def _set_up(self, names: dict[str, Any], name: str) -> list[threading.Thread]:
        """Start the actors, one by one; the waiter is the last, but exists before a taker can leave its identity to it."""
        ready = threading.Event()

        def waits() -> None:
            ready.wait()
            names["waiter"]()

        waiter = threading.Thread(target=waits, name=name, daemon=True)
        waiter.start()
        taker = threading.Thread(target=names["taker"], args=(True,), name="taker", daemon=True)
        taker.start()
        _until_nobody_runs([taker])
        threads = [taker]
        for one in ("helper", "insider"):
            if one in names:
                threads.append(threading.Thread(target=names[one], name=f"{one}-of-{name}", daemon=True))
                threads[-1].start()
                _until_nobody_runs(threads)
        ready.set()
        _until_nobody_runs([waiter])
        return [*threads, waiter]

    def _is_called(self, name: str) -> bool:
        """Whether the waiter is said to wait for one that has ended, or for an insider, at a cut and at the second look."""
        insider = f"lab/thread:insider-of-{name}"
        for _ in range(ROUNDS):
            time.sleep(STILL_SECONDS)
            report = report_of(self.agent)
            self.agent._observer.left._not_before = 0.0
            self.agent._observer.search(time.time())
            for wait in report.waits:
                parties = [one.party for one in wait.among if isinstance(one, PartyTarget)]
                if wait.waiter == f"lab/thread:{name}" and (any(map(has_ended, parties)) or parties == [insider]):
                    seen = of(look_at(self.agent, report), wait.waiter)
                    return seen.unchanged and not seen.doubt and all(one.party == insider for one in seen.ways_out)
        return False

    def _clear(self, threads: list[threading.Thread], names: dict[str, Any]) -> None:
        """Let everybody end, whatever the program has left taken."""
        thing = names.get("thing") or getattr(names.get("owner"), "thing", None) or names["things"]["a"]
        for thread in threads:
            if thread.is_alive() and _released(thing):
                thread.join(PATIENCE_SECONDS)
        names.clear()
        gc.collect()


def _released(thing: Any) -> bool:
    """Whether it could be given back by hand: an ``RLock`` cannot, and its waiter stays."""
    try:
        getattr(thing, _GIVE_BACK)()
    except (RuntimeError, ValueError):
        return False
    return True


def _until_nobody_runs(threads: list[threading.Thread]) -> None:
    """Until each of these has ended, or has not run for some time."""
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
    """The outcomes of these seeds. Raises ``AssertionError`` at the first who was called and went on."""
    laboratory = Laboratory()
    outcomes = []
    for seed in range(first, after):
        outcome = laboratory.play(seed, shared=shared)
        assert not (outcome.called and outcome.went_on), f"seed {seed}: called, and went on: {outcome.what}"
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
    called = [one for one in stuck if one.called]
    print(f"{len(outcomes)} worlds, {len(stuck)} waiters that never go on, {len(called)} of them called, nobody else")
    if len(stuck) >= LIVE_FROM and len(called) < LIVE_SHARE_MIN * len(stuck):
        sys.exit("too few of those that never go on are called")


if __name__ == "__main__":
    main()
