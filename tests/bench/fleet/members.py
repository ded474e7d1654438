"""The load: a process of its own that plays all members of a fleet, each over its own connection, as real agents do.

``python -m tests.bench.fleet.members ADDRESS MEMBERS ...`` prints ``joined SECONDS`` once every member is welcome, and goes on
until it is killed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import Iterator

from stilltrue.runtime.membership.backoff import Backoff
from stilltrue.runtime.membership.leases import SHARE
from stilltrue.settings import Settings
from stilltrue.v1 import agent_pb2 as pb
from tests.bench.fleet.bodies import Fleet
from tests.bench.fleet.frames import FramedStream

CONNECT = "/stilltrue.v1.AgentService/Connect"
REPORT_TAG = b"\x12"
"""Of field 2 of a ``ConnectRequest``."""


class Member:
    """One member: its stream, and the newest snapshot that it has cut for."""

    def __init__(self, fleet: Fleet, index: int, address: str, *, whole: bool) -> None:
        self._whole = whole
        self._base = 0
        self._fleet = fleet
        self._index = index
        self._address = address
        self._colour = 0
        self._stream: FramedStream | None = None
        self._spoken = False
        self.lease_seconds = 1.0
        self.welcomed = asyncio.Event()

    async def run(self) -> None:
        """Stay connected, whatever happens, with the pauses of agents."""
        backoff = Backoff(Settings().backoff_seconds_max)
        while True:
            begun = time.monotonic()
            with contextlib.suppress(OSError):
                await self._serve()
            self._stream = None
            self._base = 0
            self.welcomed.clear()
            await asyncio.sleep(backoff.pause(time.monotonic() - begun))

    async def _serve(self) -> None:
        host, _, port = self._address.rpartition(":")
        process = self._fleet.process(self._index)
        hello = pb.Hello(process=process, agent="bench/1", looks=True, colour=self._colour)
        hello.sight.servers = hello.sight.channels = hello.sight.calls = 1
        loop = asyncio.get_running_loop()
        _, stream = await loop.create_connection(lambda: FramedStream(self._address, CONNECT, self._heard), host, int(port))
        self._stream = stream
        stream.send(pb.ConnectRequest(hello=hello).SerializeToString())
        await stream.over

    def _heard(self, data: bytes) -> None:
        message = pb.ConnectResponse.FromString(data)
        match message.WhichOneof("message"):
            case "mark":
                self._write(self._reported(message.mark.snapshot))
            case "look":
                self._write(_looked(message.look))
            case "welcome":
                self.lease_seconds = message.welcome.lease_seconds
                self.welcomed.set()

    def _write(self, message: bytes) -> None:
        if self._stream is not None:
            self._stream.send(message)

    def _reported(self, snapshot: int) -> bytes:
        after, self._colour = self._colour, max(self._colour, snapshot)
        self._spoken = True
        if not self._whole:
            difference = self._fleet.difference(self._index, snapshot, min(after, snapshot - 1), self._base)
            self._base = snapshot
            return pb.ConnectRequest(difference=difference).SerializeToString()
        report = self._fleet.report(self._index, snapshot, min(after, snapshot - 1))
        return REPORT_TAG + bytes(varint(len(report))) + report

    def lease(self) -> None:
        """Say that it lives, unless a report has done so since the last time."""
        spoken, self._spoken = self._spoken, False
        if self.welcomed.is_set() and not spoken:
            self._write(pb.ConnectRequest(lease=pb.Lease(colour=self._colour)).SerializeToString())


def _looked(look: pb.Look) -> bytes:
    seen = [pb.PartyLook(party=suspect.party, unchanged=True) for suspect in look.suspects]
    return pb.ConnectRequest(looked=pb.Looked(snapshot=look.snapshot, parties=seen)).SerializeToString()


def varint(number: int) -> Iterator[int]:
    """A number as protobuf writes it."""
    while number > 0x7F:
        yield number & 0x7F | 0x80
        number >>= 7
    yield number


async def _leases(members: list[Member]) -> None:
    """Each member looks whether to renew its lease as often as agents do, all spread evenly."""
    while True:
        begun, seconds = time.monotonic(), max(member.lease_seconds for member in members) / SHARE
        for at, member in enumerate(members):
            ahead = begun + seconds * at / len(members) - time.monotonic()
            if ahead > 0:
                await asyncio.sleep(ahead)
            member.lease()
        await asyncio.sleep(max(0.001, begun + seconds - time.monotonic()))


async def _run(fleet: Fleet, address: str, *, whole: bool) -> None:
    for index in range(fleet.members):
        fleet.report(index, 1, 0)  # made before anybody joins, and kept
    begun = time.monotonic()
    addresses = address.split(",")
    members = [Member(fleet, index, addresses[index % len(addresses)], whole=whole) for index in range(fleet.members)]
    tasks = [asyncio.create_task(member.run()) for member in members]
    tasks.append(asyncio.create_task(_leases(members)))
    while True:
        for member in members:
            await member.welcomed.wait()
        sys.stdout.write(f"joined {time.monotonic() - begun:.3f}\n")
        sys.stdout.flush()
        while all(member.welcomed.is_set() for member in members):
            await asyncio.sleep(0.1)
        begun = time.monotonic()
        sys.stdout.write("lost\n")
        sys.stdout.flush()
        assert tasks


def main() -> None:
    """Play the fleet that the arguments describe."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address", help="HOST:PORT[,...]: the members are shared out")
    parser.add_argument("members", type=int)
    parser.add_argument("--entries", type=int, default=20, help="waits, calls made and calls served of each member")
    parser.add_argument("--churn", type=float, default=0.0)
    parser.add_argument("--deadlocks", type=int, default=0)
    parser.add_argument("--whole", action="store_true", help="whole reports, as old agents send them")
    given = parser.parse_args()
    fleet = Fleet(members=given.members, entries=given.entries, churn=given.churn, deadlocks=given.deadlocks)
    asyncio.run(_run(fleet, given.address, whole=given.whole))


if __name__ == "__main__":
    main()
