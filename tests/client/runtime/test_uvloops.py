"""The content of uvloop's loops is read like that of asyncio's, kind by kind; otherwise nothing is reported."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import pytest
import uvloop

from stilltrue.runtime import compat
from stilltrue.runtime.compat.loops import uvloops
from stilltrue.runtime.introspection.tasks import timers
from tests.client.since_311 import Runner, timeout

FAR_SECONDS = 60.0
LOOPS = [pytest.param(uvloop.new_event_loop, id="uvloop"), pytest.param(asyncio.SelectorEventLoop, id="asyncio")]
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel lists what a loop waits for on Linux only")


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> Iterator[asyncio.AbstractEventLoop]:
    loop = request.param()
    yield loop
    loop.close()


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ends = socket.socketpair()
    yield ends
    for end in ends:
        end.close()


def called(handles: Any) -> list[tuple[Any, tuple[Any, ...]]]:
    return [compat.callback_of(one) for one in handles]


def test_timers_and_callbacks_are_those_that_were_scheduled(loop: asyncio.AbstractEventLoop) -> None:
    variable = ContextVar[str]("variable")
    variable.set("seen")
    gone = loop.call_later(FAR_SECONDS, print, "gone")
    loop.call_later(FAR_SECONDS, print, "later")
    loop.call_at(loop.time() + 2 * FAR_SECONDS, loop.stop)
    loop.call_soon(print, "soon")
    loop.call_soon_threadsafe(print)
    loop.call_soon(print, "cancelled").cancel()
    gone.cancel()
    later, plain = (compat.timers_of(loop) or []), compat.handles_of(loop)
    assert plain is not None
    assert sorted(called(later), key=repr) == sorted([(print, ("later",)), (loop.stop, ())], key=repr)
    assert called(plain)[2:] == [(print, ("soon",)), (print, ())]
    assert all((context := compat.context_of(one)) is not None and context[variable] == "seen" for one in plain)
    left = sorted(one.when() - compat.time_of(loop) for one in later)
    assert FAR_SECONDS / 2 < left[0] <= FAR_SECONDS < left[1] <= 2 * FAR_SECONDS
    variable.set("")


def test_a_due_timer_and_a_fired_one_are_distinguished(loop: asyncio.AbstractEventLoop) -> None:
    seen: list[Any] = []

    def look() -> None:
        seen.extend(called(compat.handles_of(loop)))

    loop.call_later(0.001, seen.append, "fired")
    loop.call_later(0.002, look)
    loop.call_later(0.002, loop.call_soon, loop.stop)
    loop.call_later(FAR_SECONDS, print, "left")
    loop.run_forever()
    assert "fired" in seen
    assert (print, ("left",)) in seen
    assert (seen.append, ("fired",)) not in seen
    assert called(compat.handles_of(loop)) == [(print, ("left",))]


def test_the_tasks_that_timers_are_for_are_known(loop: asyncio.AbstractEventLoop) -> None:
    async def main() -> None:
        async def limited() -> None:
            async with timeout(FAR_SECONDS):
                await asyncio.Event().wait()

        async def waited_for() -> None:
            await asyncio.wait_for(asyncio.Event().wait(), FAR_SECONDS)

        async def free() -> None:
            await asyncio.Event().wait()

        tasks = [asyncio.ensure_future(one()) for one in (limited, waited_for, free)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        cancelled = asyncio.ensure_future(free())
        asyncio.get_running_loop().call_later(FAR_SECONDS, cancelled.cancel)
        known = timers(loop)
        assert known is not None
        assert [id(one) in known for one in (*tasks, cancelled)] == [True, sys.version_info >= (3, 12), False, True]
        for one in (*tasks, cancelled):
            one.cancel()
        await asyncio.gather(*tasks, cancelled, return_exceptions=True)

    loop.run_until_complete(main())


def test_the_applications_readers_and_writers_are_read(
    loop: asyncio.AbstractEventLoop, ends: tuple[socket.socket, socket.socket]
) -> None:
    async def receives() -> None:  # a wait that only the loop knows
        await loop.sock_recv(ends[1], 1)

    ends[1].setblocking(False)
    loop.add_reader(ends[0], print, "read")
    loop.add_writer(ends[0].fileno(), print, "write")
    task = loop.create_task(receives())
    loop.call_soon(loop.stop)
    loop.run_forever()
    mine = [one for one in called(compat.watched_by(loop)) if not compat.is_asyncio(one[0])]
    assert mine == [(print, ("read",)), (print, ("write",))]
    loop.remove_writer(ends[0])
    assert [one for one in called(compat.watched_by(loop)) if not compat.is_asyncio(one[0])] == [(print, ("read",))]
    loop.remove_reader(ends[0])
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))


@on_linux
def test_the_descriptors_of_a_loop_are_known(
    loop: asyncio.AbstractEventLoop, ends: tuple[socket.socket, socket.socket]
) -> None:
    async def main(listener: socket.socket) -> None:
        server = await asyncio.start_server(lambda *_: None, sock=listener)
        _, writer = await asyncio.open_connection(sock=ends[0])
        await asyncio.sleep(0.001)  # one iteration of the loop
        known = compat.descriptors_of(loop)
        assert {listener.fileno(), ends[0].fileno()} <= set(known)
        assert ends[1].fileno() not in known
        writer.close()
        server.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        loop.run_until_complete(main(listener))


class Told(asyncio.Protocol, asyncio.SubprocessProtocol, asyncio.DatagramProtocol):
    """The application's protocol."""


