"""A verification round waits for looks as long as configured, and its outcome is counted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from stilltrue.v1 import snapshot_pb2

TRUE, UNDETERMINED = snapshot_pb2.HOLDS_TRUE, snapshot_pb2.HOLDS_UNDETERMINED
ROUNDS = "stilltrue_verification_duration_seconds_count"


async def test_answered_and_given_up_rounds_are_counted_apart(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b = process("a"), process("b")
    stuck = deadlock(a, b)
    async with start_detector(tmp_path, look_give_up_seconds=0.3, look_again_seconds_min=0) as detector:
        await detector.join(a, b)
        b.blind = True
        assert (await detector.ask()).holds == UNDETERMINED, "there is no TRUE without a second look"
        assert await detector.metric(f'{ROUNDS}{{outcome="given_up"}}') >= 1
        b.blind = False
        while (verdict := await detector.ask()).holds != TRUE:
            assert verdict.holds == UNDETERMINED
        assert list(verdict.core) == stuck.core
        assert await detector.metric(f'{ROUNDS}{{outcome="answered"}}') >= 1


async def test_a_member_that_does_not_answer_a_look_does_not_delay_a_cycle_of_others(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    """The round lasts far longer than the question may."""
    a, b, c, d = (process(name) for name in "abcd")
    stuck = deadlock(a, b)
    others = deadlock(c, d)
    async with start_detector(tmp_path, look_give_up_seconds=60, look_again_seconds_min=0) as detector:
        d.blind = True
        await detector.join(a, b, c, d)
        assert await detector.deadlock() == (TRUE, stuck.core)
        assert [list(one.core) for one in await detector.incidents() if one.predicate == "deadlock"] == [stuck.core]
        d.blind = False
        while list((verdict := await detector.ask()).core) != sorted([*stuck.core, *others.core]):
            assert (verdict.holds, list(verdict.core)) == (TRUE, stuck.core)


async def test_a_cycle_that_a_silent_party_may_free_waits_for_its_answer(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b = process("a"), process("b")
    deadlock(a, b)
    async with start_detector(tmp_path, look_give_up_seconds=1.5) as detector:
        b.blind = True
        await detector.join(a, b)
        verdict = await detector.ask()
        assert verdict.holds == UNDETERMINED
        assert "did not answer within 1.5 s" in verdict.witness.text


async def test_processes_whose_looks_always_take_too_long_are_verified_in_the_end(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b = process("a"), process("b")
    stuck = deadlock(a, b)
    a.look_seconds = b.look_seconds = 1.0
    async with start_detector(tmp_path, look_give_up_seconds=0.3) as detector, asyncio.timeout(60):
        await detector.join(a, b)
        while (verdict := await detector.ask()).holds != TRUE:
            assert verdict.holds == UNDETERMINED
            await asyncio.sleep(0.5)
        assert list(verdict.core) == stuck.core
