"""What the agent's package promises of the runtimes beneath it, and what would break that promise unnoticed."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

import stilltrue
from stilltrue.launch import GRPCIO_OLDEST

PACKAGE = Path(stilltrue.__file__).parent
GENERATED = sorted((PACKAGE / "v1").glob("*_pb2*.py"))
SINCE_311 = frozenset(
    {
        "assert_never",
        "assert_type",
        "reveal_type",
        "LiteralString",
        "Never",
        "NotRequired",
        "Required",
        "Self",
        "Unpack",
        "StrEnum",
    }
)


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: path.name)
def test_generated_code_asks_no_runtime_for_its_version(path: Path) -> None:
    """Code of a newer protoc refuses an older protobuf, or an older grpcio, when it is imported."""
    text = path.read_text()
    assert "runtime_version" not in text
    assert "GRPC_GENERATED_VERSION" not in text


def test_the_oldest_grpcio_is_the_same_everywhere() -> None:
    project = (PACKAGE.parent / "pyproject.toml").read_text()
    assert f"grpcio>={'.'.join(map(str, GRPCIO_OLDEST))}," in project


def test_nothing_newer_than_the_oldest_python_is_imported_by_name() -> None:
    declared = re.search(r'requires-python = ">=3\.(\d+)"', (PACKAGE.parent / "pyproject.toml").read_text())
    assert declared is not None
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text(), feature_version=(3, int(declared[1])))
        named = {name.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for name in node.names}
        assert not named & SINCE_311, path
    assert sys.version_info >= (3, int(declared[1]))
