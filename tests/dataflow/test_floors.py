"""The rules of dataflow snapshots are pure: no loop, clock, dice, log, disk or network; only the shells import those."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import detector.dataflow as package

FOLDER = Path(package.__file__).parent
PURE = ("graph", "depth_first", "barriers", "plan", "region", "points", "coordinator", "keyed", "job", "router", "operators")
ALLOWED = {"__future__", "collections", "collections.abc", "dataclasses", "enum", "typing", "zlib"}


@pytest.mark.parametrize("name", PURE)
def test_it_imports_values_and_rules_only(name: str) -> None:
    tree = ast.parse((FOLDER / f"{name}.py").read_text())
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    ours = {f"detector.dataflow.{one}" for one in PURE}
    others = {one for one in imported if one not in ALLOWED | ours}
    assert others <= {"stilltrue.model", "stilltrue.channels", "stilltrue.channels.nouns"}, name
