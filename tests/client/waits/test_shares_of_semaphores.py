"""The holders of a semaphore of unknown size: only the parties inside, if that is proved."""

from __future__ import annotations

import pytest

from tests.client.waits.orphaned_locks.test_orphaned_programs import run
from tests.client.waits.shared_programs import NOT_SHARED, SHARED


@pytest.mark.parametrize("program", SHARED)
def test_a_wait_for_a_permit_is_a_wait_for_the_parties_inside_if_no_other_has_one(program: str) -> None:
    found = run(program)
    assert [one.rpartition(":")[2] for one in found["among"]] == ["holder"]
    assert found["look"] == ["True", "", ""]


@pytest.mark.parametrize("program", NOT_SHARED)
def test_a_permit_that_another_party_may_have_makes_the_wait_unknown(program: str) -> None:
    assert run(program)["among"] == []
