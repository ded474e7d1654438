"""Row groups hold whole snapshots, older ones are combined until they do, and readers get only what they select."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from detector.analysis.counters import TALLIED
from detector.archive.files import ArchiveFiles
from detector.archive.row_groups import SNAPSHOT_MAX, Span, spans_of, whole_groups
from tests.synthetic.random_snapshots import judged, random_snapshots


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 2.0])
def test_a_row_group_ends_where_a_snapshot_ends(share: float) -> None:
    numbers = [number for number in range(1, 40) for _ in range(number % 7 + 1)]
    data = pa.table({"snapshot": numbers})
    groups = whole_groups(data, int(data.nbytes * share))
    assert [at for at, _ in groups[1:]] == [at + size for at, size in groups[:-1]]
    assert sum(size for _, size in groups) == len(numbers)
    assert all(numbers[at] != numbers[at - 1] for at, _ in groups[1:])
    assert len(groups) == 1 if share > 1 else len(groups) > 1


@pytest.mark.parametrize(("rows", "wanted"), [(2, ((0, 1), (2,))), (3, ((0,), (1,))), (1, ((0, 1, 2), (3,), (4,)))])
def test_row_groups_that_share_a_snapshot_are_combined(tmp_path: Path, rows: int, wanted: tuple[tuple[int, ...], ...]) -> None:
    pq.write_table(pa.table({"snapshot": [1, 1, 1, 2, 3]}), tmp_path / "x.parquet", row_group_size=rows)
    assert tuple(span.groups for span in spans_of(pq.read_metadata(tmp_path / "x.parquet"))) == wanted


def test_without_statistics_a_file_is_one_span(tmp_path: Path) -> None:
    pq.write_table(pa.table({"snapshot": [1, 2, 3]}), tmp_path / "x.parquet", row_group_size=1, write_statistics=False)
    assert spans_of(pq.read_metadata(tmp_path / "x.parquet")) == (Span((0, 1, 2), 0, SNAPSHOT_MAX, 3),)


def test_only_the_selected_fields_and_columns_are_read(tmp_path: Path) -> None:
    reports = judged(random_snapshots(1, 20), []).reports
    store = ArchiveFiles(str(tmp_path))
    store.write("reports", "2026-09-21", reports)
    (file,) = store.scan("reports").files
    (span,) = file.spans
    found = store.read_parts(file, TALLIED, span.groups)
    assert found.schema == TALLIED
    rows, wanted = found.to_pylist(), reports.to_pylist()
    for row, whole in zip(rows, wanted, strict=True):
        assert row["process"] == whole["process"]
        assert [made["party"] for made in row["made"]] == [made["party"] for made in whole["made"]]
        assert [made["servers"] for made in row["made"]] == [made["servers"] for made in whole["made"]]
        assert [seen["caller"] for seen in row["seen"]] == [seen["caller"] for seen in whole["seen"]]
