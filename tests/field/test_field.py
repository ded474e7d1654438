"""Each published deadlock is called with exactly its core, file and line; its near misses, which run beside it, are not."""

from __future__ import annotations

import re
import sys
from collections import Counter
from datetime import datetime
from typing import Any

import pytest

from detector.demo.demos import Demo
from detector.demo.harness import Harness, ManagedProcess
from tests.field.entry import PROGRAMS, Entry, Where, entries
from tests.field.landing import OF_A_LANDING
from tests.field.servers import Servers

pytestmark = pytest.mark.field
Verdict = dict[str, Any]
VERDICTS_MIN = 5
SECONDS_MIN = 2.0
"""Between the first and the last verdict: a wait is looked at closely when it has lasted for half a second."""
_PLACE = re.compile(r"^(.*):(\d+) in ")


def _as_parameter(entry: Entry) -> object:
    marks = [] if entry.program in OF_A_LANDING else [pytest.mark.not_in_ci]
    return pytest.param(entry, marks=marks, id=entry.program)


@pytest.mark.parametrize("entry", [_as_parameter(one) for one in entries()])
def test_field(entry: Entry, harness: Harness, demo: Demo, servers: Servers) -> None:
    for module in entry.modules:
        pytest.importorskip(module)
    for mode in ("stuck", *entry.near):
        environment = servers.environment(entry.servers, f"{entry.program}_{mode}")
        environment["FIELD_MEETING"] = str(harness.folder / f"meeting-{mode}")
        started = [_start(harness, entry, environment, mode, name) for name in entry.processes or ("",)]
        for process in started:
            assert process.line() == "ready\n"
    verdicts: list[Verdict] = []

    def called_and_looked_at_for_long() -> bool:
        verdicts.append(demo.verdict(entry.predicate))
        _check_none_else(entry, verdicts[-1])
        if entry.predicate != "deadlock":
            assert demo.verdict("deadlock")["holds"] is not True
        first, last = (datetime.fromisoformat(verdicts[at]["snapshot"]["begun"]) for at in (0, -1))
        long = len(verdicts) >= VERDICTS_MIN and (last - first).total_seconds() >= SECONDS_MIN
        return long and _is_whole(entry, verdicts[-1])

    try:
        demo.until(f"{entry.predicate} with its whole core", called_and_looked_at_for_long)
    finally:
        if verdicts:
            print(_told(verdicts[-1]))


def _start(harness: Harness, entry: Entry, environment: dict[str, str], mode: str, name: str) -> ManagedProcess:
    key = f"{mode}-{name}" if name else mode
    command = [sys.executable, str(entry.path), mode, *([name] if name else [])]
    environment = {"STILLTRUE_DETECTOR": harness.detector, "PYTHONPATH": str(PROGRAMS), **environment}
    process = ManagedProcess(key, command, environment=environment, log=harness.folder / f"{key}.log")
    harness.processes[key] = process
    return process


def _check_none_else(entry: Entry, verdict: Verdict) -> None:
    """Check that the reported parties are among the expected ones, at the expected lines: no other is ever in the remainder."""
    if verdict["holds"] is not True:
        return
    expected = entry.expected("core") + entry.expected("behind")
    seen = _where(entry, verdict, verdict["remainder"])
    assert not seen - _without_lines(entry, expected), f"nobody else may be called: {_told(verdict)}"


def _is_whole(entry: Entry, verdict: Verdict) -> bool:
    return verdict["holds"] is True and all(
        _where(entry, verdict, verdict[kind]) == _without_lines(entry, entry.expected(kind)) for kind in ("core", "behind")
    )


def _without_lines(entry: Entry, expected: Counter[Where]) -> Counter[Where]:
    if entry.lines:
        return expected
    found: Counter[Where] = Counter()
    for (service, _, _), count in expected.items():
        found[service, "", 0] += count
    return found


def _where(entry: Entry, verdict: Verdict, parties: list[str]) -> Counter[Where]:
    """Where these parties stand in their programs, as the verdict's evidence says."""
    stacks = {one["party"]: one["stack"] for one in verdict["evidence"]}
    return Counter((party.partition("/")[0], *_position(entry, stacks.get(party, []))) for party in parties)


def _position(entry: Entry, stack: list[str]) -> tuple[str, int]:
    if entry.lines:
        for frame in stack:
            place = _PLACE.match(frame)
            if place is not None and place[1] == str(entry.path):
                return entry.path.name, int(place[2])
    return "", 0


def _told(verdict: Verdict) -> str:
    stacks = "\n".join(f"  {one['party']}: {one['stack']}" for one in verdict["evidence"])
    keys = ("predicate", "holds", "core", "behind", "missing", "witness", "explanation")
    return "\n".join([*(f"{key}: {verdict.get(key)}" for key in keys), stacks])
