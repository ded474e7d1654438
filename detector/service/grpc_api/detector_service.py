"""The gRPC service for clients, ``stilltrue.v1.DetectorService``: thin methods over the driver and the stores."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from detector.core.registry import no_predicate, predicate_names
from detector.ops.clock import Clock
from detector.service.cure.audit import Audit
from detector.service.cure.cures import CureRefusedError, Cures, Refusal
from detector.service.detection.current_verdicts import Key, TooManyWatchersError
from detector.service.detection.driver import Driver
from detector.service.detection.incident.explanation import current_explanation
from detector.service.detection.membership.members import Member, MemberState
from detector.service.detection.stacks import StacksRequests
from detector.service.grpc_api.archive_service import ArchiveService
from detector.service.grpc_api.roles import Role, Roles
from detector.service.grpc_api.security import bearer_token, certificate_names, who_is
from detector.service.protobuf_messages import agent_to_wire, incident_to_wire, plan_to_wire, stacks_to_wire
from detector.service.settings import Settings
from detector.service.storage.snapshot_store import SnapshotStore
from stilltrue.model import ProcessName
from stilltrue.protocol.stamp import NUMBER_MAX
from stilltrue.protocol.wire.verdict import verdict_to_wire
from stilltrue.v1 import detector_pb2 as pb
from stilltrue.v1 import detector_pb2_grpc

DETECTOR_SERVICE = "stilltrue.v1.DetectorService"
LIST_DEFAULT = 50
LIST_MAX = 10_000
FAIR_SHARE_FACTOR = 2
"""A connection with less than its fair share is served until the total is this multiple of the bound."""
OPERATOR_FACTOR = 3
"""The same multiple for an operator's watches."""
REFUSED_SECONDS = 0.2
"""Delay before a refusal, so that clients that retry at once do not take the others' time."""

_REFUSALS = {
    Refusal.NOT_ALLOWED: grpc.StatusCode.FAILED_PRECONDITION,
    Refusal.NOT_NOW: grpc.StatusCode.FAILED_PRECONDITION,
    Refusal.UNKNOWN: grpc.StatusCode.NOT_FOUND,
}

Context = grpc.aio.ServicerContext[Any, Any]


