"""The errors of FIFO channels, by whose fault they are."""

from __future__ import annotations


class ChannelError(Exception):
    """Base of all errors of FIFO channels, markers and records; the message is one line."""


class MarkerError(ChannelError):
    """A marker or message that the algorithm cannot have produced: the other end or the host is at fault."""


class RecordError(ChannelError):
    """A local record that belongs to another snapshot, or contradicts the one already held."""


class ConservationError(ChannelError):
    """The counts at the two ends of a channel contradict each other: it is not FIFO, or it lost or invented messages."""
