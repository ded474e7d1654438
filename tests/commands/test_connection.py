"""How commands reach a detector, and how they let go of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import pytest

from detector.commands.shared.connection import Endpoint, detector_stub
from detector.commands.shared.run import CommandError
from stilltrue.runtime.membership.credentials import Security

ENDPOINT = Endpoint(address="127.0.0.1:7600", security=Security())


class Channel:
    """Counts how often it was closed."""

    def __init__(self) -> None:
        self.closed = 0

    def __getattr__(self, name: str) -> object:
        return lambda *_, **__: None

    def close(self) -> None:
        self.closed += 1


@contextmanager
def ending(end: BaseException | None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Channel]:
    """A command that ends like this, with a channel that counts."""
    channel = Channel()
    monkeypatch.setattr(Endpoint, "channel", lambda _: channel)
    yield channel
    with detector_stub(ENDPOINT):
        if end is not None:
            raise end


@pytest.mark.parametrize(
    ("end", "raised"), [(ValueError(), ValueError), (SystemExit(), SystemExit), (grpc.RpcError(), CommandError)]
)
def test_the_channel_is_closed_when_a_command_ends(
    end: BaseException, raised: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(raised), ending(end, monkeypatch) as channel:
        pass
    assert channel.closed == 1
    with ending(None, monkeypatch) as channel:
        pass
    assert channel.closed == 1


def test_ctrl_c_waits_for_no_channel_to_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC waits for its calls there, and one that Ctrl-C met while it began may never end."""
    with pytest.raises(KeyboardInterrupt), ending(KeyboardInterrupt(), monkeypatch) as channel:
        pass
    assert channel.closed == 0
