"""Reports about parties that have not moved for a while: what each waits for, or that its wait is unexplained."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import grpc
import grpc.aio
import pytest

from stilltrue import Agent
from stilltrue.model import PartyName, WaitNumber
from stilltrue.protocol.report import OBSERVED_MIN, LocalWait, PartyTarget
from stilltrue.protocol.requests.stacks import StandingParty
from stilltrue.runtime.introspection.cut.waits_at_cut import SeenAtCut
from stilltrue.runtime.introspection.threads_and_tasks import STACK_LENGTH_MAX, stack_shown
from stilltrue.runtime.look.standing import stacks
from stilltrue.runtime.look.standing.stacks import Stacks
from stilltrue.runtime.look.standing.unexplained import Unexplained
from tests.client.waits.conftest import Front
from tests.client.waits.releasers import releasing
from tests.client.waits.releasers.releasing import hold


def of(front: Front, *names: str) -> dict[str, StandingParty]:
    """The waits of these threads and tasks, by name."""
    found = Stacks(front.agent.live, front.agent.parties, 0.05).find(7)
    assert found.number == 7
    known = {one.party.split(":", 1)[-1]: one for one in found.parties}
    return {name: known[name] for name in names}


def test_each_stuck_party_shows_where_it_is_blocked(front: Front) -> None:
    lock, never = threading.Lock(), threading.Event()
    hold(front, lock)
    front.start("lost", lambda: never.wait())  # noqa: PLW0108 - a frame of the application's
    front.report_when_still("waiter", "lost")
    found = of(front, "holder", "waiter", "lost")
    assert (found["holder"].blocked_in, found["holder"].unexplained) == ("the reply to /s/Get", False)
    assert found["waiter"].held_by == ("front/thread:holder",)
    assert found["waiter"].blocked_in == "a lock that front/thread:holder holds"
    assert (found["lost"].held_by, found["lost"].unexplained) == ((), True)
    files = {"holder": releasing.__file__, "waiter": releasing.__file__, "lost": __file__}
    assert all(files[name] in one.stack[0] for name, one in found.items())
    never.set()
    front.let_go()


def test_a_declared_wait_shows_its_words_or_its_names(front: Front) -> None:
    answered = threading.Event()

    def ask(what: str) -> None:
        with front.agent.waiting_for("mailbox:reviewer", what=what):
            answered.wait()

    front.start("worded", lambda: ask("the reviewer's answer"))
    front.start("plain", lambda: ask(""))
    front.report_when_still("worded", "plain")
    found = of(front, "worded", "plain")
    assert found["worded"].blocked_in == "the reviewer's answer"
    assert found["plain"].blocked_in == "a declared wait for mailbox:reviewer"
    answered.set()


@pytest.mark.parametrize("taken", [True, False], ids=["by its holder", "bare"])
def test_a_recorded_wait_for_a_lock_names_its_holder_if_that_is_known(front: Front, *, taken: bool) -> None:
    lock = front.agent.Lock("ledger")
    if taken:
        hold(front, lock)
    else:  # nobody is bound to release it
        lock.acquire()
        front.start("waiter", lambda: lock.acquire())  # noqa: PLW0108 - a frame of the application's
    front.report_when_still("waiter")
    found = of(front, "waiter")["waiter"]
    assert (found.held_by, found.unexplained) == (("front/thread:holder",) if taken else (), False)
    if not taken:
        lock.release()
    front.let_go()


@pytest.mark.parametrize(
    ("enders", "lasts", "explained"),
    [
        (("holder",), True, True),
        (("holder",), False, False),
        (("holder", "other"), True, False),
        (("lost",), True, True),
        ((), True, False),
    ],
    ids=["it lasts", "it is over", "another party is unexplained", "it waits for itself", "nobody can end it"],
)
def test_a_wait_that_only_the_cut_finds_explains_a_party_while_all_that_can_end_it_stand_still_explained(
    front: Front, enders: tuple[str, ...], lasts: bool, explained: bool
) -> None:
    lock, never = threading.Lock(), threading.Event()
    hold(front, lock)
    front.start("lost", lambda: never.wait())  # noqa: PLW0108 - a frame of the application's
    front.start("other", lambda: never.wait())  # noqa: PLW0108 - likewise
    front.report_when_still("waiter", "lost", "other")
    number, among = WaitNumber(OBSERVED_MIN), tuple(PartyTarget(party=PartyName(f"front/thread:{name}")) for name in enders)
    wait = LocalWait(waiter=PartyName("front/thread:lost"), number=number, among=among, what="an event")
    cut = SeenAtCut(local={number: (wait, "")}, same={number: lambda _: lasts})
    found = {one.party: one for one in Stacks(front.agent.live, front.agent.parties, 0.05, lambda: cut).find(7).parties}
    lost = found[PartyName("front/thread:lost")]
    assert lost.unexplained is not explained
    assert (lost.blocked_in == "an event") is explained
    assert lost.held_by == (tuple(one.party for one in among) if explained else ())
    assert found[PartyName("front/thread:other")].unexplained
    never.set()
    front.let_go()


def test_a_party_that_waits_for_an_ended_holder_is_unexplained_and_names_it(front: Front) -> None:
    never = threading.Event()
    front.start("lost", lambda: never.wait())  # noqa: PLW0108 - a frame of the application's
    front.report_when_still("lost")
    number, holder = WaitNumber(OBSERVED_MIN), PartyName("front/ended:the holder of a lock")
    what = f"what {holder} never released"
    wait = LocalWait(waiter=PartyName("front/thread:lost"), number=number, among=(PartyTarget(party=holder),), what=what)
    cut = SeenAtCut(local={number: (wait, "")}, same={number: lambda _: True})
    found = {one.party: one for one in Stacks(front.agent.live, front.agent.parties, 0.05, lambda: cut).find(7).parties}
    lost = found[PartyName("front/thread:lost")]
    assert (lost.unexplained, lost.blocked_in, lost.held_by) == (True, what, ())
    never.set()


def test_a_party_that_has_not_moved_in_no_known_wait_is_unexplained(front: Front) -> None:
    never, failures = threading.Event(), list[str]()
    unexplained = Unexplained(Stacks(front.agent.live, front.agent.parties, 0.05), 0.0, failures.append)
    front.start("calls", front.get, b"")
    front.wait_for_callers()
    assert unexplained.count() is None
    before = counted(unexplained)
    front.start("lost", lambda: never.wait())  # noqa: PLW0108 - a frame of the application's
    while counted(unexplained) != before + 1:
        pass
    never.set()
    front.let_go()
    assert failures == []


def counted(unexplained: Unexplained) -> int:
    """Return the next number."""
    unexplained._not_before = 0.0
    found = unexplained.count()
    return counted(unexplained) if found is None else found


def test_moving_parties_are_left_out_and_unexplained_ones_come_first(front: Front) -> None:
    stop, never = threading.Event(), threading.Event()

    def works() -> None:
        while not stop.is_set():
            sum(range(100))

    async def main() -> None:
        task = asyncio.create_task(hang(), name="hung")
        await asyncio.to_thread(never.wait)
        task.cancel()

    async def hang() -> None:
        await asyncio.get_running_loop().create_future()

    front.start("works", works)
    front.start("calls", front.get, b"")
    front.start("loop", lambda: asyncio.run(main()))
    front.wait_for_callers()
    while "hung" not in (names := [one.party.split(":", 1)[-1] for one in found(front)]):
        pass
    assert "works" not in names
    assert "loop" not in names
    assert [one.unexplained for one in found(front)] == sorted((one.unexplained for one in found(front)), reverse=True)
    stop.set()
    never.set()
    front.let_go()


def test_parties_that_a_library_has_parked_are_left_out_and_a_sleep_is_explained(front: Front) -> None:
    anyio = pytest.importorskip("anyio")
    lifespan = pytest.importorskip("uvicorn.lifespan.on")
    uvicorn = pytest.importorskip("uvicorn")
    stop = threading.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def main() -> None:
        served = lifespan.LifespanOn(uvicorn.Config(app))
        await served.startup()
        await anyio.to_thread.run_sync(time.monotonic)  # leaves an idle worker
        sleeper = asyncio.create_task(sleep(), name="sleeper")
        lost = asyncio.create_task(hang(), name="lost")
        while not stop.is_set():
            await asyncio.sleep(0.01)
        for task in (sleeper, lost):
            task.cancel()
        await served.shutdown()

    async def sleep() -> None:
        await asyncio.sleep(1000)

    async def hang() -> None:
        await asyncio.get_running_loop().create_future()

    front.start("loop", lambda: asyncio.run(main()))
    while not {"sleeper", "lost"} <= (known := {one.party.split(":", 1)[-1]: one for one in found(front)}).keys():
        pass
    assert (known["sleeper"].blocked_in, known["sleeper"].unexplained) == ("asyncio.sleep", False)
    assert known["lost"].unexplained
    assert "AnyIO worker thread" not in known
    assert "Queue.get" not in {one.blocked_in for one in known.values()}
    stop.set()


def test_a_task_names_those_that_it_awaits(front: Front) -> None:
    never = threading.Event()

    async def main() -> None:
        task = asyncio.create_task(works(), name="works")
        both = [asyncio.create_task(gathers(task), name="gathers"), asyncio.create_task(in_time(task), name="in_time")]
        await asyncio.wait(both)

    async def works() -> None:
        await asyncio.to_thread(never.wait)

    async def gathers(task: asyncio.Task[None]) -> None:
        await asyncio.gather(task)

    async def in_time(task: asyncio.Task[None]) -> None:
        await asyncio.wait([task], timeout=1_000)

    front.start("loop", lambda: asyncio.run(main()))
    names = ("works", "gathers", "in_time")
    while not {one.party.rpartition(":")[2] for one in found(front)}.issuperset(names):
        pass
    seen = of(front, *names)
    (thread,) = seen["works"].held_by
    assert "thread:asyncio_0" in thread
    assert seen["works"].blocked_in == f"an executor item run by {thread}"
    assert (seen["gathers"].held_by, seen["gathers"].blocked_in) == (("front/task:works",), "the end of front/task:works")
    assert (seen["in_time"].held_by, seen["in_time"].unexplained) == ((), True)
    never.set()
    front.let_go()


async def test_the_calls_that_an_asyncio_server_serves_are_among_them() -> None:
    agent = Agent(service="served", instance="served")
    lock, never, inside = asyncio.Lock(), asyncio.Event(), asyncio.Queue[None]()

    async def serve(request: bytes, context: Any) -> bytes:
        inside.put_nowait(None)
        async with lock:
            await never.wait()
        return request

    server = grpc.aio.server(interceptors=[agent.aio_server_interceptor()])
    methods: dict[str, Any] = {"Get": grpc.unary_unary_rpc_method_handler(serve)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
    get: Any = channel.unary_unary("/s/Get")

    async def keep() -> None:
        await server.wait_for_termination()

    async def standing() -> list[StandingParty]:
        found = await asyncio.to_thread(Stacks(agent.live, agent.parties, 0.05).find, 7)
        return [one for one in found.parties if "executor item" not in one.blocked_in]  # the task that waits here

    alive = asyncio.create_task(keep(), name="keep")
    calls = []
    for _ in range(2):  # one after the other: the first has the lock
        calls.append(asyncio.ensure_future(get(b"")))
        await inside.get()
    found = await standing()
    stopping = asyncio.create_task(server.stop(30))
    later = await standing()
    never.set()
    await asyncio.gather(*calls, stopping, alive)
    await channel.close()
    agent.close()
    assert [(one.party, one.blocked_in, one.held_by, one.unexplained) for one in found] == [
        ("served/Get#1", "Event.wait", (), True),
        ("served/Get#2", "a lock that served/Get#1 holds", ("served/Get#1",), False),
    ], "a task that keeps the server alive is no riddle"
    assert [one.party for one in later] == ["served/Get#1", "served/task:keep", "served/Get#2"], "it is being stopped"


def test_libraries_between_the_application_and_http_are_left_out(front: Front) -> None:
    """The line that made the request is of use, not the library's that reads from the socket."""
    never, names = threading.Event(), dict[str, Any]()
    library = "def get(event, depth):\n    return get(event, depth - 1) if depth else event.wait()\n"
    exec(compile(library, "/env/lib/python3.11/site-packages/urllib3/connection.py", "exec"), names)
    front.start("asks", lambda: names["get"](never, 20))
    front.report_when_still("asks")
    assert __file__ in of(front, "asks")["asks"].stack[0]
    never.set()
    front.let_go()


