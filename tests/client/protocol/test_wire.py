"""The wire loses nothing: every value survives the round trip, and errors name the field that breaks the contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stilltrue.model import (
    Activity,
    CallNumber,
    Evidence,
    Holds,
    PartyName,
    ProcessId,
    ProcessName,
    SnapshotId,
    SnapshotRef,
    Verdict,
    WaitNumber,
    Witness,
)
from stilltrue.protocol.report import (
    Answered,
    Caller,
    CallerTarget,
    CallTarget,
    Connection,
    HeldUp,
    Hold,
    LocalWait,
    OutstandingCall,
    PartyTarget,
    Pool,
    Report,
    ResourceTarget,
    Seen,
    SentOver,
    ServedCall,
)
from stilltrue.protocol.requests.look import Look, LookRequest, PartyLook, Suspect, WayOut
from stilltrue.protocol.wire.look import look_from_wire, look_to_wire, request_from_wire, request_to_wire
from stilltrue.protocol.wire.report import report_from_wire, report_to_wire
from stilltrue.protocol.wire.values import MalformedError
from stilltrue.protocol.wire.verdict import verdict_from_wire, verdict_to_wire
from stilltrue.v1 import agent_pb2 as agent_pb
from stilltrue.v1 import snapshot_pb2 as pb

T = TypeVar("T")

numbers = st.integers(1, 2**53)
counts = st.integers(0, 2**40)
times = st.none() | st.floats(0, 4e9)
texts = st.text(max_size=8)
words = st.text("abcXYZ019-._", min_size=1, max_size=8)
facts = st.dictionaries(
    texts,
    st.integers(-(2**63), 2**63 - 1) | st.floats(width=64, allow_nan=False, allow_infinity=False) | texts | st.booleans(),
    max_size=3,
)
own = words.map(lambda word: PartyName(f"orders/{word}"))
parties = words.map(PartyName)
processes = words.map(ProcessName)
callers = st.builds(Caller, processes, numbers)
targets = (
    st.builds(PartyTarget, party=parties)
    | st.builds(CallTarget, number=numbers.map(CallNumber))
    | st.builds(ResourceTarget, resource=texts)
    | st.builds(CallerTarget, served=own)
)


def tuples(of: st.SearchStrategy[T], least: int = 0) -> st.SearchStrategy[tuple[T, ...]]:
    return st.lists(of, min_size=least, max_size=3).map(tuple)


def in_number_order(answered: list[Answered]) -> tuple[Answered, ...]:
    return tuple(sorted(answered, key=lambda entry: entry.number))


made = st.builds(
    OutstandingCall,
    number=numbers.map(CallNumber),
    method=texts,
    target=texts,
    servers=st.dictionaries(processes, counts, max_size=3),
    strangers=st.booleans(),
    party=st.none() | own,
    since=times,
    deadline=times,
    sent=counts,
    received=counts,
    facts=facts,
    doubtful=st.booleans(),
)
served = st.builds(
    ServedCall,
    party=own,
    method=texts,
    caller=st.none() | callers,
    number=numbers.map(CallNumber),
    serving=st.booleans(),
    pool=texts,
    since=times,
    deadline=times,
    sent=counts,
    received=counts,
    taken=st.booleans(),
)
answered = st.builds(Answered, number=numbers.map(CallNumber), sent=counts, received=counts, facts=facts, taken=st.booleans())
seen = st.builds(
    Seen,
    caller=callers,
    highest=st.just(CallNumber(2**53)),
    forgotten=numbers.map(CallNumber),
    answered=st.lists(answered, max_size=4, unique_by=lambda entry: entry.number).map(in_number_order),
)
waits = tuples(targets, least=1).flatmap(
    lambda among: st.builds(
        LocalWait,
        waiter=own,
        number=numbers.map(WaitNumber),
        among=st.just(among),
        needs=st.integers(1, len(among)),
        deadline=times,
        since=times,
        uncoloured=st.booleans(),
        what=texts,
    )
)
connections = st.builds(Connection, name=texts, socket=counts, begun=counts, ended=counts)
reports = st.builds(
    Report,
    process=st.builds(ProcessId, service=texts, instance=st.just(ProcessName("orders")), incarnation=numbers),
    snapshot=st.just(SnapshotId(9)),
    after=st.integers(0, 8).map(SnapshotId),
    cut_at=st.floats(0, 4e9),
    next_number=numbers.map(CallNumber),
    activity=st.sampled_from(Activity),
    made=tuples(made),
    served=tuples(served),
    seen=tuples(seen),
    pools=tuples(st.builds(Pool, name=texts, size=st.none() | st.integers(0, 2**31), queued=counts)),
    waits=tuples(waits),
    holds=tuples(st.builds(Hold, party=own, resource=texts, capacity=st.integers(1, 2**31))),
    facts=facts,
    labels=st.dictionaries(texts, texts, max_size=2),
    lost=counts,
    happenings=counts,
    sent_over=tuples(st.builds(SentOver, call=numbers.map(CallNumber), connections=tuples(connections))),
    held_up=tuples(st.builds(HeldUp, connection=connections, parties=tuples(own), full=st.booleans(), what=texts)),
)
verdicts = st.builds(
    Verdict,
    predicate=texts,
    holds=st.sampled_from(Holds),
    witness=st.builds(Witness, kind=texts, parties=tuples(parties), text=texts),
    snapshot=st.builds(
        SnapshotRef,
        id=st.none() | numbers.map(SnapshotId),
        scope=texts,
        begun=times,
        ended=times,
        members=st.integers(0, 2**31),
    ),
    remainder=tuples(parties),
    core=tuples(parties),
    behind=tuples(parties),
    missing=tuples(processes),
    decisive=tuples(processes),
    until=times,
    explanation=tuples(texts),
    victims=tuples(parties),
    evidence=tuples(st.builds(Evidence, party=parties, stack=tuples(texts), trace=texts)),
    assumptions=tuples(texts),
)
requests = st.builds(
    LookRequest,
    snapshot=numbers.map(SnapshotId),
    suspects=tuples(st.builds(Suspect, party=own, waits=tuples(numbers.map(WaitNumber)))),
    activity=st.booleans(),
)
ways = st.builds(WayOut, text=texts, party=st.none() | parties)
looks = st.builds(
    Look,
    snapshot=numbers.map(SnapshotId),
    parties=tuples(
        st.builds(
            PartyLook,
            party=own,
            unchanged=st.booleans(),
            deadline=times,
            ways_out=tuples(ways),
            doubt=texts,
            stack=tuples(texts),
            trace=texts,
            interruptible=st.booleans(),
        )
    ),
    happenings=counts,
    unaccounted=tuples(texts),
)


@settings(deadline=None)
@given(reports)
def test_a_report_survives_the_round_trip(report: Report) -> None:
    message = pb.Report.FromString(report_to_wire(report).SerializeToString())
    assert report_from_wire(message) == report


@settings(deadline=None)
@given(reports)
def test_booleans_and_integers_stay_distinct(report: Report) -> None:
    back = report_from_wire(report_to_wire(report))
    assert {name: type(fact) for name, fact in back.facts.items()} == {n: type(f) for n, f in report.facts.items()}


@settings(deadline=None)
@given(verdicts)
def test_a_verdict_survives_the_round_trip(verdict: Verdict) -> None:
    message = pb.Verdict.FromString(verdict_to_wire(verdict).SerializeToString())
    assert verdict_from_wire(message) == verdict


@settings(deadline=None)
@given(requests)
def test_a_look_request_survives_the_round_trip(request: LookRequest) -> None:
    message = agent_pb.Look.FromString(request_to_wire(request).SerializeToString())
    assert request_from_wire(message) == request


@settings(deadline=None)
@given(looks)
def test_a_look_survives_the_round_trip(look: Look) -> None:
    message = agent_pb.Looked.FromString(look_to_wire(look).SerializeToString())
    assert look_from_wire(ProcessName("orders"), message) == look


def test_a_process_can_only_report_its_own_parties() -> None:
    message = agent_pb.Looked(parties=[agent_pb.PartyLook(party="stock/Reserve#1", unchanged=True)])
    with pytest.raises(MalformedError, match="stock/Reserve#1"):
        look_from_wire(ProcessName("orders"), message)


def plain_report() -> pb.Report:
    return pb.Report(
        process=pb.ProcessId(service="orders", instance="orders", incarnation=1), snapshot=2, after=1, next_number=1
    )


def put_wait(report: pb.Report, **changes: object) -> None:
    wait = report.waits.add(waiter="orders/Place#1", number=1, needs=1)
    wait.among.add(call=1)
    for field, value in changes.items():
        setattr(wait, field, value)


@pytest.mark.parametrize(
    ("field", "spoil"),
    [
        ("process.instance", lambda report: setattr(report.process, "instance", "a/b")),
        ("process.instance", lambda report: setattr(report.process, "instance", "")),
        ("process.incarnation", lambda report: setattr(report.process, "incarnation", 2**63)),
        ("snapshot", lambda report: setattr(report, "after", 2)),
        ("cut_at", lambda report: setattr(report, "cut_at", float("nan"))),
        ("next_number", lambda report: setattr(report, "next_number", 2**60)),
        ("made.party", lambda report: report.made.add(number=1, party="stock/Reserve#1")),
        ("served.party", lambda report: report.served.add(party="stock/Reserve#1")),
        ("holds.party", lambda report: report.holds.add(party="stock/Reserve#1", resource="row")),
        ("waits.waiter", lambda report: put_wait(report, waiter="stock/Reserve#1")),
        ("waits.needs", lambda report: put_wait(report, needs=0)),
        ("waits.needs", lambda report: put_wait(report, needs=2)),
        ("waits.deadline", lambda report: put_wait(report, deadline=float("inf"))),
        ("waits.among", lambda report: report.waits.add(waiter="orders/a", number=1, needs=1).among.add()),
        ("waits.among.served", lambda report: report.waits.add(waiter="orders/a", needs=1).among.add(served="stock/a")),
        ("seen.answered", lambda report: report.seen.add(highest=3, plain=[4]).caller.MergeFrom(pb.Caller(process="a"))),
        ("caller.process", lambda report: report.seen.add(highest=3)),
        ("facts", lambda report: report.facts["token"].Clear()),
    ],
)
def test_a_value_that_breaks_the_contract_is_refused_by_field_name(field: str, spoil: Callable[[pb.Report], object]) -> None:
    report = plain_report()
    report_from_wire(report)
    spoil(report)
    with pytest.raises(MalformedError, match=field) as refusal:
        report_from_wire(report)
    assert "\n" not in str(refusal.value)


def test_unknown_choices_read_as_doubt() -> None:
    assert report_from_wire(plain_report()).activity is Activity.ACTIVE
    assert verdict_from_wire(pb.Verdict()).holds is Holds.UNDETERMINED
