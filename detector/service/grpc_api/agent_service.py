"""The gRPC service for agents: one stream each, with reports, looks and leases from the agent, and markers and requests to it.

Messages cross gRPC as bytes, so that malformed ones are refused here with a clear status, and a marker for all members is
serialised once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from detector.ops.clock import Clock
from detector.ops.logs import Log
from detector.service.cure.cures import Cures
from detector.service.detection.driver import Driver
from detector.service.detection.membership.colour_budget import ColourRefusedError
from detector.service.detection.membership.members import Member, NameBoundError, NameTakenError, Sight, TooManyMembersError
from detector.service.detection.stacks import StacksRequests
from detector.service.grpc_api.agent_stream import (
    MARKERS_PER_TURN,
    NEWS_PER_TURN,
    AgentStream,
    Context,
    LoopThrottle,
    Pace,
    ReplacedError,
)
from detector.service.grpc_api.first_messages import PATIENCE_SECONDS, FirstMessages
from detector.service.grpc_api.relay import RelayedContext
from detector.service.grpc_api.report_checks import (
    RefusedError,
    check_bytes,
    check_entries,
    check_owner,
    check_share,
    check_weight,
    entries_of,
    not_a_request,
)
from detector.service.grpc_api.report_reader import ReportBytes, ReportReader, check_moments, check_times, split
from detector.service.grpc_api.roles import Role, Roles
from detector.service.grpc_api.security import bearer_token, certificate_names, lacking
from detector.service.metrics import Metrics, detector_version
from detector.service.settings import Settings
from stilltrue.model import SnapshotId
from stilltrue.protocol.report import Report
from stilltrue.protocol.stamp import NUMBER_MAX
from stilltrue.protocol.wire.cure import cured_from_wire
from stilltrue.protocol.wire.look import look_from_wire
from stilltrue.protocol.wire.stacks import found_from_wire
from stilltrue.protocol.wire.values import MalformedError, process_from_wire, process_to_wire
from stilltrue.v1 import agent_pb2 as pb
from stilltrue.v1 import snapshot_pb2 as snapshot_pb

Decoded = TypeVar("Decoded")

AGENT_SERVICE = "stilltrue.v1.AgentService"
HELLO_BYTES_MAX = 64 * 1024
THREAD_BYTES_MIN = 128 * 1024
"""Messages of this size are decoded on a thread, since each takes tens of milliseconds."""
_HELLO_SECONDS_MAX = 10.0
_HELLOS_READ_MAX = 64
_BLIND_MAX = 10
_BLIND_CHARACTERS_MAX = 200


class AgentServicer:
    """``stilltrue.v1.AgentService``."""

    def __init__(
        self,
        *,
        driver: Driver,
        cures: Cures,
        stacks: StacksRequests,
        settings: Settings,
        clock: Clock,
        metrics: Metrics,
        log: Log,
        roles: Roles | None = None,
    ) -> None:
        """``roles`` None: every client may report under any name."""
        self._roles = roles
        self._driver = driver
        self._cures = cures
        self._stacks = stacks
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._news, self._writes = LoopThrottle(NEWS_PER_TURN), LoopThrottle(MARKERS_PER_TURN)
        self._decoding = asyncio.Lock()
        self._first_messages = FirstMessages(_HELLOS_READ_MAX)
        driver.unread = lambda: self._news.crowded() or self._writes.crowded() or self._decoding.locked()

    def handler(self) -> grpc.GenericRpcHandler:
        """The handler for :meth:`grpc.aio.Server.add_generic_rpc_handlers`."""
        return grpc.method_handlers_generic_handler(
            AGENT_SERVICE, {"Connect": grpc.stream_stream_rpc_method_handler(self._connect, None, None)}
        )

    async def _connect(self, _: object, context: Context) -> None:
        await self.serve(context)

    async def serve(self, context: Context) -> None:
        """Serve one agent's stream, from its hello to its end."""
        stream = AgentStream(context, self._writes)
        member: Member | None = None
        try:
            member = await self._admit(stream, context)
            await stream.open(self._welcome(differences=not isinstance(context, RelayedContext)))
            await self._listen(member, stream)
        except RefusedError as refusal:
            self._metrics.report_refused(refusal.reason)
            self._log.warning(
                "agent refused", peer=context.peer(), process=member.name if member else None, status=refusal.status.name,
                reason=refusal.text,
            )  # fmt: skip
            await stream.end(refusal.status, refusal.text)
        except ReplacedError as replaced:
            await stream.end(grpc.StatusCode.ALREADY_EXISTS, str(replaced))
        finally:
            stream.close()
            if member is not None and member.stream is stream:
                self._driver.broke(member)

    def _welcome(self, *, differences: bool) -> pb.ConnectResponse:
        """``differences``: reports may be sent as differences; not through a collector, which stores whole reports."""
        welcome = pb.Welcome(
            detector=f"stilltrue {detector_version()}",
            lease_seconds=self._settings.lease_seconds,
            report_bytes_max=self._settings.report_bytes_max,
            differences=differences,
        )
        return pb.ConnectResponse(welcome=welcome)

    async def _admit(self, stream: AgentStream, context: Context) -> Member:
        """Read the hello and admit the member."""
        try:
            data = await self._first_messages.read(context.peer(), context.read, _HELLO_SECONDS_MAX)
        except TimeoutError:
            text = f"no hello within {_HELLO_SECONDS_MAX:g} s, or {PATIENCE_SECONDS:g} s while others wait"
            raise RefusedError(grpc.StatusCode.DEADLINE_EXCEEDED, text, "no_hello") from None
        if isinstance(data, bytes) and len(data) > HELLO_BYTES_MAX:
            size = len(data)
            del data  # otherwise the error's traceback would keep it alive
            text = f"the hello has {size} bytes; at most {HELLO_BYTES_MAX} are accepted: use fewer or shorter labels"
            raise RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, text, "oversized")
        request = self._read(data) if isinstance(data, bytes) else pb.ConnectRequest()
        if request.WhichOneof("message") != "hello":
            raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, "hello: must be the first message of an agent", "no_hello")
        member = self._member(request.hello, stream)
        member.names = certificate_names(context)
        if self._roles is not None:
            _check_roles(self._roles, member, bearer_token(context))
        try:
            self._driver.joined(member)
        except NameBoundError as error:
            raise RefusedError(grpc.StatusCode.PERMISSION_DENIED, str(error), "name_bound") from None
        except NameTakenError as error:
            raise RefusedError(grpc.StatusCode.ALREADY_EXISTS, str(error), "name_taken") from None
        except TooManyMembersError as error:
            raise RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error), "too_many_members") from None
        except ColourRefusedError as error:
            raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, f"hello.colour: {error}", "colour") from None
        return member

    def _member(self, hello: pb.Hello, stream: AgentStream) -> Member:
        try:
            process = process_from_wire(hello.process)
        except MalformedError as error:
            raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, f"hello.{error}", "malformed") from None
        now = self._clock.now()
        return Member(
            process=process,
            labels=dict(hello.labels),
            agent=hello.agent,
            reactive=hello.reactive,
            sight=_sight(hello.sight) if hello.HasField("sight") else None,
            connected_at=now,
            heard_at=now,
            colour=SnapshotId(hello.colour),
            stream=stream,
            looks=hello.looks,
            cures=hello.cures,
            stacks=hello.stacks,
        )

    async def _listen(self, member: Member, stream: AgentStream) -> None:
        """Handle every message after the hello, until the agent ends the stream."""
        pace, reader = Pace(monotonic()), ReportReader(process_to_wire(member.process).SerializeToString())
        while isinstance(data := await stream.read(), bytes):
            pause = pace.pause(monotonic(), len(data))
            if pause:
                await asyncio.sleep(pause)
            try:
                await self._take_bytes(member, data, reader)
            except MalformedError as error:
                raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, f"report.{error}", "malformed") from None
            except ColourRefusedError as error:
                raise RefusedError(grpc.StatusCode.INVALID_ARGUMENT, str(error), "colour") from None
            except (NameBoundError, NameTakenError, TooManyMembersError) as error:
                raise RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error), "too_many_members") from None

    async def _take_bytes(self, member: Member, data: bytes, reader: ReportReader) -> None:
        check_bytes(data, self._settings.report_bytes_max)
        found, size = split(data), len(data)
        try:
            if found is None:
                request = await self._decode(size, partial(self._read, data))
                if not request.HasField("difference"):
                    await self._take(member, request, reader, size)
                    return
                difference, most = request.difference, self._settings.report_bytes_max
                found = await self._decode(max(size, reader.restored_bytes), partial(reader.restored, difference, most))
                data, size = b"", len(found.rest)
            if not self._is_refused(member, found):
                await self._take_split(member, data, found, reader, size)
        except DecodeError:
            raise not_a_request() from None

    async def _take_split(self, member: Member, data: bytes, found: ReportBytes, reader: ReportReader, size: int) -> None:
        """Take a report that passed the check of its heading; one with new content waits for its turn to be decoded.

        ``data``: the message that contains it; empty if it came as a difference.
        """
        report = reader.again(found)
        if report is not None:
            check_moments("cut_at", (report.cut_at,))
            fits = self._driver.roster.accepts_unchanged(member.name)
            check_share(fits, self._settings.reports_entries_max, "entries (--reports-entries-max; see --reports-bytes-max)")
            self._driver.reported(member, report)
            return
        self._driver.heard(member)
        self._check_bytes(member, size)
        await self._news.turn()
        if (message := await self._decode(size, partial(self._message, found))) is not None:
            await self._take_report(member, message, reader, found, size)
        elif not data:
            raise MalformedError("difference.pieces: must not change the heading")
        else:
            await self._take(member, await self._decode(size, partial(self._read, data)), reader, size)

    def _message(self, found: ReportBytes) -> snapshot_pb.Report | None:
        check_weight(found.rest, snapshot_pb.Report, self._settings.report_entries_max)
        return found.message()

    async def _decode(self, size: int, decode: Callable[[], Decoded]) -> Decoded:
        """Call ``decode``; if ``size`` bytes take long, on a thread, one at a time, so that the loop goes on."""
        if size < THREAD_BYTES_MIN:
            return decode()
        async with self._decoding:
            return await asyncio.to_thread(decode)

    async def _take(self, member: Member, request: pb.ConnectRequest, reader: ReportReader, size: int) -> None:
        match request.WhichOneof("message"):
            case "report":
                if not self._is_refused(member, request.report):
                    await self._take_report(member, request.report, reader, None, size)
            case "lease":
                self._lease(member, request.lease)
            case "looked":
                look = await self._decode(size, partial(look_from_wire, member.name, request.looked))
                check_moments("looked.parties.deadline", (one.deadline for one in look.parties))
                self._driver.looked(member, look)
            case "cured":
                self._cures.cured(member, cured_from_wire(member.name, request.cured))
            case "stacks_found":
                stacks = await self._decode(size, partial(found_from_wire, member.name, request.stacks_found))
                self._stacks.found(member, stacks)
            case "wish":
                self._driver.requested(member, request.wish.reason, request.wish.covered_seconds)
            case "goodbye":
                self._driver.said_goodbye(member)
            case "hello":
                raise MalformedError("hello: sent twice on one stream")
            case _:
                return  # a message of a later version

    def _lease(self, member: Member, lease: pb.Lease) -> None:
        for name in ("colour", "reports_dropped", "stamps_refused"):
            if getattr(lease, name) > NUMBER_MAX:
                raise MalformedError(f"lease.{name}: above {NUMBER_MAX}")
        if lease.HasField("sight"):
            member.sight = _sight(lease.sight)
        self._driver.leased(member, SnapshotId(lease.colour), lease.reports_dropped, lease.stamps_refused)

    async def _take_report(
        self, member: Member, message: snapshot_pb.Report, reader: ReportReader, found: ReportBytes | None, size: int
    ) -> None:
        check_entries(message, self._settings.report_entries_max)
        self._check_bytes(member, size)
        fits = self._driver.roster.accepts_entries(member.name, entries_of(message))
        check_share(fits, self._settings.reports_entries_max, "entries (--reports-entries-max)")
        report = await self._decode(size, partial(_decoded, message, reader, found))
        check_owner(report, member.process)
        self._driver.reported(member, report)

    def _check_bytes(self, member: Member, size: int) -> None:
        fits = self._driver.roster.accepts_bytes(member.name, size)
        check_share(fits, self._settings.reports_bytes_max, "bytes (--reports-bytes-max)")

    def _is_refused(self, member: Member, report: snapshot_pb.Report | ReportBytes) -> bool:
        process = report.process_id() if isinstance(report, ReportBytes) else report.process
        own = process.instance == member.name and process.incarnation == member.process.incarnation
        numbers = 0 <= report.after < report.snapshot <= NUMBER_MAX
        return own and numbers and self._driver.refuses(member, SnapshotId(report.after), SnapshotId(report.snapshot))

    def _read(self, data: bytes) -> pb.ConnectRequest:
        check_weight(data, pb.ConnectRequest, self._settings.report_entries_max)
        try:
            return pb.ConnectRequest.FromString(data)
        except DecodeError:
            raise not_a_request() from None


