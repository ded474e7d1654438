"""The agent: joins one gRPC process to the detector. Everything an application calls is here.

agent = stilltrue.Agent(service="orders")
channel = agent.channel(grpc.insecure_channel("stock:50051"))
server = grpc.server(agent.pool(ThreadPoolExecutor(4)), interceptors=[agent.server_interceptor()])
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, overload
from weakref import ref

import grpc
import grpc.aio

from stilltrue.aio import RecordedAioChannel
from stilltrue.aio_serving import RecordedAioServer
from stilltrue.connection import Connection
from stilltrue.joined import Joined
from stilltrue.live import LiveRecorder
from stilltrue.model import ProcessId
from stilltrue.names import as_process_name, check_process_name
from stilltrue.observe import Observer
from stilltrue.parties import Parties
from stilltrue.pools import record_pool
from stilltrue.recorder import Recorder
from stilltrue.serving import RecordedServer
from stilltrue.settings import Settings, read_settings
from stilltrue.stamp import NUMBER_MAX
from stilltrue.threads import RecordedChannel


class Agent:
    """One process's agent. It may lose a snapshot, never a request: whatever fails in it, the application goes on."""

    def __init__(
        self,
        service: str | None = None,
        *,
        instance: str | None = None,
        detector: str | None = None,
        labels: Mapping[str, str] | None = None,
        reactive: bool | None = None,
        block_seconds_max: float | None = None,
        **further: object,
    ) -> None:
        """See :class:`stilltrue.settings.Settings`; what is not given is read from the environment (``STILLTRUE_...``).

        Raises :class:`stilltrue.settings.SettingRefusedError`.
        """
        given = {
            "service": service,
            "instance": instance,
            "detector": detector,
            "labels": labels,
            "reactive": reactive,
            "block_seconds_max": block_seconds_max,
            **further,
        }
        self.settings: Settings = read_settings(given)
        self._lifecycle = threading.Lock()
        self._pid = os.getpid()
        self._connection: Connection | None = None
        self._closed = False
        self._process = self._identify(self.settings.instance)
        self.parties = Parties(self._process.instance)
        self.live = LiveRecorder(self._begin, reports_max=self.settings.reports_max)
        self._joined = Joined(self.live, self.parties, self.settings.enabled)
        self._pools = 0
        _hook(self)

    # -- life ----------------------------------------------------------------------------------------------------------

    @property
    def process(self) -> ProcessId:
        """Who this process is."""
        return self._process

    def start(self) -> Agent:
        """Begin to dial the detector; the first channel, pool or server does it too. Doing it twice is nothing."""
        with self._lifecycle:
            if self._connection is None and not self._closed and self.settings.enabled:
                self._connection = Connection(self.live, self._process, self.settings)
                self._connection.start()
        return self

    def close(self) -> None:
        """Say goodbye to the detector: the process is no member any more. Doing it twice is nothing."""
        with self._lifecycle:
            self._closed = True
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    stop = close

    def __enter__(self) -> Agent:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def wait_until_joined(self, timeout_seconds: float) -> bool:
        """Wait until a detector has accepted this process; whether one has. For tests and demonstrations."""
        self.start()
        connection = self._connection
        return connection is not None and connection.welcomed.wait(timeout_seconds)

    # -- joining -------------------------------------------------------------------------------------------------------

    @overload
    def channel(self, channel: grpc.Channel, target: str = "") -> grpc.Channel: ...
    @overload
    def channel(self, channel: grpc.aio.Channel, target: str = "") -> grpc.aio.Channel: ...
    def channel(self, channel: Any, target: str = "") -> Any:
        """``channel`` (of grpc or grpc.aio), but what is called on it is recorded; ``target`` names the address in reports."""
        if not self.settings.enabled or isinstance(channel, RecordedChannel | RecordedAioChannel):
            return channel
        self.start()
        if isinstance(channel, grpc.aio.Channel):
            return RecordedAioChannel(channel, self._joined, target)
        return RecordedChannel(channel, self._joined, target or str(getattr(channel, "_target", "")))

    def server_interceptor(self) -> grpc.ServerInterceptor:
        """The interceptor for ``grpc.server``; give it first."""
        self.start()
        return RecordedServer(self._joined)

    def aio_server_interceptor(self) -> grpc.aio.ServerInterceptor:
        """The interceptor for ``grpc.aio.server``; give it first."""
        self.start()
        return RecordedAioServer(self._joined)

    def pool(self, executor: ThreadPoolExecutor, name: str = "") -> ThreadPoolExecutor:
        """``executor``, whose size and queue are recorded from now on; without this no pool ever counts as full."""
        if not self.settings.enabled:
            return executor
        self.start()
        self._pools += 1
        record_pool(executor, self.live, name or f"pool-{self._pools}")
        return executor

    # -- inside --------------------------------------------------------------------------------------------------------

    def _identify(self, instance: str) -> ProcessId:
        return ProcessId(
            service=self.settings.service,
            instance=check_process_name(instance),
            incarnation=(time.time_ns() // 1000) % NUMBER_MAX,
        )

    def _begin(self) -> Recorder:
        settings = self.settings
        return Recorder(
            process=self._process,
            reactive=settings.reactive,
            labels=settings.labels,
            observe=Observer(self.parties),
        )

    def _forked(self) -> None:
        """In the child of a fork: another process, with nothing recorded, which dials when something happens."""
        name = self.settings.instance.replace(f"-{self._pid}", f"-{os.getpid()}")
        if name == self.settings.instance:
            name = as_process_name(f"{name[:240]}-{os.getpid()}")
        self._pid = os.getpid()
        self._lifecycle = threading.Lock()
        self._process = self._identify(name)
        self._connection = None
        self.parties.restart(self._process.instance)
        self.live.restart()
        if not self._closed:
            self.live.deferred.append(self.start)


def _hook(agent: Agent) -> None:
    """Have the agent close at exit and begin anew in a forked child, without keeping it alive."""
    weak = ref(agent)

    def close() -> None:
        known = weak()
        if known is not None:
            known.close()

    def forked() -> None:
        known = weak()
        if known is not None:
            known._forked()  # noqa: SLF001 - one thing in two functions

    atexit.register(close)
    os.register_at_fork(after_in_child=forked)
