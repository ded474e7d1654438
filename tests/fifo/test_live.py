"""FIFO channels over real gRPC streams on loopback: snapshots while money moves, concurrent ones, loss, restore."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from stilltrue.fifo import Channel, ChannelError, Topology
from stilltrue.fifo.participant import LiveSnapshot
from stilltrue.fifo.process import FifoProcess, LiveSettings, SnapshotFailedError
from stilltrue.model import ProcessName

pytestmark = pytest.mark.live
Send = Callable[[ProcessName, bytes], None]


class Account:
    """Pays received coins on to the next account while their message has ``hops`` left."""

    def __init__(self, name: ProcessName, balance: int, ring: list[ProcessName]) -> None:
        self.balance = balance
        self.following = ring[(ring.index(name) + 1) % len(ring)]
        self.received_count = 0
        self.breaks_at = 0
        self.ballast_bytes = 0

    def state(self) -> bytes:
        return json.dumps({"balance": self.balance, "ballast": "x" * self.ballast_bytes}).encode()

    def restore(self, state: bytes) -> None:
        self.balance = int(json.loads(state)["balance"])

    def received(self, on: Channel, payload: bytes, send: Send) -> None:
        coins, hops = map(int, payload.split())
        self.received_count += 1
        if self.received_count == self.breaks_at:
            raise RuntimeError("a bug in the application")
        self.balance += coins
        if hops:
            self.pay(coins, hops - 1, send)

    def pay(self, coins: int, hops: int, send: Send) -> None:
        self.balance -= coins
        send(self.following, f"{coins} {hops}".encode())


def full_mesh(names: list[ProcessName]) -> Topology:
    return Topology.of(names, [Channel(source=a, target=b) for a in names for b in names if a != b])


class System:
    def __init__(self, names: list[ProcessName], restored: LiveSnapshot | None = None, settings: LiveSettings | None = None):
        self.names = names
        self.accounts = {name: Account(name, 1000, names) for name in names}
        self.seen: dict[ProcessName, list[LiveSnapshot]] = {name: [] for name in names}
        self.processes = {
            name: FifoProcess(
                name,
                full_mesh(names),
                self.accounts[name],
                restored=restored,
                settings=settings,
                on_snapshot=self.seen[name].append,
            )
            for name in names
        }

    async def join(self) -> None:
        ports = {name: await process.listen() for name, process in self.processes.items()}
        addresses = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        await asyncio.gather(*(process.join(addresses, seconds=10) for process in self.processes.values()))

    def pay(self, name: ProcessName, coins: int, hops: int) -> None:
        self.accounts[name].pay(coins, hops, self.processes[name].send)

    async def close(self) -> None:
        await asyncio.gather(*(process.close() for process in self.processes.values()))


@asynccontextmanager
async def system(count: int = 3, **more: object) -> AsyncIterator[System]:
    one = System([ProcessName(f"p{n}") for n in range(count)], **more)  # type: ignore[arg-type]
    await one.join()
    try:
        yield one
    finally:
        await one.close()


def total(snapshot: LiveSnapshot) -> int:
    in_transit = (int(payload.split()[0]) for many in snapshot.channels.values() for payload in many)
    return sum(int(json.loads(state)["balance"]) for state in snapshot.states.values()) + sum(in_transit)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


async def test_snapshots_taken_while_money_moves_conserve_it_and_reach_every_process() -> None:
    async with system() as bank:
        for name in bank.names:
            for coins in range(1, 20):
                bank.pay(name, coins, 200)
        taken = []
        for _ in range(4):
            taken += await asyncio.gather(*(process.snapshot(timeout_seconds=10) for process in bank.processes.values()))
        assert [total(snapshot) for snapshot in taken] == [3000] * 12
        assert len({snapshot.snapshot for snapshot in taken}) == 12, "several at once, each with its own number"
        assert any(many for snapshot in taken for many in snapshot.channels.values()), "nothing was ever in transit"
        await until(lambda: all(len(seen) == 12 for seen in bank.seen.values()))
        by_id = {snapshot.snapshot: snapshot for snapshot in taken}
        for seen in bank.seen.values():
            assert {snapshot.snapshot: snapshot for snapshot in seen} == by_id


async def test_a_restored_system_continues_with_the_messages_in_transit() -> None:
    async with system() as bank:
        for coins in range(1, 30):
            bank.pay(bank.names[0], coins, 10_000)
        await until(lambda: bank.accounts[bank.names[2]].received_count > 50)
        snapshots = [await bank.processes[bank.names[1]].snapshot(timeout_seconds=10) for _ in range(3)]
    snapshot = next(one for one in snapshots if any(one.channels.values()))
    again = System(bank.names, restored=snapshot)
    try:
        for name, account in again.accounts.items():
            assert account.balance == json.loads(snapshot.states[name])["balance"]
        await again.join()
        first = await again.processes[again.names[0]].snapshot(timeout_seconds=10)
        assert first.snapshot > snapshot.snapshot
        assert total(first) == 3000
        await until(lambda: all(account.received_count > 20 for account in again.accounts.values()))
    finally:
        await again.close()


async def test_a_lost_process_aborts_the_snapshots_with_a_message() -> None:
    async with system() as bank:
        lost = bank.names[2]
        survivor = bank.processes[bank.names[0]]
        await bank.processes[lost].close()
        await until(lambda: survivor.lost == (lost,))
        with pytest.raises(ChannelError, match="p2 is lost: no snapshot can be taken until all are restored"):
            await survivor.snapshot()
        with pytest.raises(ChannelError, match="p0 -> p2 is lost"):
            survivor.send(lost, b"1 0")


async def test_an_application_that_fails_stops_its_process_and_the_others_notice() -> None:
    async with system() as bank:
        broken = bank.processes[bank.names[1]]
        bank.accounts[bank.names[1]].breaks_at = 1
        bank.pay(bank.names[0], 5, 0)
        await until(lambda: broken.failure is not None)
        await until(lambda: bank.processes[bank.names[0]].lost == (bank.names[1],))
        assert str(broken.failure) == "a bug in the application"


async def test_a_snapshot_with_a_record_too_large_for_a_frame_is_aborted_everywhere() -> None:
    async with system(settings=LiveSettings(frame_bytes_max=4096)) as bank:
        bank.accounts[bank.names[1]].ballast_bytes = 5000
        with pytest.raises(SnapshotFailedError, match="the record of p1 is larger than 4096 bytes"):
            await bank.processes[bank.names[0]].snapshot(timeout_seconds=10)
        with pytest.raises(ChannelError, match="a payload of 5000 bytes is too large"):
            bank.processes[bank.names[0]].send(bank.names[1], b"x" * 5000)
        bank.accounts[bank.names[1]].ballast_bytes = 0
        assert total(await bank.processes[bank.names[2]].snapshot(timeout_seconds=10)) == 3000


async def test_a_full_send_queue_refuses_messages_until_it_drains() -> None:
    async with system(2, settings=LiveSettings(queue_messages_max=3)) as bank:
        process = bank.processes[bank.names[0]]
        for _ in range(3):
            process.send(bank.names[1], b"0 0")
        with pytest.raises(ChannelError, match="3 messages are already waiting to be sent to p1"):
            process.send(bank.names[1], b"0 0")
        await process.room(bank.names[1])
        process.send(bank.names[1], b"0 0")


async def test_processes_with_different_topologies_do_not_join() -> None:
    names = [ProcessName("p0"), ProcessName("p1")]
    more = [*names, ProcessName("p2")]
    one = FifoProcess(names[0], full_mesh(names), Account(names[0], 0, names))
    other = FifoProcess(names[1], full_mesh(more), Account(names[1], 0, more))
    try:
        addresses = {name: f"127.0.0.1:{await process.listen()}" for name, process in zip(names, (one, other), strict=True)}
        with pytest.raises(ChannelError, match=r"p0 could not join p1: .*the two ends disagree about the channels"):
            await one.join(addresses, seconds=10)
    finally:
        await asyncio.gather(one.close(), other.close())


async def test_a_snapshot_that_takes_too_long_is_aborted() -> None:
    async with system() as bank:
        process = bank.processes[bank.names[0]]
        with pytest.raises(SnapshotFailedError, match="p0 waited 0 s for it"):
            await process.snapshot(timeout_seconds=0)
        assert total(await process.snapshot(timeout_seconds=10)) == 3000