def _decoded(message: snapshot_pb.Report, reader: ReportReader, found: ReportBytes | None) -> Report:
    report = reader.decoded(message, found)
    check_times(report)
    return report


def _sight(sight: pb.Sight) -> Sight:
    return Sight(
        servers=sight.servers,
        channels=sight.channels,
        calls=sight.calls,
        servers_unseen=sight.servers_unseen,
        channels_unseen=sight.channels_unseen,
        blind=tuple(text[:_BLIND_CHARACTERS_MAX] for text in sight.blind[:_BLIND_MAX]),
        unexplained=sight.unexplained if sight.HasField("unexplained") else None,
        unexplained_calls=sight.unexplained_calls if sight.HasField("unexplained_calls") else None,
        unexplained_waits=sight.unexplained_waits if sight.HasField("unexplained_waits") else None,
        instrumented=sight.instrumented,
    )


def _check_roles(known: Roles, member: Member, token: str) -> None:
    """Refuse a member whose client lacks the role agent (one behind a collector may), or may not use its name."""
    needed, roles = frozenset({Role.AGENT}), known.of(member.names, token)
    if not roles & needed:
        code, text = lacking("Connect", needed, roles, member.names, token)
        raise RefusedError(code, text, code.name.lower())
    if not known.may_report_as(member.names, token, member.process):
        who = min(member.names, default="this token")
        text = f"{who} may not report as {member.name} of {member.process.service} (--roles-file: processes)"
        raise RefusedError(grpc.StatusCode.PERMISSION_DENIED, text, "permission_denied")
