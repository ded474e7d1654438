"""docs/archive.md describes the columns as they are: every one, with its type and the fields within it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from detector.analysis.tables import SCHEMAS
from detector.archive.rows.schema import FACTS, LABELS, TABLES

DOCUMENT = (Path(__file__).parents[2] / "docs" / "archive.md").read_text(encoding="utf-8")
WORDS = {pa.string(): "string", pa.int64(): "int64", pa.int32(): "int32", pa.float64(): "double", pa.bool_(): "boolean"}


def _rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line.startswith("| `")]


def _word(kind: pa.DataType) -> str:
    if kind.equals(FACTS):
        return "facts"
    if kind.equals(LABELS):
        return "map"
    return "list" if pa.types.is_list(kind) else "struct" if pa.types.is_struct(kind) else WORDS[kind]


def _fields(kind: pa.DataType) -> Iterator[str]:
    """The names of all fields within, down to facts and maps, which are explained once."""
    if pa.types.is_list(kind):
        yield from _fields(kind.value_type)
    elif pa.types.is_struct(kind):
        for field in kind:
            yield field.name
            yield from _fields(field.type)


@pytest.mark.parametrize("table", sorted(TABLES))
def test_every_column_is_documented(table: str) -> None:
    section = re.split(r"^#+ ", DOCUMENT.partition(f"### {table}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    rows = {cells[0].strip("`"): (cells[1], " ".join(cells[2:])) for cells in _rows(section.replace(" |\n", "\n"))}
    assert list(rows) == TABLES[table].names
    for field in TABLES[table]:
        kind, text = rows[field.name]
        assert kind == _word(field.type), field.name
        if "the same fields" not in text:
            assert not [name for name in _fields(field.type) if f"`{name}`" not in text], field.name


@pytest.mark.parametrize("table", sorted(SCHEMAS))
def test_every_column_of_a_result_is_documented(table: str) -> None:
    section = DOCUMENT.partition("## What an analysis writes\n")[2]
    (text,) = [cells[1] for cells in _rows(section) if cells[0] == f"`{table}`"]
    assert re.findall(r"`(\w+)`", text) == SCHEMAS[table].names
