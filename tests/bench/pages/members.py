"""The load: a process of its own that plays members whose workers all wait for each other in one ring.

``python -m tests.bench.pages.members ADDRESS MEMBERS`` prints ``joined`` once every member is welcome, and goes on until it is
killed.
"""

from __future__ import annotations

import asyncio
import sys

from tests.service.conftest import FakeProcess

PARTIES_EACH = 5
SERVICES = 20
JOINING = 100
"""How many connect at a time."""


def ring(members: list[FakeProcess]) -> None:
    """Every worker of every member has called the next member, whose workers are busy: one knot of them all."""
    workers = []
    for member in members:
        member.recorder.pool_opened("pool", PARTIES_EACH)
        workers.append([member.call(member, "/shop.Ring/Work")[1] for _ in range(PARTIES_EACH)])
    for at, served in enumerate(workers):
        for one in served:
            members[at].call(members[(at + 1) % len(members)], "/shop.Ring/Next", by=one.party, starts=False)


async def main(address: str, count: int) -> None:
    """Play them until the end."""
    members = [FakeProcess(f"shop-{at}", service=f"service-{at % SERVICES}") for at in range(count)]
    ring(members)
    for at in range(0, count, JOINING):
        await asyncio.gather(*(member.connect(address) for member in members[at : at + JOINING]))
    print("joined", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
