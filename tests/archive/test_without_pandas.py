"""An archiving detector loads no pandas; a program that imports it earlier or later can still use it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from detector.archive import without_pandas

PROGRAM = """
import sys
import pyarrow as pa
import pyarrow.parquet as pq
from detector.archive.without_pandas import hide_pandas
hide_pandas()
pq.write_table(pa.table({"a": pa.array([[1]])}), sys.argv[1])
assert pq.read_table(sys.argv[1]).to_pylist() == [{"a": [1]}]
assert "pandas" not in sys.modules
import pandas
assert pandas.DataFrame([1]).size == 1
"""


def test_pyarrow_imports_no_pandas_and_other_code_still_can(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "a.parquet")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_pyarrow_uses_pandas_if_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", ModuleType("pandas"))
    monkeypatch.setattr(without_pandas, "pa", None)  # not asked for anything
    without_pandas.hide_pandas()
