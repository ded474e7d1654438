"""Live FIFO channels: processes joined by bidirectional gRPC streams, with snapshots that contain the messages themselves.

Each pair of processes that share a channel has one stream, dialled by the one whose name sorts first. All rules are in
:mod:`stilltrue.fifo.participant`; this file is the shell: streams, queues, timeouts. Everything runs on one event loop, and
the application's ``received`` and ``state`` are plain functions on that loop, so that each call of them is one step.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import grpc
import grpc.aio

from stilltrue.fifo.application import Application, LiveSettings, SnapshotFailedError
from stilltrue.fifo.errors import ChannelError
from stilltrue.fifo.model import Channel
from stilltrue.fifo.participant import Action, Deliver, LiveSnapshot, Participant, SendFrame, SnapshotDone, SnapshotFailed
from stilltrue.fifo.stream import Stream, frames_of
from stilltrue.fifo.topology import Topology
from stilltrue.fifo.wire import Frame, Goodbye, Hello, RecordFrame, digest_of, encode
from stilltrue.model import ProcessName, SnapshotId
from stilltrue.v1 import channels_pb2 as pb

__all__ = ["Application", "FifoProcess", "LiveSettings", "SnapshotFailedError"]

_LOG = logging.getLogger(__name__)
_SERVICE, _METHOD = "stilltrue.v1.ChannelService", "Attach"


class FifoProcess:
    """One process of a system of FIFO channels.

    Create it, :meth:`listen`, exchange addresses with the others, :meth:`join`. ``restored`` is a snapshot to continue from:
    the application's state is restored, and the messages in transit from here are sent again, first. ``on_snapshot`` is
    called with every completed snapshot, whichever process began it; ``on_lost`` with each process whose stream broke.
    """

    def __init__(
        self,
        name: ProcessName,
        topology: Topology,
        application: Application,
        *,
        settings: LiveSettings | None = None,
        restored: LiveSnapshot | None = None,
        on_snapshot: Callable[[LiveSnapshot], None] | None = None,
        on_lost: Callable[[ProcessName], None] | None = None,
    ) -> None:
        self.name = name
        self._application, self._settings = application, settings or LiveSettings()
        self._on_snapshot, self._on_lost = on_snapshot, on_lost
        newest = SnapshotId(0) if restored is None else restored.snapshot
        self._participant = Participant(
            name,
            topology,
            state=application.state,
            newest=newest,
            messages_max=self._settings.recorded_messages_max,
            snapshots_max=self._settings.snapshots_max,
        )
        self._streams = {other: Stream(self._settings.queue_messages_max) for other in topology.neighbours(name)}
        self._hello = Hello(process=name, digest=digest_of(topology))
        self._waiting: dict[SnapshotId, asyncio.Future[LiveSnapshot]] = {}
        self._server: grpc.aio.Server | None = None
        self._dials: list[asyncio.Task[None]] = []
        self._ended: dict[ProcessName, str] = {}
        self._stopping: asyncio.Task[None] | None = None
        self._closing = False
        self._failure: BaseException | None = None
        if restored is not None:
            self._restore(restored)

    @property
    def lost(self) -> tuple[ProcessName, ...]:
        """The processes whose stream broke."""
        return self._participant.lost

    @property
    def failure(self) -> BaseException | None:
        """The exception that the application raised while it received a message, after which the process stopped, or None."""
        return self._failure

    async def listen(self, address: str = "127.0.0.1:0", credentials: grpc.ServerCredentials | None = None) -> int:
        """Accept streams of other processes; returns the port. Raises OSError if it cannot listen on ``address``."""
        limit = self._settings.frame_bytes_max
        self._server = grpc.aio.server(options=[("grpc.max_receive_message_length", limit), ("grpc.so_reuseport", 0)])
        attach = grpc.stream_stream_rpc_method_handler(
            self._attached,
            request_deserializer=pb.AttachRequest.FromString,
            response_serializer=pb.AttachResponse.SerializeToString,
        )
        handler = grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: attach})
        self._server.add_generic_rpc_handlers((handler,))
        try:
            if credentials is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address}: {error}") from error
        await self._server.start()
        return port

    async def join(
        self, addresses: Mapping[ProcessName, str], credentials: grpc.ChannelCredentials | None = None, *, seconds: float = 30.0
    ) -> None:
        """Dial the other processes (each pair has one that dials) and wait until all streams are up.

        Raises TimeoutError after ``seconds``, and ChannelError if another process refuses or is lost before all are up.
        """
        for other in self._streams:
            if self.name < other:
                self._dials.append(asyncio.create_task(self._dial(other, addresses[other], credentials)))
        await asyncio.wait_for(self._all_up(), seconds)

    async def _all_up(self) -> None:
        for other, stream in self._streams.items():
            await stream.up.wait()
            if stream.closed:
                raise ChannelError(f"{self.name} could not join {other}: {self._ended.get(other, 'closed')}")

    def send(self, target: ProcessName, payload: bytes, *, name: str = "") -> None:
        """Send ``payload``, in the same step as the application's preceding change of its state.

        Raises ChannelError if there is no such channel, it is lost, the payload is too large, or too many messages wait to be
        sent (:meth:`room` waits until there is room again).
        """
        if len(payload) > self._settings.frame_bytes_max - 1024:
            raise ChannelError(f"a payload of {len(payload)} bytes is too large for one message")
        stream = self._streams.get(target)
        if stream is not None and stream.full:
            raise ChannelError(f"{stream.messages} messages are already waiting to be sent to {target}")
        self._perform((self._participant.sends(Channel(source=self.name, target=target, name=name), payload),))

    async def room(self, target: ProcessName) -> None:
        """Wait until another message can be sent to ``target``."""
        await self._streams[target].room()

    async def snapshot(self, *, timeout_seconds: float = 30.0) -> LiveSnapshot:
        """Take a snapshot. Raises ChannelError if none can begin, SnapshotFailedError if it is abandoned or times out."""
        snapshot, actions = self._participant.begins()
        waiting: asyncio.Future[LiveSnapshot] = asyncio.get_running_loop().create_future()
        self._waiting[snapshot] = waiting
        self._perform(actions)
        done, _ = await asyncio.wait({waiting}, timeout=timeout_seconds)
        if not done:
            self._perform(self._participant.gives_up(snapshot, f"{self.name} waited {timeout_seconds} s for it"))
        return waiting.result()

    async def close(self) -> None:
        """Send the queued messages and a goodbye, and stop."""
        self._closing = True
        joined = [stream for stream in self._streams.values() if stream.up.is_set()]
        for stream in joined:
            stream.put(Goodbye())
        try:
            await asyncio.wait_for(asyncio.gather(*(one.flushed() for one in joined)), self._settings.close_seconds_max)
        except TimeoutError:
            _LOG.warning("closed with messages still unsent process=%s", self.name)
        await self._stop()

    async def _stop(self) -> None:
        for dial in self._dials:
            dial.cancel()
        await asyncio.gather(*self._dials, return_exceptions=True)
        if self._server is not None:
            await self._server.stop(None)

    def _restore(self, snapshot: LiveSnapshot) -> None:
        self._application.restore(snapshot.states[self.name])
        for one, messages in sorted(snapshot.channels.items()):
            if one.source == self.name:
                for payload in messages:
                    self._perform((self._participant.sends(one, payload),))

    async def _dial(self, other: ProcessName, address: str, credentials: grpc.ChannelCredentials | None) -> None:
        options = [("grpc.max_receive_message_length", self._settings.frame_bytes_max)]
        if credentials is None:
            dialled = grpc.aio.insecure_channel(address, options=options)
        else:
            dialled = grpc.aio.secure_channel(address, credentials, options=options)
        async with dialled as channel:
            attach = channel.stream_stream(
                f"/{_SERVICE}/{_METHOD}",
                request_serializer=pb.AttachRequest.SerializeToString,
                response_deserializer=pb.AttachResponse.FromString,
            )
            call = attach(wait_for_ready=True)

            async def write(frame: Frame) -> None:
                await call.write(pb.AttachRequest(frame=encode(frame)))

            await write(self._hello)
            await self._session(other, frames_of(call), write)

    async def _attached(
        self, requests: AsyncIterator[pb.AttachRequest], context: grpc.aio.ServicerContext[pb.AttachRequest, pb.AttachResponse]
    ) -> None:
        frames = frames_of(requests)
        try:
            hello = await anext(frames)
        except (StopAsyncIteration, ChannelError):
            hello = None
        refusal = self._refusal(hello)
        if refusal is not None:
            await context.abort(*refusal)
        assert isinstance(hello, Hello)

        async def write(frame: Frame) -> None:
            await context.write(pb.AttachResponse(frame=encode(frame)))

        await write(self._hello)
        await self._session(hello.process, frames, write, greeted=True)

    def _refusal(self, hello: Frame | None) -> tuple[grpc.StatusCode, str] | None:
        if not isinstance(hello, Hello):
            return grpc.StatusCode.INVALID_ARGUMENT, "the stream must begin with a hello"
        if hello.process not in self._streams:
            return grpc.StatusCode.INVALID_ARGUMENT, f"{self.name} has no channel with {hello.process}"
        if hello.digest != self._hello.digest:
            return grpc.StatusCode.FAILED_PRECONDITION, "the two ends disagree about the channels"
        if self._streams[hello.process].up.is_set():
            return grpc.StatusCode.ALREADY_EXISTS, f"{hello.process} is already attached"
        return None

    async def _session(
        self,
        other: ProcessName,
        frames: AsyncIterator[Frame],
        write: Callable[[Frame], Awaitable[None]],
        *,
        greeted: bool = False,
    ) -> None:
        """Read and write until the stream ends; unless it ends with a goodbye, the other process is lost."""
        stream, writing = self._streams[other], None
        ended = "the stream ended"
        try:
            if not greeted:
                self._expect_hello(other, await anext(frames))
            stream.up.set()
            writing = asyncio.create_task(stream.write_all(write))
            async for frame in frames:
                if isinstance(frame, Goodbye):
                    ended = "goodbye"
                    break
                self._perform(self._participant.receives(other, frame))
        except grpc.aio.AioRpcError as error:
            ended = f"{error.code().name.lower()}: {error.details()}"
        except ChannelError as error:
            ended = str(error)
        except StopAsyncIteration:
            ended = "the stream ended before its hello"
        except Exception as error:
            self._failure, self._closing = error, True
            _LOG.exception("the application failed, the process stops process=%s", self.name)
            self._stopping = asyncio.create_task(self._stop())
            raise
        finally:
            if writing is not None:
                writing.cancel()
            self._ends(other, ended)

    def _ends(self, other: ProcessName, ended: str) -> None:
        self._ended[other] = ended
        self._streams[other].close()
        if self._closing:
            return
        _LOG.warning("channels lost process=%s other=%s reason=%s", self.name, other, ended)
        self._perform(self._participant.loses(other))
        if self._on_lost is not None:
            self._on_lost(other)

    def _expect_hello(self, other: ProcessName, frame: Frame) -> None:
        if not isinstance(frame, Hello) or frame.process != other or frame.digest != self._hello.digest:
            raise ChannelError(f"{other} did not answer with its own hello for the same channels")

    def _perform(self, actions: tuple[Action, ...]) -> None:
        for action in actions:
            match action:
                case SendFrame(target=target, frame=frame):
                    self._send_frame(target, frame)
                case Deliver(channel=on, payload=payload):
                    self._application.received(on, payload, self.send)
                case SnapshotDone(snapshot=snapshot):
                    self._answer(snapshot.snapshot, snapshot)
                    if self._on_snapshot is not None:
                        self._on_snapshot(snapshot)
                case SnapshotFailed(snapshot=id_, reason=reason):
                    self._answer(id_, SnapshotFailedError(f"snapshot {id_} was abandoned: {reason}"))

    def _send_frame(self, target: ProcessName, frame: Frame) -> None:
        if isinstance(frame, RecordFrame) and encode(frame).ByteSize() > self._settings.frame_bytes_max - 1024:
            reason = f"the record of {frame.record.process} is larger than {self._settings.frame_bytes_max} bytes"
            self._perform(self._participant.gives_up(frame.record.snapshot, reason))
        else:
            self._streams[target].put(frame)

    def _answer(self, snapshot: SnapshotId, answer: LiveSnapshot | SnapshotFailedError) -> None:
        waiting = self._waiting.pop(snapshot, None)
        if waiting is None or waiting.done():
            return
        if isinstance(answer, SnapshotFailedError):
            waiting.set_exception(answer)
        else:
            waiting.set_result(answer)
