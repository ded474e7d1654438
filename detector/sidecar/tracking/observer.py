"""Whom the relay tells of calls, and how a call is answered that cannot go on."""

from __future__ import annotations

from typing import Protocol

from detector.sidecar.http2.headers import Headers


class TrackedCall(Protocol):
    """One call, as a observer follows it; each method is one happening."""

    def request_message(self, count: int) -> None:
        """The ``count``-th message of the request is complete."""

    def request_ended(self) -> None:
        """The request is complete: the caller sends no more."""

    def reply_message(self, count: int) -> None:
        """The ``count``-th message of the reply is complete."""

    def reply_begun(self) -> None:
        """The first byte of a message of the reply came."""

    def trailers(self, headers: Headers, limit: int | None) -> Headers:
        """The reply ended with these; what is to be sent on, at most ``limit`` bytes if it is more than it was."""

    def broken(self, *, by_caller: bool) -> None:
        """The call ended without trailers: it was reset, or a connection was lost."""


class CallObserver(Protocol):
    """Whom the relay tells of calls."""

    def opened(self, headers: Headers, limit: int | None) -> tuple[Headers, TrackedCall | None]:
        """A request came: what is to be sent on, and its call if it is to be followed."""

    def stripped(self, headers: Headers) -> Headers:
        """``headers`` of a reply that nobody follows, without what is ours."""


def refusal(why: str) -> Headers:
    """The headers of an answer that is none: UNAVAILABLE, as gRPC's own servers say it."""
    return [
        (b":status", b"200"),
        (b"content-type", b"application/grpc"),
        (b"grpc-status", b"14"),
        (b"grpc-message", _percent(why)),
    ]


def _percent(text: str) -> bytes:
    """``grpc-message``'s own encoding."""
    return b"".join(bytes((o,)) if 0x20 <= o <= 0x7E and o != 0x25 else b"%%%02X" % o for o in text.encode())
