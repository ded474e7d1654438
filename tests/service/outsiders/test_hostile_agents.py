"""A lying agent spoils its own part of a snapshot, and nothing else."""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from detector.ops.logs import LineFormatter
from stilltrue.model import Activity, CallNumber, PartyName, ProcessName, WaitNumber
from stilltrue.protocol.books.ledger import ChannelRecord
from stilltrue.protocol.report import Caller, Hold, LocalWait, OutstandingCall, PartyTarget, Pool, Report, Seen, ServedCall
from stilltrue.v1 import agent_pb2, detector_pb2, snapshot_pb2

TRUE, FALSE, UNDETERMINED = snapshot_pb2.HOLDS_TRUE, snapshot_pb2.HOLDS_FALSE, snapshot_pb2.HOLDS_UNDETERMINED
MEGABYTE = 2**20


def wait(waiter: str, *among: str, number: int = 1, **more: Any) -> LocalWait:
    targets = tuple(PartyTarget(party=PartyName(each)) for each in among)
    return LocalWait(waiter=PartyName(waiter), number=WaitNumber(number), among=targets, **more)


def served(party: str, **more: Any) -> ServedCall:
    return ServedCall(party=PartyName(party), method="/s/M", **more)


LIES: dict[str, Any] = {
    "a waiter of another process": {"waits": (wait("a/X#1", "liar/x"),)},
    "parties served in another's name": {"served": (served("a/X#1"),)},
    "a name of megabytes": {"waits": (wait("liar/" + "x" * 2 * MEGABYTE, "liar/y"),)},
    "another's name of megabytes": {"waits": (wait("x" * 2 * MEGABYTE, "liar/y"),)},
    "a name that steers": {"waits": (wait("liar/\x1b[2J\u202e\x9b31m", "liar/\x1b[2J\u202e\x9b31m"),)},
    "more needed than there is": {"waits": (wait("liar/x", "liar/y", needs=2**32 - 1),)},
    "the ends of time": {"waits": (wait("liar/x", "liar/y", since=-1e300, deadline=1e300),)},
    "a cut in the year 10000": {"cut_at": 253_402_300_801.0},
    "a pool of four billion": {"pools": (Pool(name="pool", size=2**32 - 1, queued=2**32 - 1),)},
    "a thousand pools": {"pools": tuple(Pool(name=f"p{n}", size=0) for n in range(1000))},
    "shares of others' locks": {"holds": (Hold(party=PartyName("a/X#1"), resource="a/lock", capacity=1),)},
    "no number left": {"next_number": CallNumber(2**53)},
    "calls of others seen": {"seen": (Seen(caller=Caller(ProcessName("a"), 1), highest=CallNumber(2**53)),)},
    "floors of others": {"seen": (Seen(caller=Caller(ProcessName("a"), 1), highest=CallNumber(1), floor=CallNumber(2**53)),)},
    "calls numbered twice": {"made": tuple(OutstandingCall(number=CallNumber(1), method="/s/M", target="t") for _ in range(2))},
    "a call of others served": {"served": (served("liar/M#1", caller=Caller(ProcessName("a"), 1), number=CallNumber(1)),)},
    "labels of megabytes": {"labels": {"x" * MEGABYTE: "y" * MEGABYTE}},
    "facts of megabytes": {"facts": {"x" * MEGABYTE: "y" * MEGABYTE}},
    "work without end": {"happenings": 2**53, "lost": 2**32 - 1},
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_lie_spoils_its_own_part_and_not_the_log(
    lie: str, start_detector: Any, process: Any, deadlock: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever a report contains, the deadlock of others is reported, and the reason of the refusal is short."""
    caplog.set_level(logging.INFO)
    a, b, liar = process("a"), process("b"), process("liar")

    def changed(report: Report) -> Report:
        return replace(report, **{"activity": Activity.IDLE} | LIES[lie])

    liar.change = changed
    async with start_detector(tmp_path, give_up_seconds=0.5, suspect_seconds=0.1) as detector:
        await detector.join(a, b, liar)
        stuck = deadlock(a, b)
        for _ in range(5):
            if liar.ended.is_set():
                await detector.join(liar)
            verdict = await detector.ask()
            assert (verdict.holds, list(verdict.core)) == (TRUE, stuck.core)
        assert {path: (await detector.fetch(path))[0] for path in ("/", "/members", "/incidents", "/metrics", "/healthz")} == {
            "/": 200, "/members": 200, "/incidents": 200, "/metrics": 200, "/healthz": 200,
        }  # fmt: skip
    lines = [LineFormatter(as_json=False).format(record) for record in caplog.records]
    assert sum(map(len, lines)) < 200_000
    assert all(line.isprintable() for line in lines)
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "1 to 253"), ("x" * 4000, "1 to 253"), ("a/b", "ASCII"), ("a;b", "ASCII"), ("a b", "ASCII"), ("a\nb", "ASCII"),
        ("\x1b[31ma", "ASCII"), ("a\u202eb", "ASCII"), ("c\x9b31m", "ASCII"), ("\u200b", "ASCII"),
    ],
)  # fmt: skip
async def test_a_name_with_control_characters_or_too_long_is_refused(
    name: str, said: str, start_detector: Any, process: Any, tmp_path: Path
) -> None:
    odd = process(name, service="s")
    async with start_detector(tmp_path) as detector:
        await detector.join(odd)
        assert (odd.status, said in odd.details) == (grpc.StatusCode.INVALID_ARGUMENT, True)
        assert odd.details.isprintable()
        assert await detector.agents() == {}


async def test_services_and_labels_inject_nothing_into_pages_and_tables(
    start_detector: Any, process: Any, tmp_path: Path
) -> None:
    odd = process("odd", service="\x1b[31m\u202eshop", labels={"\x9bteam": "\u2066x\x07"})
    stuck = wait("odd/\x1b[2J\u202e", "odd/\x9b31m", what="\x07\u2066"), wait("odd/\x9b31m", "odd/\x1b[2J\u202e", number=2)
    odd.change = lambda report: replace(report, waits=stuck)
    async with start_detector(tmp_path) as detector:
        await detector.join(odd)
        number = (await detector.ask()).snapshot.id
        shown = ("", "/graph", ".json", ".svg", ".dot")
        pages = ("/", "/members", "/metrics", *(f"/snapshots/{number}{form}" for form in shown))
        for path in (*pages, "/api/v1/members", f"/api/v1/snapshots/{number}/graph"):
            _, content, body = await detector.fetch(path)
            assert content, path
            assert not set(body) & set("\x1b\x9b\u202e\u2066\x07"), path


async def test_blind_spots_and_looks_of_a_lying_agent_are_bounded(start_detector: Any, process: Any, tmp_path: Path) -> None:
    a, liar = process("a"), process("liar")
    async with start_detector(tmp_path) as detector:
        await detector.join(a, liar)
        await liar.say(lease=agent_pb2.Lease(sight=agent_pb2.Sight(blind=["x" * 100_000] * 100)))
        await liar.say(looked=agent_pb2.Looked(snapshot=2**63, happenings=2**64 - 1))
        await liar.say(stacks_found=agent_pb2.StacksFound(number=2**31))
        await liar.say(cured=agent_pb2.Cured(number=2**31))
        assert (await detector.ask()).holds != TRUE
        _, _, body = await detector.fetch("/members")
        assert len(body) < 100_000


@pytest.mark.parametrize("moment", [1e12, 1e300, -1.0])
async def test_a_look_with_a_time_beyond_the_calendar_is_refused(
    moment: float, start_detector: Any, process: Any, deadlock: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No document of its snapshot could be written, so that the deadlock of others was in no list and no archive."""
    monkeypatch.setattr("stilltrue.protocol.wire.look.deadline_to_wire", lambda deadline: deadline)
    a, b, liar, other = (process(name) for name in ("a", "b", "liar", "other"))
    liar.see = lambda look: replace(look, parties=tuple(replace(one, deadline=moment) for one in look.parties))
    deadlock(liar, other)
    async with start_detector(tmp_path, look_give_up_seconds=0.5) as detector:
        await detector.join(a, b, liar, other)
        stuck = deadlock(a, b)
        verdict = await detector.ask()
        assert (verdict.holds, set(stuck.core) <= set(verdict.core)) == (TRUE, True)
        await liar.ended.wait()
        assert (liar.status, "1970 and 9999" in liar.details) == (grpc.StatusCode.INVALID_ARGUMENT, True)
        assert await _is_kept(detector, verdict.snapshot.id)


@pytest.mark.parametrize(("cut_at", "deadline"), [(1.0, 253_402_300_799.0), (253_402_300_799.0, 1.0)])
async def test_times_at_the_ends_of_the_calendar_break_no_document(
    cut_at: float, deadline: float, start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    """A process whose clock is wrong has its moments shifted, beyond the calendar's end too."""
    a, b, liar, other = (process(name) for name in ("a", "b", "liar", "other"))
    liar.change = lambda report: replace(
        report, cut_at=cut_at, made=tuple(replace(call, deadline=deadline, since=deadline) for call in report.made),
        waits=tuple(replace(one, deadline=deadline, since=deadline) for one in report.waits),
    )  # fmt: skip
    deadlock(liar, other)
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b, liar, other)
        stuck = deadlock(a, b)
        for predicate in ("deadlock", "gridlock"):
            verdict = await detector.ask(predicate)
            assert verdict.holds == TRUE
            assert predicate == "gridlock" or list(verdict.core) == stuck.core
            assert await _is_kept(detector, verdict.snapshot.id)


async def _is_kept(detector: Any, number: int) -> bool:
    """Whether the snapshot is listed, once its other verdicts are there, and its document can be read."""
    async with asyncio.timeout(30):
        while number not in await _listed(detector):
            await asyncio.sleep(0.01)
    status, _, _ = await detector.fetch(f"/snapshots/{number}.json")
    return bool(status == 200)


async def _listed(detector: Any) -> list[int]:
    listed = await detector.stub.ListSnapshots(detector_pb2.ListSnapshotsRequest(limit=10), timeout=30)
    return [one.ref.id for one in listed.snapshots]


async def test_a_deadline_in_the_far_future_blocks_no_other_answer(start_detector: Any, process: Any, tmp_path: Path) -> None:
    """A time-out of a trillion seconds, as some write for one without end, made every report one that is refused."""
    a = process("a")
    for far in (1e12, math.inf):
        a.recorder.sent("/s/M", channel=ChannelRecord("x:1"), now=1.0, party=PartyName("a/main"), deadline=far, waiting=True)
    async with start_detector(tmp_path) as detector:
        await detector.join(a)
        verdict = await detector.ask()
        assert (verdict.holds, list(verdict.missing), a.status) == (FALSE, [], None)
