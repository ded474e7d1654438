"""``stilltrue cure`` asks for confirmation before it aborts anything."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.live]


@pytest.mark.parametrize(
    ("answer", "code", "says", "asked"),
    [
        ("n\n", 1, "nothing was aborted\n", 0),
        ("", 1, "nothing was aborted: standard input has no answer; --yes ", 0),
        ("y\n", 0, "", 1),
    ],
)
async def test_a_declined_cure_aborts_nothing(
    played: Any,
    here: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    code: int,
    says: str,
    asked: int,
) -> None:
    a, b = played.FakeProcess("a"), played.FakeProcess("b")
    stuck = played.Deadlock(a, b)
    a.cures = b.cures = stuck.cure
    async with played.detecting(tmp_path, allow_cure=True) as detector:
        await detector.join(a, b)
        while not (found := await detector.incidents()):
            await detector.ask()
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        ended = await here("cure", found[0].id, "--detector", detector.address)
        assert (ended.code, says in ended.err) == (code, True), ended.err
        assert len(a.asked_to_cure) + len(b.asked_to_cure) == asked
