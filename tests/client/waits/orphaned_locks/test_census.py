"""The census that a proof needs is complete or fails."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest

from stilltrue.runtime.waits.orphaned_locks import census
from stilltrue.runtime.waits.orphaned_locks.census import root_of, take_census


def generates() -> Iterator[int]:
    yield 1
    yield 2


def test_all_functions_and_all_suspended_generators_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(census, "BLOCKS_MAX", sys.maxsize)
    suspended, new = generates(), generates()
    next(suspended)
    found = take_census()
    assert found is not None
    assert generates in found.functions
    frames = {id(one) for one, _ in found.suspended}
    assert {id(suspended), id(new)} <= frames


def test_a_process_with_too_many_objects_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(census, "BLOCKS_MAX", 0)
    assert take_census() is None


def test_a_process_that_has_frozen_its_objects_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(census, "BLOCKS_MAX", sys.maxsize)
    assert take_census() is not None
    gc.freeze()
    try:
        assert take_census() is None
    finally:
        gc.unfreeze()


def test_an_installed_package_is_known_by_its_folder() -> None:
    def at(path: str) -> str:
        return root_of(compile("", path, "exec"))

    assert at("/app/lib/python3.11/site-packages/shop/stock/rows.py") == "/app/lib/python3.11/site-packages/shop"
    assert at("/app/shop/rows.py") == ""
