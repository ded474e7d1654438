"""The same calls through two sidecars and without them have the same results, however they end."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
import pytest

CALLS = 1_500
SOAK_CALLS = 100_000
AT_ONCE = 24
OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1))
KINDS = ("Unary", "Many", "Fold", "Chat", "Absent")


@dataclass(frozen=True)
class Wish:
    """One call: how it is made, and what the program shall do with it."""

    kind: str
    items: tuple[bytes, ...]
    metadata: tuple[tuple[str, str | bytes], ...]
    timeout: float | None
    squeezed: bool
    cancelled_after: int | None


def wish_of(dice: random.Random) -> Wish:
    """A call by the dice."""
    size = dice.choice((0, 1, 10, 1000, 20_000, 150_000))
    items = tuple(dice.randbytes(dice.randrange(size + 1)) for _ in range(dice.randrange(1, 5)))
    metadata: list[tuple[str, str | bytes]] = [("k", f"v{dice.randrange(9)}"), ("raw-bin", dice.randbytes(9)), ("k", "again")]
    timeout = None
    for key, value, chance in (("early", "yes", 0.3), ("fail", str(dice.randrange(16)), 0.25), ("squeeze", "1", 0.2)):
        if dice.random() < chance:
            metadata.append((key, value))
    kind = dice.choice(KINDS)
    if dice.random() < 0.04 and kind != "Absent":
        metadata.append(("sleep", "2"))
        timeout = 0.3
    metadata.append(("items", str(dice.randrange(6))))
    cancelled_after = dice.randrange(2) if dice.random() < 0.08 else None
    return Wish(kind, items, tuple(metadata), timeout, dice.random() < 0.3, cancelled_after)


async def result_of(channel: grpc.aio.Channel, wish: Wish) -> tuple[Any, ...]:
    """All that a caller can see of a call. Where chance decides (cancelling, deadlines), only how it ended."""
    call = _call(channel, wish)
    replies: list[bytes] = []
    if wish.cancelled_after is not None:
        await asyncio.sleep(0.002 * wish.cancelled_after)
        call.cancel()
    try:
        replies += [reply async for reply in call] if wish.kind in {"Many", "Chat"} else [await call]
    except grpc.RpcError:
        pass
    except asyncio.CancelledError:
        if not call.cancelled():
            raise
    code = await call.code()
    if wish.cancelled_after is not None:
        return ("cancelled, or ended before",)
    if wish.timeout is not None:
        return ("timed out", _is_timed_out(code, await call.details()))
    initial = _pairs(await call.initial_metadata())
    if not replies or code is not grpc.StatusCode.OK:
        initial = []  # grpc.aio drops them now and then when headers and trailers come in one read; a test of its own below
    return code, await call.details(), initial, _pairs(await call.trailing_metadata()), replies


def _is_timed_out(code: grpc.StatusCode, details: str | None) -> bool:
    """Whether a call ended as one ends at its deadline: either end may be the first to say so.

    INTERNAL is what grpc.aio's own client says when it was writing a request at that very moment: of 376 such streams to the
    program itself, with no sidecar, 229 ended so.
    """
    if code is grpc.StatusCode.INTERNAL:
        return details == "Internal error from Core"
    return code in {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}


def _call(channel: grpc.aio.Channel, wish: Wish) -> Any:
    async def requests() -> AsyncIterator[bytes]:
        for item in wish.items:
            yield item

    kinds = {"Many": channel.unary_stream, "Fold": channel.stream_unary, "Chat": channel.stream_stream}
    make: Any = kinds.get(wish.kind, channel.unary_unary)
    argument = requests() if wish.kind in {"Fold", "Chat"} else wish.items[0]
    compression = grpc.Compression.Gzip if wish.squeezed else None
    return make(f"/mix.Mix/{wish.kind}")(argument, metadata=wish.metadata, timeout=wish.timeout, compression=compression)


def _pairs(metadata: Any) -> list[tuple[str, Any]]:
    return sorted((key, value) for key, value in metadata or ())


async def compare(around: grpc.aio.Channel, through: grpc.aio.Channel, seed: int) -> None:
    wish = wish_of(random.Random(seed))
    expected, got = await asyncio.gather(result_of(around, wish), result_of(through, wish))
    assert got == expected, f"seed {seed}: {wish.kind} {wish.metadata}"


async def compare_many(program: str, start_sidecar: Any, seeds: range) -> None:
    """Around, and through two sidecars: out of one, into the other."""
    async with (
        start_sidecar(program) as (server, at_server),
        start_sidecar(program, upstream=str(at_server.inbound)) as (client, at_client),
    ):
        async with (
            grpc.aio.insecure_channel(program, OPTIONS) as around,
            grpc.aio.insecure_channel(str(at_client.outbound), OPTIONS) as through,
        ):
            for start in range(seeds.start, seeds.stop, AT_ONCE):
                batch = range(start, min(start + AT_ONCE, seeds.stop))
                await asyncio.gather(*(compare(around, through, seed) for seed in batch))
        await _settled(server, client)
        assert server.program.inbound == client.program.outbound
        assert [sidecar.agent.live.faults for sidecar in (server, client)] == [0, 0]


async def _settled(*sidecars: Any) -> None:
    """Nothing of any call is left behind, once the last cancellation has passed."""
    async with asyncio.timeout(10):
        while any(_open_calls(sidecar) for sidecar in sidecars):
            await asyncio.sleep(0.01)


def _open_calls(sidecar: Any) -> int:
    recorder = sidecar.agent.live.recorder
    return int(len(recorder.calls_made) + len(recorder.calls_served) + len(recorder.open_waits) + sidecar.program.in_progress)


@pytest.mark.longer
async def test_mixed_calls_have_the_same_results(program: str, start_sidecar: Any) -> None:
    first = int(os.environ.get("STILLTRUE_TEST_SEED", "1"))
    await compare_many(program, start_sidecar, range(first, first + CALLS))


@pytest.mark.soak
async def test_a_hundred_thousand_mixed_calls_have_the_same_results(program: str, start_sidecar: Any) -> None:
    await compare_many(program, start_sidecar, range(1, SOAK_CALLS + 1))


async def test_early_headers_of_a_call_that_fails_pass(program: str, start_sidecar: Any) -> None:
    metadata = (("early", "yes"), ("fail", "3"))

    def initial(target: str) -> Any:
        with grpc.insecure_channel(target) as channel:
            many: Any = channel.unary_stream("/mix.Mix/Many")
            call = many(b"", metadata=(*metadata, ("items", "0")))
            headers = _pairs(call.initial_metadata())
            assert call.code() is not grpc.StatusCode.OK
            return headers

    async with start_sidecar(program) as (_, listening):
        through = [await asyncio.to_thread(initial, str(listening.inbound)) for _ in range(20)]
    assert through == 20 * [[("early", "yes"), ("early-bin", b"\x00\x01\xfe")]]


async def test_a_message_of_many_megabytes_passes(program: str, start_sidecar: Any) -> None:
    request = random.Random(7).randbytes(20_000_000)
    async with start_sidecar(program) as (_, listening), grpc.aio.insecure_channel(str(listening.inbound), OPTIONS) as channel:
        unary: Any = channel.unary_unary("/mix.Mix/Unary")
        assert await unary(request) == request


async def test_a_slow_reader_holds_the_writer_back(program: str, start_sidecar: Any) -> None:
    """The windows are the caller's own: what it does not read piles up at the program, not in the sidecar."""
    async with (
        start_sidecar(program) as (sidecar, listening),
        grpc.aio.insecure_channel(str(listening.inbound), OPTIONS) as channel,
    ):
        many: Any = channel.unary_stream("/mix.Mix/Many")
        call = many(bytes(500_000), metadata=(("items", "200"),))
        await call.read()
        await asyncio.sleep(0.5)
        (relay,) = sidecar.relays
        (stream,) = relay.streams.values()
        assert stream.reply.count < 100
        call.cancel()


async def test_an_absent_program_is_unavailable(start_sidecar: Any) -> None:
    async with (
        start_sidecar("127.0.0.1:1") as (_, listening),
        grpc.aio.insecure_channel(str(listening.inbound), OPTIONS) as channel,
    ):
        unary: Any = channel.unary_unary("/mix.Mix/Unary")
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await unary(b"")
        assert failure.value.code() is grpc.StatusCode.UNAVAILABLE
