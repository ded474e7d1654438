"""The rules of dataflow snapshots are pure: no loop, clock, randomness, log, disk or network; only the shells use those."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import detector.checkpoints as package

FOLDER = Path(package.__file__).parent
PURE = sorted(
    path
    for path in (*(FOLDER / "graph").glob("*.py"), *(FOLDER / "protocol").glob("*.py"), FOLDER / "runtime" / "operators.py")
)
ALLOWED = {"__future__", "collections", "collections.abc", "dataclasses", "enum", "typing", "zlib"}
OURS = ("detector.checkpoints.graph", "detector.checkpoints.protocol")


@pytest.mark.parametrize("path", PURE, ids=lambda path: path.stem)
def test_pure_modules_import_only_values_and_rules(path: Path) -> None:
    tree = ast.parse(path.read_text())
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    others = {one for one in imported if one not in ALLOWED and not one.startswith(OURS)}
    assert others <= {"stilltrue.model", "stilltrue.fifo", "stilltrue.fifo.model"}, path.stem
