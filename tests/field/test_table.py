"""The catalogue: docs/field.md is up to date, every program exists and names its core."""

from __future__ import annotations

import pytest

from tests.field.entry import PROGRAMS, Entry, entries, modules
from tests.field.landing import OF_A_LANDING
from tests.field.table import DOCUMENT, KINDS, document


def test_the_page_matches_the_entries() -> None:
    assert DOCUMENT.read_text() == document(), "docs/field.md is stale: run 'python -m tests.field.table'"


def test_every_module_of_the_catalogue_is_of_one_kind() -> None:
    assert sorted(module for of_kind in KINDS.values() for module in of_kind) == modules()


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.program)
def test_an_entry_names_its_source_its_core_and_a_near_miss(entry: Entry) -> None:
    assert entry.expected("core")
    assert entry.near
    assert entry.source


def test_every_program_has_its_entry() -> None:
    programs = {path.stem for path in PROGRAMS.glob("*.py")} - {"commands", "field_program", "files", "served", "terminating"}
    assert programs == {entry.program for entry in entries()}


def test_what_a_landing_runs_is_in_the_catalogue() -> None:
    assert {entry.program for entry in entries()} >= OF_A_LANDING
