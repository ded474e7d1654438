"""The current party: threads, tasks, handlers, and an event loop that a handler runs."""

from __future__ import annotations

import asyncio
import threading

from stilltrue.model import CallNumber, PartyName, ProcessName
from stilltrue.protocol.books.ledger import ServerCall
from stilltrue.runtime.parties import Parties


def served(party: str) -> ServerCall:
    return ServerCall(1, PartyName(party), "/s/M", None, CallNumber(0), "", 0.0, None, False)


def in_thread(parties: Parties, name: str) -> PartyName:
    found: list[PartyName] = []
    thread = threading.Thread(target=lambda: found.append(parties.current()), name=name)
    thread.start()
    thread.join()
    return found[0]


def test_a_worker_is_its_own_party_after_serving_a_call() -> None:
    parties = Parties(ProcessName("a"))
    parties.here.serving = served("a/M#1")
    assert parties.current() == "a/M#1"
    parties.here.serving = None
    assert parties.current() == "a/thread:MainThread"


def test_living_threads_never_share_a_name_and_ended_ones_free_theirs() -> None:
    parties, over, names = Parties(ProcessName("a")), threading.Event(), []
    named = threading.Semaphore(0)

    def live() -> None:
        names.append(parties.current())
        named.release()
        over.wait()

    threads = [threading.Thread(target=live, name="w") for _ in range(2)]
    for thread in threads:
        thread.start()
        named.acquire()
    assert len(set(names)) == 2
    over.set()
    for thread in threads:
        thread.join()
    del thread
    threads.clear()
    assert in_thread(parties, "w") == "a/thread:w"


def test_a_handler_that_runs_a_loop_is_its_main_task_and_the_others_are_their_own() -> None:
    parties = Parties(ProcessName("a"))
    parties.here.serving = served("a/M#1")

    async def other() -> PartyName:
        return parties.current()

    async def main() -> tuple[PartyName, PartyName, PartyName]:
        child = asyncio.create_task(other(), name="child")  # before anything about the loop is known
        return await child, parties.current(), await asyncio.create_task(other(), name="late")

    assert asyncio.run(main()) == ("a/M#1.child", "a/M#1", "a/M#1.late")
    assert asyncio.run(main())[1] == "a/M#1", "the next loop's main task is the handler, too"
    assert parties.current() == "a/M#1"
    parties.here.serving = None


def test_tasks_of_a_closed_loop_are_forgotten() -> None:
    parties = Parties(ProcessName("a"))
    parties.here.serving = served("a/M#1")

    async def main() -> list[PartyName]:
        parties.current()
        return [party for _, party in parties.tasks()]

    assert asyncio.run(main()) == ["a/M#1"]
    assert parties.tasks() == []
    parties.here.serving = None


def test_a_party_named_by_a_look_keeps_its_name_until_it_acts() -> None:
    """Two agents in a process: a thread that only one's look has found is unknown to it, so the other sees its waits, too."""
    front, back = Parties(ProcessName("front")), Parties(ProcessName("back"))
    found = []

    def seen_by_back() -> None:
        thread = threading.current_thread()
        back.of_thread(thread)
        found.append(front.belongs_to_other_agent(thread))
        back.current()
        found.append(front.belongs_to_other_agent(thread))
        front.current()
        found.append(front.belongs_to_other_agent(thread))

    thread = threading.Thread(target=seen_by_back)
    thread.start()
    thread.join()
    assert found == [False, True, False]

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        name = back.of_task(task, None)
        assert not front.belongs_to_other_agent(task)
        assert back.of_running_task() == back.current() == name
        assert front.belongs_to_other_agent(task)

    asyncio.run(main())
