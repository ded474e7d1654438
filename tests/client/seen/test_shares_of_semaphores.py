"""The holders of a semaphore of unknown size: only the parties inside, if that is proved."""

from __future__ import annotations

import pytest

from tests.client.seen.left_behind.test_left import run
from tests.client.seen.shared_programs import NOT_SHARED, SHARED


@pytest.mark.parametrize("program", SHARED)
def test_who_waits_for_a_share_waits_for_those_inside_if_nobody_else_has_one(program: str) -> None:
    found = run(program)
    assert [one.rpartition(":")[2] for one in found["among"]] == ["holder"]
    assert found["look"] == ["True", "", ""]


@pytest.mark.parametrize("program", NOT_SHARED)
def test_a_share_that_somebody_else_may_have_comes_from_anywhere(program: str) -> None:
    assert run(program)["among"] == []
