"""Locates outstanding calls from the two ends' cuts: served, queued, in transit, perhaps at a missing member, outside."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from detector.core.waits.channels import MISSING_NAMED_MAX, CallLocation, Channels, Orphan, Where, set_aside
from stilltrue.model import PartyName, ProcessId, ProcessName, SnapshotId
from stilltrue.protocol.books.ledger import ChannelRecord, ClientCall
from stilltrue.protocol.recorder import Bounds, Recorder
from stilltrue.protocol.report import Report
from stilltrue.protocol.stamp import Stamp


class Fleet:
    """One caller and several instances of the service that it calls, each with one worker."""

    def __init__(self, *servers: str, workers: int = 1, bounds: Bounds | None = None) -> None:
        self.caller = _recorder("caller", "caller")
        self.servers = {name: _recorder(name, "server", bounds) for name in servers}
        for recorder in self.servers.values():
            recorder.pool_opened("pool", workers)
        self.channel = ChannelRecord("server:1")

    def send(self) -> tuple[ClientCall, Stamp]:
        return self.caller.sent(method="/s/Do", channel=self.channel, now=0.0)

    def answered(self, *names: str) -> None:
        """Each of the servers answers one call, so that the channel knows it."""
        for name in names:
            made, stamp = self.send()
            served, _ = self.servers[name].arrived(stamp, method="/s/Do", now=0.0, pool="pool")
            self.caller.settled(made, self.servers[name].replied(served), 0.0)

    def busy(self, name: str) -> None:
        """A call from outside occupies one of the server's workers."""
        served, _ = self.servers[name].arrived(None, method="/s/Busy", now=0.0, pool="pool")
        self.servers[name].started(served)

    def place(self, made: ClientCall, missing: Sequence[str] = ()) -> CallLocation:
        reports = {
            recorder.process.instance: _report(recorder)
            for recorder in (self.caller, *self.servers.values())
            if recorder.process.instance not in missing
        }
        call = next(call for call in reports[ProcessName("caller")].made if call.number == made.number)
        return Channels(reports, [self.servers[name].process for name in missing]).locate(self.caller.process, call)


def place_of(fleet: Fleet, made: ClientCall) -> tuple[Where, tuple[PartyName, ...]]:
    place = fleet.place(made)
    return place.where, place.among


def _recorder(name: str, service: str, bounds: Bounds | None = None) -> Recorder:
    return Recorder(process=ProcessId(service=service, instance=ProcessName(name), incarnation=1), reactive=True, bounds=bounds)


def _report(recorder: Recorder) -> Report:
    report = recorder.marked(SnapshotId(1), 1.0)
    assert report is not None
    return report


def test_a_call_being_served_waits_for_the_party_that_serves_it() -> None:
    fleet = Fleet("s1")
    made, stamp = fleet.send()
    served, _ = fleet.servers["s1"].arrived(stamp, method="/s/Do", now=0.0, pool="pool")
    fleet.servers["s1"].started(served)
    assert place_of(fleet, made) == (Where.SERVED, ("s1/Do#1",))


def test_a_call_queued_behind_a_full_pool_waits_for_one_of_its_workers() -> None:
    fleet = Fleet("s1", workers=2)
    fleet.busy("s1")
    fleet.busy("s1")
    made, stamp = fleet.send()
    fleet.servers["s1"].arrived(stamp, method="/s/Do", now=0.0, pool="pool")
    assert place_of(fleet, made) == (Where.QUEUED, ("s1/Busy#1", "s1/Busy#2"))


def test_a_call_queued_behind_a_pool_with_a_free_worker_ends_by_itself() -> None:
    fleet = Fleet("s1", workers=2)
    fleet.busy("s1")
    made, stamp = fleet.send()
    fleet.servers["s1"].arrived(stamp, method="/s/Do", now=0.0, pool="pool")
    assert place_of(fleet, made) == (Where.QUEUED, ())


def test_an_answered_call_has_its_reply_in_transit() -> None:
    fleet = Fleet("s1")
    made, stamp = fleet.send()
    served, _ = fleet.servers["s1"].arrived(stamp, method="/s/Do", now=0.0, pool="pool")
    fleet.servers["s1"].started(served)
    fleet.servers["s1"].replied(served)
    assert place_of(fleet, made) == (Where.REPLY_IN_TRANSIT, ())


