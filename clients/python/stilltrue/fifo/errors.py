"""The errors of FIFO channels, by whose fault it is."""

from __future__ import annotations


class ChannelError(Exception):
    """Anything that is wrong with a FIFO channel, a marker or a record; the text is one line."""


class MarkerError(ChannelError):
    """A marker or message that the algorithm cannot have produced: the other end (or the host) is wrong."""


class RecordError(ChannelError):
    """A local record offered to a snapshot it does not belong to, or that contradicts the one held."""


class ConservationError(ChannelError):
    """The counts of a channel's two ends contradict each other: it is not FIFO, or it lost or invented messages."""
