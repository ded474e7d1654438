"""The inbox: order, turns, held inputs, commands first, and senders that wait for room."""

from __future__ import annotations

import asyncio

import pytest

from detector.checkpoints.protocol.points import Record
from detector.checkpoints.runtime.inbox import Barrier, BeginPoint, Inbox, InboxFullError
from stilltrue.fifo import channel
from stilltrue.model import SnapshotId

A, B, LOOP = channel("a", "v"), channel("b", "v"), channel("w", "v")
ONE = SnapshotId(1)


def inbox(records_max: int = 2) -> Inbox:
    return Inbox([B, A, LOOP], back=[LOOP], records_max=records_max, back_records_max=3)


def record(value: int) -> Record:
    return Record(value=value)


async def test_inputs_take_turns_each_in_its_own_order_and_commands_come_first() -> None:
    box = inbox()
    for on, values in ((A, (1, 2)), (B, (3, 4))):
        for value in values:
            await box.put(on, record(value))
    box.command(BeginPoint(ONE))
    assert [box.take() for _ in range(6)] == [
        BeginPoint(ONE),
        (A, record(1)),
        (B, record(3)),
        (A, record(2)),
        (B, record(4)),
        None,
    ]
    assert box.quiet


async def test_a_held_input_is_skipped_until_released() -> None:
    box = inbox()
    await box.put(A, Barrier(ONE))
    await box.put(B, record(1))
    box.hold(A)
    assert box.take() == (B, record(1))
    assert box.take() is None
    assert not box.quiet
    waiting = asyncio.create_task(box.next())
    await asyncio.sleep(0)
    box.release([A])
    assert await waiting == (A, Barrier(ONE))


async def test_a_full_input_blocks_only_its_sender() -> None:
    box = inbox(records_max=1)
    await box.put(A, record(1))
    blocked = asyncio.create_task(box.put(A, record(2)))
    await box.put(B, record(3))
    await asyncio.sleep(0)
    assert not blocked.done()
    assert box.take() == (A, record(1))
    await blocked
    assert [box.take(), box.take()] == [(B, record(3)), (A, record(2))]


async def test_a_back_edge_never_waits_and_fails_at_its_bound() -> None:
    box = inbox(records_max=1)
    for value in range(3):
        await box.put(LOOP, record(value))
    with pytest.raises(InboxFullError, match="w -> v holds 3 records: the loop produces more than it consumes"):
        await box.put(LOOP, record(3))


async def test_restored_records_come_first_whatever_the_bound() -> None:
    box = inbox(records_max=1)
    box.restore(A, [record(value) for value in range(5)])
    sending = asyncio.create_task(box.put(A, record(5)))
    taken: list[object] = []
    while len(taken) < 6:
        got = await box.next()
        assert isinstance(got, tuple)
        taken.append(got[1])
        await asyncio.sleep(0)
    await sending
    assert taken == [record(value) for value in range(6)]


async def test_a_wait_ends_at_its_timeout_or_with_an_item() -> None:
    box = inbox()
    await box.wait(0.001)
    box.command(BeginPoint(ONE))
    await box.wait(60)
    assert box.take() == BeginPoint(ONE)
