"""FIFO channels with the messages kept: Chandy and Lamport's markers as published; live over gRPC in ``.live``.

Importing this package imports only the standard library; gRPC comes with :mod:`stilltrue.channels.live`.
"""

from __future__ import annotations

from stilltrue.channels.collection import Completed, Flood, FloodEffect, PendingSnapshot, SendRecord
from stilltrue.channels.errors import ChannelError, ConservationError, MarkerError, RecordError
from stilltrue.channels.nouns import (
    Abandoned,
    AbandonReason,
    Channel,
    ChannelRecord,
    ChannelRecorder,
    ChannelSnapshot,
    Cut,
    Effect,
    Finished,
    Hold,
    LocalRecord,
    Release,
    SendMarker,
    channel,
)
from stilltrue.channels.recorder import MarkerRecorder
from stilltrue.channels.topology import Topology

__all__ = [
    "MarkerRecorder",
    "PendingSnapshot",
    "Flood",
    "Topology",
    "Channel",
    "channel",
    "ChannelRecord",
    "ChannelRecorder",
    "LocalRecord",
    "ChannelSnapshot",
    "Effect",
    "Cut",
    "SendMarker",
    "Finished",
    "Abandoned",
    "AbandonReason",
    "Hold",
    "Release",
    "FloodEffect",
    "SendRecord",
    "Completed",
    "ChannelError",
    "MarkerError",
    "RecordError",
    "ConservationError",
]
