"""The example notebook runs from start to end, and shows the planted deadlocks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from detector.archive.files import ArchiveFiles
from detector.synthetic.generate import ArchivePlan, generate

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "examples" / "archive.ipynb"
PLAN = ArchivePlan(processes=10, snapshots=60, begun=1_790_021_600.0, incidents=1, near_misses=0, load=0.1, seed=4)


@pytest.mark.longer
@pytest.mark.slow
def test_the_example_notebook_runs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generate(ArchiveFiles(str(tmp_path)), PLAN, progress=lambda _: None)
    monkeypatch.setenv("ARCHIVE", str(tmp_path))
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    assert not [cell for cell in cells if cell["outputs"] or cell["execution_count"]], "committed without what it printed"
    names: dict[str, Any] = {}
    for cell in cells:
        exec(compile("".join(cell["source"]), str(NOTEBOOK), "exec"), names)
    assert names["differing"].count() == 0
    (incident,) = names["found"].collect()
    (planted,) = json.loads((tmp_path / "truth.json").read_text())["planted"]
    assert [incident.first_snapshot, list(incident.processes)] == [planted["first_snapshot"], planted["processes"]]