def test_a_retried_call_is_over_only_when_no_member_serves_it() -> None:
    fleet = Fleet("s1", "s2")
    made, stamp = fleet.send()
    handles = {}
    for name in ("s1", "s2"):
        handles[name], _ = fleet.servers[name].arrived(stamp, method="/s/Do", now=0.0, pool="pool")
        fleet.servers[name].started(handles[name])
    assert fleet.place(made).among == ("s1/Do#1", "s2/Do#1")


def test_an_unseen_request_ends_by_itself_despite_earlier_answers_on_its_channel() -> None:
    fleet = Fleet("s1", "s2")
    fleet.answered("s1", "s2")
    fleet.busy("s1")
    fleet.busy("s2")
    made, _ = fleet.send()
    assert place_of(fleet, made) == (Where.REQUEST_IN_TRANSIT, ())


def test_an_unseen_call_may_be_at_the_missing_member_despite_a_free_worker() -> None:
    fleet = Fleet("s1", "s2")
    fleet.answered("s1", "s2")
    made, _ = fleet.send()
    place = fleet.place(made, missing=["s2"])
    assert (place.where, place.among) == (Where.MISSING, ("s2",))


def test_an_unseen_call_may_be_anywhere_despite_a_full_pool() -> None:
    fleet = Fleet("s1")
    fleet.busy("s1")
    made, _ = fleet.send()
    assert place_of(fleet, made) == (Where.REQUEST_IN_TRANSIT, ())


def test_a_missing_member_that_never_answered_may_have_the_call() -> None:
    fleet = Fleet("s1", "s2")
    fleet.answered("s1")
    made, _ = fleet.send()
    place = fleet.place(made, missing=["s2"])
    assert (place.where, place.among) == (Where.MISSING, ("s2",))


def test_a_server_that_had_to_forget_leaves_the_call_unknown() -> None:
    fleet = Fleet("s1", bounds=Bounds(answered_max=1))
    made, stamp = fleet.send()
    for _ in range(2):
        served, _ = fleet.servers["s1"].arrived(stamp, method="/s/Do", now=0.0, pool="pool")
        fleet.servers["s1"].replied(served)
        _, stamp = fleet.send()
    assert fleet.place(made).where is Where.UNKNOWN


def test_a_call_that_was_seen_before_it_was_sent_is_an_orphan() -> None:
    fleet = Fleet("s1")
    cut = _report(fleet.caller)
    _, stamp = fleet.send()
    fleet.servers["s1"].arrived(stamp._replace(colour=SnapshotId(0)), method="/s/Do", now=0.0)
    reports = {ProcessName("caller"): cut, ProcessName("s1"): _report(fleet.servers["s1"])}
    (orphan,) = Channels(reports, []).orphans()
    assert orphan.text == "s1 had seen call 1 of caller, which had sent only 0 at its cut"


def test_a_forged_floor_that_ends_a_call_which_its_caller_still_makes_is_an_orphan() -> None:
    fleet = Fleet("s1")
    _, first = fleet.send()
    _, second = fleet.send()
    fleet.servers["s1"].arrived(first, method="/s/Do", now=0.0)
    fleet.servers["s1"].arrived(second._replace(floor=second.number), method="/s/Do", now=0.0)
    reports = {recorder.process.instance: _report(recorder) for recorder in (fleet.caller, fleet.servers["s1"])}
    (orphan,) = Channels(reports, []).orphans()
    assert orphan.text == "s1 considered calls of caller below 2 over, but call 1 was outstanding at its cut"


def test_the_floors_of_honest_callers_contradict_nothing() -> None:
    fleet = Fleet("s1")
    fleet.answered("s1", "s1")
    made, stamp = fleet.send()
    fleet.servers["s1"].arrived(stamp, method="/s/Do", now=0.0)
    fleet.caller.settled(made, None, 0.0, in_doubt=True)
    fleet.answered("s1")
    reports = {recorder.process.instance: _report(recorder) for recorder in (fleet.caller, fleet.servers["s1"])}
    assert Channels(reports, []).orphans() == []


def orphan(server: str, caller: str) -> Orphan:
    return Orphan(ProcessName(server), ProcessName(caller), f"{server} of {caller}")


@pytest.mark.parametrize(
    ("orphans", "aside"),
    [
        ([], {}),
        ([orphan("s1", "c")], {"s1": "s1 of c"}),
        ([orphan("s1", "c"), orphan("s2", "c")], {"c": "s1 of c"}),
        ([orphan("s1", "c"), orphan("s1", "d"), orphan("s2", "e")], {"s1": "s1 of c", "s2": "s2 of e"}),
        ([orphan("s1", "s1")], {"s1": "s1 of s1"}),
    ],
)
def test_as_few_reports_as_possible_are_set_aside_for_a_contradiction(orphans: list[Orphan], aside: dict[str, str]) -> None:
    assert set_aside(orphans) == aside


