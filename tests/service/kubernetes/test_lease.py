"""Of several detectors one holds the Lease: never two, soon another when it dies, at once when it is released."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from detector.ops.logs import Log
from detector.service.kubernetes.lease import Lease, leasing
from tests.service.kubernetes_api import Leases, answering

PATIENCE_SECONDS = 30.0
SECONDS = 5


class Machines:
    """The detectors' sides of one lease; each goes through a path of its own."""

    def __init__(self, leases: Leases, url: str, account: Path) -> None:
        self.leases = leases
        self._url = url
        self._account = account

    @contextlib.asynccontextmanager
    async def one(self, client: str) -> AsyncIterator[Lease]:
        server = self.leases.server(self._account, self._url, client)
        async with leasing(server, "stilltrue", SECONDS, Log("test")) as lease:
            yield lease


@pytest.fixture
async def machines(tmp_path: Path) -> AsyncIterator[Machines]:
    leases = Leases()
    async with answering(leases) as url:
        yield Machines(leases, url, tmp_path / "account")


@pytest.fixture
def soon() -> Callable[[Any], Any]:
    async def soon(wait: Any) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await wait

    return soon


async def test_of_two_detectors_that_find_no_lease_one_holds_it(machines: Machines, soon: Any) -> None:
    machines.leases.together = asyncio.Barrier(2)
    async with machines.one("a") as a, machines.one("b") as b:
        first = await asyncio.wait(
            [asyncio.create_task(each.held()) for each in (a, b)],
            timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED,
        )  # fmt: skip
        assert len(first[0]) == 1
        assert a.holds is not b.holds
        assert machines.leases.conflicts == 1
        machines.leases.together = None
        for task in first[1]:
            task.cancel()


@pytest.mark.longer
async def test_a_holder_that_cannot_renew_stops_before_another_starts(machines: Machines, soon: Any) -> None:
    async with machines.one("a") as a:
        await soon(a.held())
        async with machines.one("b") as b:
            machines.leases.refused["a"] = 503
            await soon(b.held())
            assert not a.holds, "two holders"
            await soon(a.lost())
            machines.leases.refused.clear()
            assert len(machines.leases.holders) == 2
            assert machines.leases.lease is not None
            assert machines.leases.lease["spec"]["leaseTransitions"] == 1


async def test_a_clean_shutdown_releases_the_lease(machines: Machines, soon: Any) -> None:
    async with contextlib.AsyncExitStack() as stack:
        async with machines.one("a") as a:
            await soon(a.held())
            b = await stack.enter_async_context(machines.one("b"))
        assert machines.leases.holders[1] == ""
        await soon(b.held())
    assert len(machines.leases.holders) == 4


async def test_a_lease_taken_by_another_is_lost(machines: Machines, soon: Any) -> None:
    async with machines.one("a") as a:
        await soon(a.held())
        lease = machines.leases.lease
        assert lease is not None
        taken = {**lease["spec"], "holderIdentity": "somebody-else", "leaseDurationSeconds": 3600}
        machines.leases.lease = {**lease, "metadata": {**lease["metadata"], "resourceVersion": "1000"}, "spec": taken}
        await soon(a.lost())
        assert not a.holds
    assert machines.leases.lease["spec"]["holderIdentity"] == "somebody-else", "what is another's is not given up"


async def test_a_deleted_lease_is_created_again(machines: Machines, soon: Any) -> None:
    async with machines.one("a") as a:
        await soon(a.held())
        machines.leases.lease = None
        async with asyncio.timeout(PATIENCE_SECONDS):
            while machines.leases.lease is None:
                await asyncio.sleep(0.05)
        await soon(a.held())


async def test_without_permission_no_detector_starts_and_the_log_names_the_missing_right(
    machines: Machines, caplog: pytest.LogCaptureFixture
) -> None:
    machines.leases.refused["a"] = 403
    async with machines.one("a") as a:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not any("may not get, create and update leases" in str(vars(record)) for record in caplog.records):
                await asyncio.sleep(0.05)
        assert not a.holds


@pytest.mark.parametrize("lease", [{"metadata": {}}, {"metadata": {"resourceVersion": "1"}, "spec": 3}, {"spec": {}}])
async def test_a_nonsensical_answer_makes_no_holder(machines: Machines, lease: dict[str, Any], soon: Any) -> None:
    machines.leases.lease = lease
    async with machines.one("a") as a:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(a.held(), 1)
        machines.leases.lease = None
        await soon(a.held())
