"""The application and the bounds of a live process of FIFO channels, and the errors of its snapshots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from stilltrue.fifo.errors import ChannelError
from stilltrue.fifo.model import Channel
from stilltrue.model import ProcessName


class Application(Protocol):
    """The application that runs over the channels. None of its methods may block or await: each call is one atomic step."""

    def state(self) -> bytes:
        """The state now, in the application's own encoding."""
        ...

    def restore(self, state: bytes) -> None:
        """Become what :meth:`state` once said; called before anything is sent or received."""
        ...

    def received(self, on: Channel, payload: bytes, send: Callable[[ProcessName, bytes], None]) -> None:
        """A message came; ``send(target, payload)`` may be called right here."""
        ...


class SnapshotFailedError(ChannelError):
    """A snapshot was aborted; the text says by which process and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSettings:
    """The bounds of a live process."""

    queue_messages_max: int = 10_000
    frame_bytes_max: int = 16 * 1024 * 1024
    recorded_messages_max: int = 1_000_000
    snapshots_max: int = 16
    close_seconds_max: float = 5.0
