"""The interface through which the relay reports calls, and the reply to a call that cannot proceed."""

from __future__ import annotations

from typing import Protocol

from detector.sidecar.http2.hpack import Headers


class TrackedCall(Protocol):
    """One call that an observer follows; each method is an event."""

    def request_message(self, count: int) -> None:
        """The ``count``-th message of the request is complete."""

    def request_ended(self) -> None:
        """The request is complete."""

    def reply_message(self, count: int) -> None:
        """The ``count``-th message of the reply is complete."""

    def reply_begun(self) -> None:
        """The first byte of a reply message arrived."""

    def server_leaves(self) -> None:
        """The server will close the connection, and may end the call before (GOAWAY)."""

    def trailers(self, headers: Headers, limit: int | None) -> Headers:
        """The reply ended with these trailers; return those to forward, within ``limit`` bytes if any are added."""

    def broken(self, *, by_caller: bool) -> None:
        """The call ended without trailers: it was reset, or the connection was lost."""


class CallObserver(Protocol):
    """Observes the calls of a relay."""

    def opened(self, headers: Headers, limit: int | None) -> tuple[Headers, TrackedCall | None]:
        """A request arrived; return the headers to forward, and the call if it is tracked."""

    def stripped(self, headers: Headers) -> Headers:
        """Return a reply's ``headers`` without stamps and parties."""


def refusal(why: str) -> Headers:
    """Return the headers of an UNAVAILABLE reply, as gRPC servers send it."""
    return [
        (b":status", b"200"),
        (b"content-type", b"application/grpc"),
        (b"grpc-status", b"14"),
        (b"grpc-message", _percent(why)),
    ]


def _percent(text: str) -> bytes:
    """Percent-encode a ``grpc-message``."""
    return b"".join(bytes((o,)) if 0x20 <= o <= 0x7E and o != 0x25 else b"%%%02X" % o for o in text.encode())
