"""The quick ones of `make apps`: programs from the package index do the same under `stilltrue run`, and all have joined."""

from __future__ import annotations

import pytest

from tests.apps.run import difference


@pytest.mark.apps
@pytest.mark.parametrize("name", ["fastapi", "pubsub", "flower"])
def test_a_program_behaves_the_same_and_all_its_processes_join(name: str) -> None:
    assert difference(name) == []
