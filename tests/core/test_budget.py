"""Waits that would grow quadratically with a report are resolved up to a bound, and are in doubt beyond it."""

from __future__ import annotations

import pytest

from detector.core.protocol.assembler import PendingSnapshot
from detector.core.snapshot import Snapshot
from detector.core.waits import budget, resolution
from detector.core.waits.budget import NAMED_MAX, TARGETS_MAX, WAYS_MAX, Budget
from detector.core.waits.resolution import Resolution
from detector.predicates.deadlock import Deadlock
from stilltrue.model import CallNumber, Holds, PartyName, ProcessId, ProcessName, SnapshotId, Wait, WaitNumber
from stilltrue.protocol.report import (
    Caller,
    CallTarget,
    Connection,
    HeldUp,
    Hold,
    LocalWait,
    OutstandingCall,
    Pool,
    Report,
    ResourceTarget,
    SentOver,
    ServedCall,
)

OWN = ProcessId(service="s", instance=ProcessName("a"), incarnation=1)
CALLER = Caller(OWN.instance, 1)


def party(name: object) -> PartyName:
    return PartyName(f"a/{name}")


def report(**said: object) -> Report:
    return Report(process=OWN, snapshot=SnapshotId(1), after=SnapshotId(0), cut_at=1.0, next_number=CallNumber(10**6), **said)  # type: ignore[arg-type]


def of_holders(parties: int) -> Report:
    """Each party holds a share of a resource and waits for another: all are deadlocked."""
    names = [party(number) for number in range(parties)]
    return report(
        holds=tuple(Hold(party=name, resource="r", capacity=parties) for name in names),
        waits=tuple(
            LocalWait(waiter=name, number=WaitNumber(number), among=(ResourceTarget(resource="r"),), needs=1)
            for number, name in enumerate(names, 1)
        ),
    )


def of_a_pool(workers: int, queued: int) -> Report:
    """A full pool, each of whose workers waits for a call queued behind it: all are deadlocked."""
    calls = [
        OutstandingCall(number=CallNumber(number), method="/m", target="", party=party(number))
        for number in range(1, queued + 1)
    ]
    served = [
        ServedCall(party=party(number), method="/m", serving=True, pool="p") for number in range(1, workers + 1)
    ] + [
        ServedCall(party=party(f"q{call.number}"), method="/m", caller=CALLER, number=call.number, pool="p") for call in calls
    ]  # fmt: skip
    return report(
        made=tuple(calls),
        served=tuple(served),
        pools=(Pool(name="p", size=workers),),
        waits=tuple(
            LocalWait(
                waiter=party(call.number), number=WaitNumber(call.number), among=(CallTarget(number=call.number),), needs=1
            )
            for call in calls
        ),
    )


def of_a_chain(length: int) -> Report:
    """A chain of calls, each ending with the previous one: the first caller can end them all."""
    numbers = range(1, length + 1)
    return report(
        made=tuple(
            OutstandingCall(number=CallNumber(number), method="/m", target="", party=party(number - 1)) for number in numbers
        ),
        served=tuple(
            ServedCall(
                party=party(number), method="/m", caller=CALLER, number=CallNumber(number), serving=True, interruptible=True
            )
            for number in numbers
        ),
        waits=tuple(
            LocalWait(
                waiter=party(number - 1), number=WaitNumber(number), among=(CallTarget(number=CallNumber(number)),), needs=1
            )
            for number in numbers
        ),
    )


def waits_of(given: Report) -> list[Wait]:
    return list(Resolution({OWN.instance: given}, []).waits())


def snapshot_of(given: Report) -> Snapshot:
    pending = PendingSnapshot(snapshot=SnapshotId(1), members={OWN.instance: OWN}, begun=0.5, begun_by="ask")
    assert pending.offer(given) is None
    return pending.assembled(2.0).snapshot


@pytest.mark.parametrize("given", [of_holders(2000), of_a_pool(2000, 2000)], ids=["a resource", "a pool"])
def test_the_total_number_of_targets_is_bounded(given: Report) -> None:
    waits = waits_of(given)
    assert len(waits) == len(given.waits)
    assert sum(len(wait.among) for wait in waits) <= TARGETS_MAX + NAMED_MAX * len(waits)


@pytest.mark.parametrize("given", [of_holders(50), of_a_pool(50, 50)], ids=["a resource", "a pool"])
def test_beyond_the_bound_there_is_doubt_and_neither_true_nor_false(given: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Deadlock().evaluate(snapshot_of(given)).holds is Holds.TRUE
    monkeypatch.setattr(resolution, "Budget", lambda: Budget(targets=120))
    found = waits_of(given)
    followed = [wait for wait in found if not wait.uncoloured]
    assert [len(wait.among) for wait in followed] == [50, 50]
    assert {len(wait.among) for wait in found if wait.uncoloured} == {NAMED_MAX}
    assert all("too many to list" in wait.what for wait in found if wait.uncoloured)
    assert Deadlock().evaluate(snapshot_of(given)).holds is Holds.UNDETERMINED


def test_a_chain_of_callers_is_followed_up_to_a_bound_and_in_doubt_beyond_it(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = of_a_chain(40)
    assert not any(wait.uncoloured for wait in waits_of(chain))
    monkeypatch.setattr(resolution, "Budget", lambda: Budget(steps=100))
    doubted = [wait.uncoloured for wait in waits_of(chain)]
    assert doubted == sorted(doubted)
    assert (doubted[0], doubted[-1]) == (False, True)


def test_a_wait_with_many_cancellers_names_some_and_is_in_doubt() -> None:
    call = OutstandingCall(number=CallNumber(1), method="/m", target="", party=party("x"), deadline=9.0)
    served = ServedCall(party=party("h"), method="/m", caller=CALLER, number=CallNumber(1), serving=True, interruptible=True)
    many = [
        LocalWait(waiter=party(f"w{number}"), number=WaitNumber(number), among=(CallTarget(number=CallNumber(1)),), needs=1)
        for number in range(1, 201)
    ]
    own = LocalWait(waiter=party("h"), number=WaitNumber(999), among=(ResourceTarget(resource="r"),), needs=1)
    hold = Hold(party=party("o"), resource="r", capacity=1)
    found = waits_of(report(made=(call,), served=(served,), waits=(*many, own), holds=(hold,)))
    (wait,) = [wait for wait in found if wait.waiter == party("h")]
    assert (len(wait.among), wait.uncoloured) == (1 + WAYS_MAX, True)


def test_a_connection_held_up_by_too_many_parties_ties_nothing() -> None:
    connection = Connection(name="c", socket=1, begun=1)

    def of(parties: int) -> list[Wait]:
        call = OutstandingCall(number=CallNumber(1), method="/m", target="", party=party("x"))
        wait = LocalWait(waiter=party("x"), number=WaitNumber(1), among=(CallTarget(number=CallNumber(1)),), needs=1)
        crowd = tuple(party(number) for number in range(parties))
        held = HeldUp(connection=connection, parties=crowd, what="an accept loop")
        sent = SentOver(call=CallNumber(1), connections=(connection,))
        found = snapshot_of(report(made=(call,), waits=(wait,), held_up=(held,), sent_over=(sent,)))
        return list(found.waits.waits())

    assert [len(wait.among) for wait in of(200)] == [200]
    assert of(300) == []


def test_the_budget_is_for_each_process_by_itself() -> None:
    assert (Budget().targets, Budget().steps) == (TARGETS_MAX, budget.STEPS_MAX)
