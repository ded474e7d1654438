"""Makes the golden archive of today's schema version: `python tests/archive/data/make_golden.py`; run once per version."""

from __future__ import annotations

import json
from pathlib import Path

from detector.archive.files import ArchiveFiles
from detector.archive.rows.row_encoder import verdict_row
from detector.archive.rows.schema import SCHEMA_VERSION
from detector.archive.writer import ArchiveWriter
from detector.core.registry import ask, find_predicate, predicate_names
from tests.synthetic.random_snapshots import random_snapshots


def main() -> None:
    """Twelve random snapshots with the verdicts of every predicate, and the verdicts as JSON to compare with."""
    folder = Path(__file__).parent / f"v{SCHEMA_VERSION}"
    writer = ArchiveWriter(ArchiveFiles(str(folder)), archive="golden", seconds_max=1e9)
    predicates = [find_predicate(name) for name in predicate_names()]
    wanted = []
    for made in random_snapshots(11, 12):
        verdicts = [ask(predicate, made.assembled.snapshot) for predicate in predicates]
        wanted += [verdict_row(verdict) for verdict in verdicts if verdict.predicate == "deadlock"]
        writer.add(made.assembled, verdicts, members=made.members)
    writer.flush()
    (folder / "deadlock.json").write_text(json.dumps(wanted, indent=1) + "\n")


if __name__ == "__main__":
    main()
