"""The interface of an application over FIFO channels, the settings of a live process, and its snapshot error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from stilltrue.fifo.errors import ChannelError
from stilltrue.fifo.model import Channel
from stilltrue.model import ProcessName


class Application(Protocol):
    """An application over FIFO channels. Its methods must not block or await: each call is one atomic step."""

    def state(self) -> bytes:
        """Return the current state in the application's own encoding."""
        ...

    def restore(self, state: bytes) -> None:
        """Restore a state returned by :meth:`state`; called before anything is sent or received."""
        ...

    def received(self, on: Channel, payload: bytes, send: Callable[[ProcessName, bytes], None]) -> None:
        """Handle a message that came on channel ``on``; it may call ``send(target, payload)``."""
        ...


class SnapshotFailedError(ChannelError):
    """A snapshot was abandoned; the message says by which process and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSettings:
    """The bounds of a live process.

    ``queue_messages_max``: messages that wait to be sent to one process. ``recorded_messages_max``: messages recorded for one
    snapshot. ``snapshots_max``: snapshots in progress. ``close_seconds_max``: the time to send the rest when closing.
    """

    queue_messages_max: int = 10_000
    frame_bytes_max: int = 16 * 1024 * 1024
    recorded_messages_max: int = 1_000_000
    snapshots_max: int = 16
    close_seconds_max: float = 5.0
