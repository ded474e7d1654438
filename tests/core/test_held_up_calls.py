"""Ties: a call that no member has seen waits for the parties that hold it up only if both ends of its connection agree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from detector.core.waits.held_up_calls import tied
from stilltrue.model import CallNumber, PartyName, ProcessId, ProcessName, SnapshotId, WaitNumber
from stilltrue.protocol.report import (
    Caller,
    CallTarget,
    Connection,
    HeldUp,
    LocalWait,
    OutstandingCall,
    PartyTarget,
    Report,
    SentOver,
    ServedCall,
)

HERE = Connection(name="net:1>2", socket=7, begun=2, ended=1)
THERE = replace(HERE, socket=9)
HOLDER, WAITER, MAKER = PartyName("server/Hold#1"), PartyName("client/Go#1"), PartyName("client/thread:x")


def _report(name: str, **further: object) -> Report:
    plain = Report(
        process=ProcessId(service=name, instance=ProcessName(name), incarnation=1),
        snapshot=SnapshotId(1),
        after=SnapshotId(0),
        cut_at=0.0,
        next_number=CallNumber(10),
    )
    return replace(plain, **further)  # type: ignore[arg-type]  # each test passes the fields it needs


def _call(number: int = 1, **further: object) -> OutstandingCall:
    return replace(OutstandingCall(number=CallNumber(number), method="/s/Do"), **further)  # type: ignore[arg-type]


def _wait(number: int = 1, waiter: PartyName = WAITER, *calls: int) -> LocalWait:
    targets = tuple(CallTarget(number=CallNumber(call)) for call in calls or (1,))
    return LocalWait(waiter=waiter, number=WaitNumber(number), among=targets, needs=len(targets))


def _client(call: OutstandingCall | None = None, *connections: Connection, **further: object) -> Report:
    sent = SentOver(call=CallNumber(1), connections=connections or (HERE,))
    return _report("client", **{"made": (call or _call(),), "waits": (_wait(),), "sent_over": (sent,), **further})


def _server(connection: Connection = THERE, name: str = "server", **further: object) -> Report:
    held = HeldUp(connection=connection, parties=(PartyName(f"{name}/Hold#1"),), what="its loop")
    return _report(name, **{"held_up": (held,), **further})


def among(*reports: Report) -> set[str] | None:
    """The parties that the waiter waits for; None if it waits only for its call."""
    found = tied({report.process.instance: report for report in reports}, ())
    (wait,) = found[ProcessName("client")].waits[:1]
    if any(isinstance(target, CallTarget) for target in wait.among):
        return None
    assert wait.in_doubt, "only a look makes it certain"
    return {target.party for target in wait.among if isinstance(target, PartyTarget)}


def test_a_call_waits_for_the_party_that_blocks_its_server() -> None:
    assert among(_client(), _server()) == {HOLDER}


def test_a_call_with_a_deadline_waits_no_longer() -> None:
    found = tied({ProcessName("client"): _client(_call(deadline=5.0)), ProcessName("server"): _server()}, ())
    assert [wait.deadline for wait in found[ProcessName("client")].waits] == [5.0]


@pytest.mark.parametrize(
    "there",
    [
        replace(THERE, name="net:3>2"),  # a proxy in between: another connection
        replace(THERE, begun=1),  # the call has not arrived, or is not on it
        replace(THERE, ended=2),  # one of the calls has ended
    ],
)
def test_ends_that_do_not_match_make_no_tie(there: Connection) -> None:
    assert among(_client(), _server(there)) is None


def test_every_connection_that_the_call_may_be_on_must_be_held_up() -> None:
    other = replace(HERE, name="net:4>5")
    assert among(_client(None, HERE, other), _server()) is None
    both = among(_client(None, HERE, other), _server(), _server(replace(other, socket=3), "second"))
    assert both == {HOLDER, "second/Hold#1"}


def test_a_connection_that_two_members_claim_ties_no_call() -> None:
    assert among(_client(), _server(), _server(THERE, "second")) is None


@pytest.mark.parametrize("call", [_call(copies_max=2), _call(hedged=True), _call(doubtful=True)])
def test_a_call_that_may_be_elsewhere_as_well_is_not_tied(call: OutstandingCall) -> None:
    assert among(_client(call), _server()) is None


def test_a_call_that_a_member_has_seen_is_where_that_member_says() -> None:
    served = ServedCall(
        party=PartyName("server/Do#2"),
        method="/s/Do",
        caller=Caller(ProcessName("client"), 1),
        number=CallNumber(1),
        serving=True,
    )
    assert among(_client(), _server(served=(served,))) is None


def _full(**further: object) -> Report:
    served = ServedCall(
        party=HOLDER, method="/s/Hold", caller=Caller(ProcessName("client"), 1), number=CallNumber(2), serving=True
    )
    held = HeldUp(connection=THERE, parties=(HOLDER,), full=True, what="room")
    return _report("server", served=(replace(served, **further),), held_up=(held,))  # type: ignore[arg-type]


def _client_of_both(*waits: LocalWait) -> Report:
    return _client(made=(_call(), _call(2, party=MAKER)), waits=(_wait(), *waits))


def test_a_call_over_a_full_connection_waits_for_the_servers_and_cancellers_of_the_others() -> None:
    assert among(_client_of_both(_wait(2, MAKER, 2)), _full()) == {HOLDER, MAKER}


def test_a_full_connection_ties_nothing_if_an_unknown_party_may_cancel_a_call() -> None:
    assert among(_client_of_both(), _full()) is None, "its maker does something else: the call object may be anywhere"
    assert among(_client_of_both(_wait(2, MAKER, 2)), _full(caller=None)) is None
    assert among(_client_of_both(_wait(2, MAKER, 2)), _full(hung_up=True)) is None


def test_a_full_connection_has_room_at_the_servers_first_known_deadline() -> None:
    reports = {report.process.instance: report for report in (_client_of_both(_wait(2, MAKER, 2)), _full(deadline=9.0))}
    assert tied(reports, ())[ProcessName("client")].waits[0].deadline == 9.0


def test_each_of_several_calls_that_all_must_end_is_a_separate_wait() -> None:
    client = _client(made=(_call(), _call(2)), waits=(_wait(1, WAITER, 1, 2),))
    found = tied({ProcessName("client"): client, ProcessName("server"): _server()}, ())
    waits = found[ProcessName("client")].waits
    assert [wait.among for wait in waits] == [(PartyTarget(party=HOLDER),), (CallTarget(number=CallNumber(2)),)]
    assert {wait.number for wait in waits} == {1}