def test_a_call_may_be_at_the_missing_member_although_another_server_is_gone() -> None:
    fleet = Fleet("s1", "s2")
    fleet.answered("s1", "s2")
    made, _ = fleet.send()
    del fleet.servers["s1"]
    assert fleet.place(made).where is Where.UNKNOWN
    fleet = Fleet("s1", "s2")
    fleet.answered("s1", "s2")
    made, _ = fleet.send()
    gone = fleet.servers.pop("s1")
    place = fleet.place(made, missing=["s2"])
    assert PartyName(gone.process.instance) not in place.among
    assert (place.where, place.among) == (Where.MISSING, ("s2",))


def test_a_missing_member_may_have_answered_the_other_copy_of_a_hedged_call() -> None:
    fleet = Fleet("one", "two")
    fleet.channel = ChannelRecord("server:1", copies_max=2, hedged=True)
    made, stamp = fleet.send()
    for name in ("one", "two"):
        served, _ = fleet.servers[name].arrived(stamp, method="/s/Do", now=0.0, pool="pool")
        fleet.caller.settled(made, fleet.servers[name].replied(served), 0.0)
    assert place_of(fleet, made)[0] is Where.REPLY_IN_TRANSIT


def test_a_silent_member_may_have_answered_the_other_copy_of_a_hedged_call() -> None:
    fleet = Fleet("one", "two")
    fleet.channel = ChannelRecord("server:1", copies_max=2, hedged=True)
    made, stamp = fleet.send()
    served, _ = fleet.servers["one"].arrived(stamp, method="/s/Do", now=0.0, pool="pool")
    fleet.caller.settled(made, fleet.servers["one"].replied(served), 0.0)
    assert fleet.place(made, missing=["two"]).where is Where.MISSING


def test_a_pool_of_unknown_size_does_not_count_as_full() -> None:
    fleet = Fleet("s1")
    fleet.servers["s1"].pool_opened("pool", None)
    fleet.busy("s1")
    made, stamp = fleet.send()
    fleet.servers["s1"].arrived(stamp, method="/s/Do", now=0.0, pool="pool")
    assert place_of(fleet, made) == (Where.QUEUED, ())


def test_a_server_that_lost_its_caller_no_longer_has_the_call() -> None:
    fleet = Fleet("s1")
    made, stamp = fleet.send()
    served, _ = fleet.servers["s1"].arrived(stamp, method="/s/Do", now=0.0)
    fleet.servers["s1"].started(served)
    fleet.servers["s1"].hung_up(served)
    assert place_of(fleet, made) == (Where.UNKNOWN, ())


def test_a_call_in_doubt_is_not_over_while_another_copy_may_be_in_transit() -> None:
    fleet = Fleet("s1")
    fleet.channel = ChannelRecord("server:1", copies_max=2)
    made, stamp = fleet.send()
    served, _ = fleet.servers["s1"].arrived(stamp, method="/s/Do", now=0.0)
    fleet.servers["s1"].replied(served)
    fleet.caller.settled(made, None, 0.0, in_doubt=True)
    assert place_of(fleet, made) == (Where.UNKNOWN, ())


def test_the_retry_of_a_failed_call_may_be_at_the_missing_member() -> None:
    fleet = Fleet("s1", "s2")
    fleet.channel = ChannelRecord("server:1", copies_max=2)
    made, stamp = fleet.send()
    served, _ = fleet.servers["s1"].arrived(stamp, method="/s/Do", now=0.0)
    fleet.servers["s1"].replied(served, failed=True)
    assert fleet.place(made, missing=("s2",)).where is Where.MISSING


def test_the_first_missing_members_are_named_and_the_others_counted() -> None:
    fleet = Fleet("s1")
    made, _ = fleet.send()
    report = _report(fleet.caller)
    absent = [ProcessId(service="s", instance=ProcessName(f"m{at:04d}"), incarnation=1) for at in reversed(range(3_000))]
    place = Channels({report.process.instance: report}, absent).locate(report.process, report.made[0])
    assert place.among == tuple(f"m{at:04d}" for at in range(MISSING_NAMED_MAX))
    assert place.what.endswith(f" or m{MISSING_NAMED_MAX - 1:04d} or {3_000 - MISSING_NAMED_MAX} others (no report)")
    assert made.number == report.made[0].number
