"""Snapshots of FIFO channels with their messages in transit: Chandy and Lamport's markers. Runs live over gRPC in ``.process``.

This package imports only the standard library; :mod:`stilltrue.fifo.process` imports gRPC.
"""

from __future__ import annotations

from stilltrue.fifo.assembler import Completed, Flood, FloodEffect, PendingSnapshot, SendRecord
from stilltrue.fifo.errors import ChannelError, ConservationError, MarkerError, RecordError
from stilltrue.fifo.model import (
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
from stilltrue.fifo.recorder import MarkerRecorder
from stilltrue.fifo.topology import Topology

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