def found(front: Front) -> tuple[StandingParty, ...]:
    return Stacks(front.agent.live, front.agent.parties, 0.01).find(1).parties


def test_parties_beyond_the_bound_are_counted(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    never = threading.Event()
    for number in range(3):
        front.start(f"lost-{number}", lambda: never.wait())  # noqa: PLW0108
    front.report_when_still("lost-2")
    whole = Stacks(front.agent.live, front.agent.parties, 0.01).find(1)
    monkeypatch.setattr(stacks, "PARTIES_MAX", 2)
    part = Stacks(front.agent.live, front.agent.parties, 0.01).find(1)
    assert (len(part.parties), part.left_out) == (2, len(whole.parties) - 2)
    never.set()
    front.let_go()


def test_a_deep_stack_ends_in_the_innermost_frame_of_the_programs_own_code() -> None:
    library = "import sys\ndef deep(n, then):\n    return deep(n - 1, then) if n else then(sys._getframe())\n"
    names: dict[str, Any] = {}
    exec(compile(library, "/env/lib/site-packages/deep.py", "exec"), names)
    stack = names["deep"](3 * STACK_LENGTH_MAX, lambda inner: stack_shown(list(_outwards(inner))))
    assert len(stack) == STACK_LENGTH_MAX
    assert [Path(position.partition(":")[0]).name for position in stack] == [*["deep.py"] * (len(stack) - 1), "test_stacks.py"]


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