class DetectorServicer(detector_pb2_grpc.DetectorServiceServicer):
    """``stilltrue.v1.DetectorService``."""

    def __init__(
        self,
        *,
        driver: Driver,
        cures: Cures,
        audit: Audit,
        clock: Clock,
        stacks: StacksRequests,
        snapshot_store: SnapshotStore,
        archive_service: ArchiveService,
        settings: Settings,
        predicates: tuple[str, ...],
        roles: Roles | None = None,
    ) -> None:
        """``predicates``: names of the installed predicates. ``roles``: knows the operators; None: all clients are equal."""
        self._roles = roles
        self._driver = driver
        self._cures = cures
        self._audit = audit
        self._clock = clock
        self._stacks = stacks
        self._snapshot_store = snapshot_store
        self._archive_service = archive_service
        self._settings = settings
        self._predicates = predicates
        self._asking: Counter[str] = Counter()
        self._watching: Counter[str] = Counter()
        self._scopes = ("all", *(scope.name for scope in settings.scopes))

    async def Ask(self, request: pb.AskRequest, context: Context) -> pb.AskResponse:  # noqa: N802 - gRPC's name
        """Take a snapshot now and return the verdict on it."""
        await self._check(request.predicate, request.scope, context)
        if not self._may_ask(context.peer()):
            text = f"{self._settings.asks_max} questions are already waiting (--asks-max)"
            await asyncio.sleep(REFUSED_SECONDS)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        async with self._limited(self._asking, self._settings.asks_per_connection_max, "--asks-per-connection-max", context):
            verdict = await self._driver.pending_asks.ask(request.predicate, request.scope or "all")
        return pb.AskResponse(verdict=verdict_to_wire(verdict))

    def _may_ask(self, peer: str) -> bool:
        """Whether one more question may wait; beyond the bound, only for a connection with less than its fair share."""
        waiting, most = len(self._driver.pending_asks), self._settings.asks_max
        return waiting < most or (waiting < FAIR_SHARE_FACTOR * most and self._is_below_fair_share(self._asking, most, peer))

    def _is_below_fair_share(self, in_progress: Counter[str], most: int, peer: str) -> bool:
        return in_progress[peer] < most // (len(in_progress) + (peer not in in_progress))

    def _watchers_factor(self, context: Context) -> int:
        """The multiple of the bound on watches for this client, so that many readers do not keep an operator out."""
        if self._roles is not None and Role.OPERATOR in self._roles.of(certificate_names(context), bearer_token(context)):
            return OPERATOR_FACTOR
        most = self._settings.watchers_max
        return FAIR_SHARE_FACTOR if self._is_below_fair_share(self._watching, most, context.peer()) else 1

    async def Watch(self, request: pb.WatchRequest, context: Context) -> AsyncIterator[pb.WatchResponse]:  # noqa: N802
        """Stream the current verdicts, then each one that differs; a response without a verdict is a heartbeat."""
        if request.predicate:
            await self._check(request.predicate, request.scope, context)
        elif request.scope:
            await self._check(self._predicates[0], request.scope, context)

        def wanted(key: Key) -> bool:
            return request.predicate in {"", key[0]} and request.scope in {"", key[1]}

        most, factor = self._settings.watchers_per_connection_max, self._watchers_factor(context)
        async with self._limited(self._watching, most, "--watchers-per-connection-max", context):
            try:
                with self._driver.current.watching(wanted, factor=factor) as watch:
                    while True:
                        news = await watch.news(self._settings.heartbeat_seconds)
                        for verdict in news:
                            yield pb.WatchResponse(verdict=verdict_to_wire(verdict))
                        if not news:
                            yield pb.WatchResponse()
            except TooManyWatchersError as error:
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))

    @contextlib.asynccontextmanager
    async def _limited(self, in_progress: Counter[str], most: int, flag: str, context: Context) -> AsyncIterator[None]:
        """Count a call in progress; abort it if its connection already has ``most``."""
        peer = context.peer()
        if in_progress[peer] >= most:
            await asyncio.sleep(REFUSED_SECONDS)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"this connection already has {most} in progress ({flag})")
        in_progress[peer] += 1
        try:
            yield
        finally:
            in_progress[peer] -= 1
            if not in_progress[peer]:
                del in_progress[peer]

    async def ListAgents(self, request: pb.ListAgentsRequest, context: Context) -> pb.ListAgentsResponse:  # noqa: N802, ARG002
        """List the members."""
        members = self._driver.roster.all()
        return pb.ListAgentsResponse(agents=[agent_to_wire(member, self._driver.state_of(member)) for member in members])

    async def ListSnapshots(self, request: pb.ListSnapshotsRequest, context: Context) -> pb.ListSnapshotsResponse:  # noqa: N802, ARG002
        """List the newest snapshots."""
        return pb.ListSnapshotsResponse(snapshots=await self._snapshot_store.summaries(_limit(request.limit)))

    async def ListIncidents(self, request: pb.ListIncidentsRequest, context: Context) -> pb.ListIncidentsResponse:  # noqa: N802, ARG002
        """List the newest incidents."""
        incidents = await self._snapshot_store.incidents(
            _limit(request.limit), self._driver.incidents.open_ones(), open_only=request.open_only
        )
        now = self._driver.current.all()
        return pb.ListIncidentsResponse(
            incidents=[incident_to_wire(each, self._driver.lost_of(each), current_explanation(each, now)) for each in incidents]
        )

    async def GetSnapshot(self, request: pb.GetSnapshotRequest, context: Context) -> pb.GetSnapshotResponse:  # noqa: N802
        """Return one snapshot in full, from the store or the archive."""
        if request.id > NUMBER_MAX:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"id: snapshot numbers go up to {NUMBER_MAX}")
        answer = await self._snapshot_store.evaluated_snapshot(request.id)
        if answer is None and request.id:
            answer = await self._archive_service.snapshot(request.id)
        if answer is None:
            none_yet = "no snapshot is kept yet: the first is taken when a process connects"
            text = self._absent(request.id) if request.id else none_yet
            await context.abort(grpc.StatusCode.NOT_FOUND, text)
            raise AssertionError("abort raises")
        return answer

    def _absent(self, number: int) -> str:
        if number >= self._driver.next_id:
            return f"there is no snapshot {number} yet: the next one is {self._driver.next_id}"
        return (
            f"snapshot {number} is neither in the store nor in the archive, or was never finished "
            "(serve --store-documents-max, --archive-bytes-max)"
        )

    async def Cure(self, request: pb.CureRequest, context: Context) -> pb.CureResponse:  # noqa: N802
        """End an incident, or preview that."""
        try:
            if request.preview:
                plan = await self._cures.plan(request.incident)
                return plan_to_wire(plan, text=plan.text())
            outcome = await (await self._cures.cure(request.incident, who_is(context)))
        except CureRefusedError as refused:
            await context.abort(_REFUSALS[refused.refusal], str(refused))
            raise AssertionError("abort raises") from None
        return plan_to_wire(outcome.plan, text=outcome.text, over=outcome.over, snapshot=outcome.snapshot)

    async def Forget(self, request: pb.ForgetRequest, context: Context) -> pb.ForgetResponse:  # noqa: N802
        """End the membership of a lost process. The audit log is written first, as for a cure."""
        who = who_is(context)
        member = await self._lost_member(request.process, context)
        try:
            await asyncio.to_thread(self._audit.write, self._clock.now(), "forget", who, process=member.name)
        except OSError as error:
            text = f"the audit log cannot be written: {error.strerror or error}"
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, text)
        member = await self._lost_member(request.process, context)  # it may have come back meanwhile
        was = agent_to_wire(member, self._driver.state_of(member))
        self._driver.forget(member, who)
        return pb.ForgetResponse(agent=was)

    async def _lost_member(self, name: str, context: Context) -> Member:
        member = self._driver.roster.get(ProcessName(name))
        if member is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no process {name!r} is a member; 'stilltrue agents' lists them")
            raise AssertionError("abort raises")
        state = self._driver.state_of(member)
        if state is not MemberState.LOST:
            why = f"it is {state.value}; a process is lost once nothing has been heard of it for --lease-seconds"
            text = f"only a lost process can be forgotten, and {name} is not: {why} ({self._settings.lease_seconds:g})"
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, text)
        return member

    async def ListStacks(self, request: pb.ListStacksRequest, context: Context) -> pb.ListStacksResponse:  # noqa: N802
        """Return what the parties that have not moved for a while are blocked on."""
        everyone = self._driver.roster.all()
        if request.process:
            members = [one for one in everyone if one.name == request.process]
            members = members or _live_first([one for one in everyone if one.process.service == request.process])
        else:
            members = _live_first(everyone)
        if request.process and not members:
            text = f"no process or service {request.process!r} is a member; 'stilltrue agents' lists them"
            await context.abort(grpc.StatusCode.NOT_FOUND, text)
        most = self._settings.asks_per_connection_max
        async with self._limited(self._asking, most, "--asks-per-connection-max", context):
            answers = await self._stacks.ask(members[:LIST_DEFAULT])
        return pb.ListStacksResponse(processes=map(stacks_to_wire, answers))

    async def DescribeArchive(  # noqa: N802
        self, request: pb.DescribeArchiveRequest, context: Context
    ) -> pb.DescribeArchiveResponse:
        """Return the ranges of the archive's tables."""
        return await self._archive_service.describe(request, context)

    async def ReadArchive(self, request: pb.ReadArchiveRequest, context: Context) -> None:  # noqa: N802
        """Stream rows of the archive as Arrow batches."""
        await self._archive_service.read(request, context)

    async def _check(self, predicate: str, scope: str, context: Context) -> None:
        if predicate not in self._predicates:
            text = no_predicate(predicate, self._predicates)
            if predicate in predicate_names():
                text = f"the predicate {predicate!r} was installed after the detector had started: restart the detector"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
        if scope and scope not in self._scopes:
            text = f"no scope {scope!r}; available: {', '.join(self._scopes)} (define one with serve --scope NAME=LABEL=VALUE)"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)


def _live_first(members: list[Member]) -> list[Member]:
    """The live ones; if there are none, all: the answer says that they are not connected."""
    return [one for one in members if one.live] or members


def _limit(asked: int) -> int:
    return min(asked, LIST_MAX) if asked else LIST_DEFAULT
