"""One figure of agent_footprint.py, in a process that has loaded nothing else: agent_footprint_part.py FIGURE [ADDRESS]."""

from __future__ import annotations

import gc
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Never, cast

NOBODY = "127.0.0.1:1"
CALLS = 10_000
SETTLE_SECONDS = 2.0
"""Joining and the first snapshots are not idle time."""
IDLE_SECONDS = 10.0
ECHO = "/bench/Ticks"
"""A stream whose server sends a short message every second, as a detector does."""


def resident() -> int:
    """Bytes of memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def imported() -> float:
    """Milliseconds of processor time that ``from stilltrue import Agent`` takes after gRPC."""
    import grpc.aio  # noqa: F401, PLC0415 - the import is what is measured

    begun = time.process_time()
    from stilltrue import Agent  # noqa: F401, PLC0415 - as above

    return (time.process_time() - begun) * 1e3


def idle(address: str) -> float:
    """Milliseconds of processor time a second of an agent without calls."""
    from stilltrue import Agent  # noqa: PLC0415 - in this process alone

    with Agent("idle", instance="idle", detector=address) as agent:
        if address != NOBODY and not agent.wait_until_joined(20):
            raise SystemExit("not joined")
        time.sleep(SETTLE_SECONDS)
        begun = time.process_time()
        time.sleep(IDLE_SECONDS)
        return (time.process_time() - begun) * 1e3 / IDLE_SECONDS


def stream(address: str) -> float:
    """Milliseconds of processor time a second of gRPC alone: one open stream, a short message each way every second."""
    import queue  # noqa: PLC0415 - in this process alone
    import threading  # noqa: PLC0415 - as above

    import grpc  # noqa: PLC0415 - as above

    replies: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    with grpc.insecure_channel(address) as channel:

        def requests() -> Iterator[Never]:  # of bytes: the call without generated code is typed so
            while True:
                yield cast("Never", replies.get())

        call: Any = channel.stream_stream(ECHO)(requests())

        def answer() -> None:
            try:
                for _ in call:
                    replies.put(bytes(200))
            except grpc.RpcError:
                pass  # it is cancelled below

        reader = threading.Thread(target=answer, daemon=True)
        reader.start()
        time.sleep(SETTLE_SECONDS)
        begun = time.process_time()
        time.sleep(IDLE_SECONDS)
        used = (time.process_time() - begun) * 1e3 / IDLE_SECONDS
        call.cancel()
        reader.join(10)
        return used


def memory(address: str) -> float:
    """Megabytes of memory that a joined agent adds to gRPC."""
    import grpc.aio  # noqa: PLC0415 - the import belongs to what is measured

    channel = grpc.insecure_channel(address)
    grpc.channel_ready_future(channel).result(20)
    gc.collect()
    before = resident()
    from stilltrue import Agent  # noqa: PLC0415 - as above

    with Agent("memory", instance="memory", detector=address) as agent:
        if not agent.wait_until_joined(20):
            raise SystemExit("not joined")
        gc.collect()
        return (resident() - before) / 1e6


def made() -> float:
    """Megabytes that the outstanding calls of a caller take in its recorder."""
    return _outstanding(at_server=False)


def served() -> float:
    """Megabytes that the calls which a server has take in its recorder."""
    return _outstanding(at_server=True)


def _outstanding(*, at_server: bool) -> float:
    from stilltrue import Agent  # noqa: PLC0415 - in this process alone
    from stilltrue.model import PartyName  # noqa: PLC0415 - as above
    from stilltrue.protocol.books.ledger import ChannelRecord  # noqa: PLC0415 - as above
    from stilltrue.protocol.stamp import decode  # noqa: PLC0415 - as above

    live = Agent("one", instance="one", detector=NOBODY).live
    channel, party = ChannelRecord("server:1"), PartyName("one/main")
    gc.collect()
    before = resident()
    for number in range(CALLS):
        if at_server:
            live.arrived(decode(f"two;1;{number + 1};0;1"), "/s/M", False)
        else:
            live.sent("/s/M", channel, party, None, True)
    gc.collect()
    return (resident() - before) / 1e6


if __name__ == "__main__":
    figures = {"imported": imported, "idle": idle, "stream": stream, "memory": memory, "made": made, "served": served}
    print(figures[sys.argv[1]](*sys.argv[2:]))  # type: ignore[operator]  # each takes what agent_footprint.py gives it
