"""The service for clients: a right answer, about the right scope, from a snapshot begun after the question."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from detector.core.document.reader import parse_document
from detector.predicates.deadlock import Deadlock as DeadlockPredicate
from detector.service.detection import driver
from detector.service.detection.incident.incidents import Incidents
from detector.service.settings import scope_from_text
from stilltrue.model import CallNumber, Holds, ProcessName, Witness
from stilltrue.protocol.report import Caller, Seen
from stilltrue.v1 import agent_pb2, detector_pb2, detector_pb2_grpc, snapshot_pb2

TRUE, FALSE, UNDETERMINED = snapshot_pb2.HOLDS_TRUE, snapshot_pb2.HOLDS_FALSE, snapshot_pb2.HOLDS_UNDETERMINED


async def test_a_deadlock_is_true_with_exactly_its_core(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b, c = (process(name) for name in "abc")
    stuck = deadlock(a, b)
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b, c)
        verdict = await detector.ask()
        assert verdict.holds == snapshot_pb2.HOLDS_TRUE
        assert list(verdict.core) == stuck.core
        assert verdict.snapshot.members == 3
        stuck.cure()
        verdict = await detector.ask()
        assert verdict.holds == snapshot_pb2.HOLDS_FALSE


async def test_without_members_the_answer_is_undetermined(start_detector: Any, tmp_path: Path) -> None:
    async with start_detector(tmp_path) as detector:
        for predicate in ("deadlock", "termination"):
            verdict = await detector.ask(predicate)
            assert verdict.holds == snapshot_pb2.HOLDS_UNDETERMINED
            assert "no process is connected" in verdict.witness.text


async def test_an_unknown_predicate_or_scope_is_refused_by_name(start_detector: Any, tmp_path: Path) -> None:
    async with start_detector(tmp_path) as detector:
        for predicate, scope, words in (("dedlock", "", "available: deadlock, "), ("deadlock", "shop", "no scope 'shop'")):
            with pytest.raises(grpc.RpcError) as error:
                await detector.ask(predicate, scope)
            assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert words in (error.value.details() or "")


async def test_a_predicate_that_was_installed_since_needs_a_restart(start_detector: Any, tmp_path: Path) -> None:
    async with start_detector(tmp_path, [DeadlockPredicate()]) as detector:
        with pytest.raises(grpc.RpcError) as error:
            await detector.ask("gridlock")  # installed, but not when this detector started
        text = "the predicate 'gridlock' was installed after the detector had started: restart the detector"
        assert error.value.details() == text


async def test_scopes_answer_for_their_own(start_detector: Any, process: Any, deadlock: Any, tmp_path: Path) -> None:
    a, b = process("a", labels={"team": "shop"}), process("b", labels={"team": "shop"})
    c = process("c", labels={"team": "bank"})
    deadlock(a, b)
    scopes = tuple(map(scope_from_text, ("shop=team=shop", "bank=team=bank", "none=team=none")))
    async with start_detector(tmp_path, scopes=scopes) as detector:
        await detector.join(a, b, c)
        assert (await detector.ask("deadlock", "shop")).holds == TRUE
        bank = await detector.ask("deadlock", "bank")
        assert (bank.holds, bank.snapshot.scope, bank.snapshot.members) == (FALSE, "bank", 1)
        assert (await detector.ask("termination", "bank")).holds == TRUE
        none = await detector.ask("termination", "none")
        assert none.holds == UNDETERMINED
        assert "no process of the scope none" in none.witness.text


async def test_a_contradicting_report_is_set_aside_and_the_answer_covers_the_others(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b, liar = process("a"), process("b"), process("liar")
    deadlock(a, b)
    liar.change = lambda report: replace(report, seen=(Seen(caller=Caller(ProcessName("a"), 1), highest=CallNumber(99)),))
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b, liar)
        verdict = await detector.ask()
        assert (verdict.holds, verdict.core, verdict.missing) == (TRUE, ["a/X#1", "b/Y#1"], ["liar"])
        (spot,) = verdict.coverage.blind
        assert spot.process == "liar"
        assert "liar had seen call 99 of a, which had sent only 2 at its cut" in spot.reasons[0]
        assert await detector.metric('stilltrue_reports_refused_total{reason="contradictory"}') == 1
        (summary,) = (await detector.stub.ListSnapshots(detector_pb2.ListSnapshotsRequest())).snapshots
        assert (summary.outcome, summary.missing) == ("incomplete", ["liar"])


async def test_a_request_of_a_process_begins_a_snapshot_and_a_watch_sees_it(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b = process("a"), process("b")
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b)
        assert (await detector.ask()).holds == FALSE
        watch = aiter(detector.stub.Watch(detector_pb2.WatchRequest(predicate="deadlock")))
        async with asyncio.timeout(10):
            assert (await anext(watch)).verdict.holds == FALSE
            deadlock(a, b)
            await a.say(wish=agent_pb2.Wish(reason="blocked"))
            assert (await anext(watch)).verdict.holds == TRUE


async def test_waits_of_an_open_incident_rarely_request_snapshots_and_new_ones_at_once(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b = process("a"), process("b")
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b)
        deadlock(a, b)
        assert (await detector.ask()).holds == TRUE
        before = a.recorder.colour
        for _ in range(20):
            await a.say(wish=agent_pb2.Wish(reason="still blocked, for 3 s"))
        async with asyncio.timeout(20):
            verdict = await detector.ask()
        assert verdict.snapshot.id <= before + 2, "one for the twenty wishes, and one for the question"
        watch = aiter(detector.stub.Watch(detector_pb2.WatchRequest(predicate="deadlock")))
        async with asyncio.timeout(20):
            await anext(watch)
            await a.say(wish=agent_pb2.Wish(reason="blocked for 0.200 s"))
            while a.recorder.colour <= verdict.snapshot.id:
                await asyncio.sleep(0.01)


async def test_after_an_answer_the_incident_that_it_opened_is_listed(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_cores = Incidents.cores_in

    def find_cores_slowly(self: Incidents, *of: Any) -> Any:
        time.sleep(0.3)  # on a thread of its own, as with thousands of parties
        return find_cores(self, *of)

    monkeypatch.setattr(Incidents, "cores_in", find_cores_slowly)
    a, b = process("a"), process("b")
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b)
        deadlock(a, b)
        assert (await detector.ask()).holds == TRUE
        assert len((await detector.stub.ListIncidents(detector_pb2.ListIncidentsRequest())).incidents) == 1


async def test_the_waits_of_an_open_incident_age(start_detector: Any, process: Any, deadlock: Any, tmp_path: Path) -> None:
    a, b = process("a"), process("b")
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b)
        deadlock(a, b)
        assert (await detector.ask()).holds == TRUE
        (first,) = (await detector.stub.ListIncidents(detector_pb2.ListIncidentsRequest())).incidents
        async with asyncio.timeout(20):
            while (await detector.ask()).holds == TRUE:
                (later,) = (await detector.stub.ListIncidents(detector_pb2.ListIncidentsRequest())).incidents
                if list(later.waits) != list(first.waits):
                    break
        assert len(later.waits) == len(first.waits)
        assert (later.id, later.closed) == (first.id, first.closed)


async def test_a_watch_sends_only_changes_and_heartbeats(start_detector: Any, process: Any, tmp_path: Path) -> None:
    a = process("a")
    async with start_detector(tmp_path, heartbeat_seconds=0.2, period_seconds=0.05) as detector:
        await detector.join(a)
        watch = aiter(detector.stub.Watch(detector_pb2.WatchRequest(predicate="deadlock")))
        async with asyncio.timeout(10):
            told = [await anext(watch) for _ in range(3)]
        assert [response.HasField("verdict") for response in told] == [True, False, False]


async def test_the_bound_on_watchers(start_detector: Any, process: Any, tmp_path: Path) -> None:
    async with start_detector(tmp_path, watchers_max=1, heartbeat_seconds=0.1) as detector:
        first = aiter(detector.stub.Watch(detector_pb2.WatchRequest()))
        await anext(first)
        with pytest.raises(grpc.RpcError) as error:
            await anext(aiter(detector.stub.Watch(detector_pb2.WatchRequest())))
        assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_many_watches_on_one_connection_leave_others_their_share(start_detector: Any, tmp_path: Path) -> None:
    async with start_detector(tmp_path, watchers_max=4, heartbeat_seconds=0.1) as detector:
        crowd = [aiter(detector.stub.Watch(detector_pb2.WatchRequest())) for _ in range(4)]
        for watch in crowd:
            await anext(watch)
        with pytest.raises(grpc.RpcError, match="--watchers-max"):
            await anext(aiter(detector.stub.Watch(detector_pb2.WatchRequest())))
        async with grpc.aio.insecure_channel(detector.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            other: Any = detector_pb2_grpc.DetectorServiceStub(channel)  # type: ignore[no-untyped-call]  # generated code
            await anext(aiter(other.Watch(detector_pb2.WatchRequest())))


async def test_an_answer_covers_fifty_processes_at_once(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "PARTIAL_SECONDS", math.inf)  # on a crowded machine some report later than that
    processes = [process(f"p{number:02}") for number in range(50)]
    stuck = [deadlock(processes[2 * pair], processes[2 * pair + 1]) for pair in range(3)]
    async with start_detector(tmp_path, give_up_seconds=30.0) as detector:
        await detector.join(*processes)
        verdicts = await asyncio.gather(*(detector.ask() for _ in range(10)))
        for verdict in verdicts:
            assert verdict.holds == TRUE
            assert list(verdict.core) == sorted(party for one in stuck for party in one.core)
            assert (verdict.snapshot.members, list(verdict.missing)) == (50, [])
        found = await detector.incidents()
        assert sorted(list(incident.core) for incident in found) == sorted(one.core for one in stuck)


async def test_the_document_reads_back_to_the_same_verdict(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b = process("a"), process("b")
    deadlock(a, b)
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b)
        verdict = await detector.ask()
        answer = await detector.stub.GetSnapshot(detector_pb2.GetSnapshotRequest(id=verdict.snapshot.id))
        again = DeadlockPredicate().evaluate(parse_document(answer.document_json)[1])
        assert again.holds is Holds.TRUE
        assert list(again.core) == list(verdict.core)
        assert list(again.behind) == list(verdict.behind)
        assert again.witness == Witness(
            kind=verdict.witness.kind, parties=tuple(verdict.witness.parties), text=verdict.witness.text
        )
