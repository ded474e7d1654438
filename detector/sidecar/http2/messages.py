"""Counts gRPC messages (a flag, four bytes of length, the message) in DATA frames."""

from __future__ import annotations

_PREFIX_BYTES = 5


class MessageCounter:
    """Counts the messages of one direction of one call."""

    __slots__ = ("_prefix", "_remaining", "count")

    def __init__(self) -> None:
        self.count = 0
        self._remaining = 0
        self._prefix = b""

    def feed(self, content: bytes) -> int:
        """Process the next ``content``; return the number of messages it completes."""
        before = self.count
        fresh = not self._remaining and not self._prefix and len(content) >= _PREFIX_BYTES
        if fresh and len(content) == _PREFIX_BYTES + int.from_bytes(content[1:_PREFIX_BYTES], "big"):
            self.count += 1  # by far the most common: one frame, one message
            return 1
        at, end = 0, len(content)
        while at < end:
            if self._remaining:
                taken = min(self._remaining, end - at)
                self._remaining -= taken
                at += taken
                if not self._remaining:
                    self.count += 1
                continue
            taken = min(_PREFIX_BYTES - len(self._prefix), end - at)
            self._prefix += content[at : at + taken]
            at += taken
            if len(self._prefix) == _PREFIX_BYTES:
                self._remaining = int.from_bytes(self._prefix[1:], "big")
                self._prefix = b""
                if not self._remaining:
                    self.count += 1
        return self.count - before