def test_the_protocols_of_sockets_and_pipes_are_known(
    loop: asyncio.AbstractEventLoop, ends: tuple[socket.socket, socket.socket]
) -> None:
    async def main() -> None:
        streams, datagrams = Told(), Told()
        transport, _ = await loop.create_connection(lambda: streams, sock=ends[0])
        wide, _ = await loop.create_datagram_endpoint(lambda: datagrams, local_addr=("127.0.0.1", 0))
        found = compat.protocols_of(loop)
        assert streams in found
        assert datagrams in found
        transport.close()
        wide.close()
        await asyncio.sleep(0.001)  # one iteration of the loop
        assert streams not in compat.protocols_of(loop)

    loop.run_until_complete(main())


def test_the_protocol_of_a_child_process_is_known() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.subprocess_exec(Told, sys.executable, "-c", "input()", stdout=None, stderr=None)
        assert protocol in compat.protocols_of(loop)
        transport.kill()
        transport.close()

    with Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_handlers_of_signals_are_known(loop: asyncio.AbstractEventLoop) -> None:
    loop.add_signal_handler(signal.SIGUSR1, print, "one")
    assert {number: compat.callback_of(one) for number, one in compat.signal_handlers_of(loop).items()} == {
        signal.SIGUSR1: (print, ("one",))
    }
    loop.call_soon(loop.remove_signal_handler, signal.SIGUSR1)  # uvloop removes it only while it runs
    loop.run_until_complete(asyncio.sleep(0))
    assert not compat.signal_handlers_of(loop)


def test_stopping_a_loop_is_shown_by_its_name() -> None:
    loop = uvloop.new_event_loop()
    loop.stop()
    assert [one.__name__ for one, _ in called(compat.handles_of(loop))] == ["stop"]
    loop.close()


def test_a_loop_with_attributes_of_its_own_is_read_as_well() -> None:
    class Own(uvloop.Loop):
        """A class that an application may derive."""

    loop = Own()
    setattr(loop, "of_the_application", {1: set()})  # noqa: B010 - a class without fields
    loop.call_later(FAR_SECONDS, print, "later")
    assert called(compat.handles_of(loop)) == [(print, ("later",))]
    loop.close()


def test_reading_a_loop_keeps_nothing_alive(loop: asyncio.AbstractEventLoop) -> None:
    class Thing:
        def __call__(self) -> None:
            """Do nothing."""

    thing = Thing()
    loop.call_later(FAR_SECONDS, thing)
    before = sys.getrefcount(thing)
    assert called(compat.handles_of(loop)) == [(thing, ())]
    assert sys.getrefcount(thing) == before


referents_of = gc.get_referents


def no_fields(_: Any) -> list[Any]:
    return []


def other_order(thing: Any) -> list[Any]:
    found = referents_of(thing)
    return found[::-1] if type(thing).__name__ == "TimerHandle" and not thing.cancelled() and len(found) == 7 else found


def without_timers(thing: Any) -> list[Any]:
    return [set() if type(one) is set and len(one) == 1 else one for one in referents_of(thing)]


@pytest.mark.parametrize("referents", [no_fields, without_timers])
def test_an_unknown_build_of_uvloop_is_not_read(monkeypatch: pytest.MonkeyPatch, referents: Callable[[Any], list[Any]]) -> None:
    monkeypatch.setattr(gc, "get_referents", referents)
    monkeypatch.setattr(uvloops, "_layouts", {})
    loop = uvloop.new_event_loop()
    loop.call_later(FAR_SECONDS, print)
    assert compat.handles_of(loop) is None
    assert compat.timers_of(loop) is None
    assert timers(loop) is None
    assert compat.watched_by(loop) == []
    loop.close()


def test_field_offsets_are_verified_not_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "get_referents", other_order)
    monkeypatch.setattr(uvloops, "_layouts", {})
    loop = uvloop.new_event_loop()
    loop.call_later(FAR_SECONDS, print, "later")
    assert called(compat.handles_of(loop)) == [(print, ("later",))]
    loop.close()


def test_a_loops_own_clock_is_read_even_while_it_is_blocked(loop: asyncio.AbstractEventLoop) -> None:
    before = loop.time()
    assert before - 0.01 <= compat.time_of(loop) <= time.monotonic()
