"""A snapshot encoded by columns gives the same rows as one encoded row by row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest

from detector.archive.rows.column_encoder import ColumnEncoder
from detector.archive.rows.row_encoder import report_rows, snapshot_row
from detector.archive.rows.schema import REPORTS
from detector.archive.writer import table_of
from detector.core.protocol.assembler import Assembled
from stilltrue.model import CallNumber
from tests.synthetic.random_snapshots import RandomSnapshot, WorldShape, random_snapshots

SHAPES = [
    WorldShape(),
    WorldShape(lasting_share=0.8),
    WorldShape(missing_share=0.0, lasting_share=0.5),
    WorldShape(missing_share=0.9),
]


def mixed(made: list[RandomSnapshot], random: Random) -> Iterator[RandomSnapshot]:
    """Each snapshot, and then with some of its reports in the words of others: few change at a time."""
    for one in made:
        yield one
        reports = dict(one.assembled.reports)
        for _ in range(4):
            for name in random.sample(sorted(reports), k=min(1, len(reports))):
                other = random.choice(made).assembled.reports.get(name)
                reports[name] = reports[name] if other is None else replace(other, snapshot=reports[name].snapshot)
            yield RandomSnapshot(assembled=replace(one.assembled, reports=dict(reports)), members=one.members)


@pytest.mark.parametrize("shape", SHAPES, ids=range(len(SHAPES)))
@pytest.mark.parametrize("archive", ["", "0123456789ab"])
def test_each_row_is_the_row_encoded_by_itself(shape: WorldShape, archive: str) -> None:
    encoder = ColumnEncoder(archive)
    for made in mixed(list(random_snapshots(3, 30, shape=shape)), Random(1)):
        rows = list(report_rows(made.assembled))
        reports = encoder.reports(made.assembled)
        reports.validate(full=True)
        assert reports.to_pylist() == table_of("reports", rows, archive).to_pylist()
        snapshot = encoder.snapshot(made.assembled, made.members)
        snapshot.validate(full=True)
        assert snapshot.to_pylist() == table_of("snapshots", [snapshot_row(made.assembled, made.members)], archive).to_pylist()


def test_unchanged_parts_share_their_memory() -> None:
    encoder = ColumnEncoder()
    (made,) = random_snapshots(3, 1, shape=WorldShape(missing_share=0.0))
    later = replace(made.assembled.snapshot, ref=replace(made.assembled.snapshot.ref, begun=9.0))
    first, second = encoder.reports(made.assembled), encoder.reports(replace(made.assembled, snapshot=later))
    assert second.column("begun").to_pylist() == [9.0] * first.num_rows
    for name in ("made", "waits", "resolved"):
        assert [b and b.address for b in second.column(name).chunk(0).buffers()] == [
            b and b.address for b in first.column(name).chunk(0).buffers()
        ]


def test_a_number_too_large_for_a_column_raises_and_affects_nothing_later() -> None:
    encoder = ColumnEncoder()
    (made,) = random_snapshots(3, 1, shape=WorldShape(missing_share=0.0))
    good = made.assembled
    name = min(good.reports)
    bad: Assembled = replace(good, reports={**good.reports, name: replace(good.reports[name], next_number=CallNumber(2**64))})
    with pytest.raises((pa.ArrowException, OverflowError)):
        encoder.reports(bad)
    assert encoder.reports(good).to_pylist() == table_of("reports", report_rows(good)).to_pylist()
    assert encoder.reports(good).schema == REPORTS
