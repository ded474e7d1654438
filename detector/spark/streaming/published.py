"""A stream's published results: a folder for each micro-batch, on any storage; small files are merged.

Rules:

1. A committed batch's files are published under names that belong to the batch, so publishing is idempotent.
2. Small files of many batches are merged. First the new file is written under a temporary name; then a small file in the
   stream's state records the replacement; then the new file is renamed and the old ones are removed. After an interruption, the
   next start completes this. For a moment readers may see rows twice, but never miss any;
   :func:`detector.spark.streaming.pipeline.verdicts` drops duplicates.
"""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow.parquet as pq
from pyarrow import fs

from detector.archive.files import ArchiveFiles
from detector.spark.streaming.storage import Storage

BATCHES_MIN = 32
"""Files are merged when there are this many small ones."""
BYTES_MAX = 64 * 2**20
"""Files of at least this size are not merged."""
REPLACEMENT = "compacting.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The published ``results``, and the stream's ``state``, which has unpublished results and the record of a replacement."""

    results: Storage
    state: Storage

    def put(self, made: str, table: str, batch: int) -> None:
        """Publish the files in the folder ``made`` of the state as the batch's (rule 1)."""
        folder = f"{table}/batch={batch}"
        source, target = self.state.directory, self.results.directory
        if source is not None and target is not None:
            _put_locally(source / made, target / folder)
            return
        for name in self.state.names(made):
            if name.endswith(".parquet"):
                self.state.copy(f"{made}/{name}", self.results, f"{folder}/{name}")

    def compact(self, table: str) -> int:
        """Merge small files if there are enough (rule 2); return their number."""
        self.finish()
        small = [path for path, size in self._files(table) if size < BYTES_MAX]
        if len(small) < BATCHES_MIN:
            return 0
        into = small[-1].rpartition("/")[0]
        name = f"merged-{uuid4().hex[:8]}.parquet"
        store = ArchiveFiles(self.results.location)
        _merge(store, [f"{store.root}/{path}" for path in small], f"{store.root}/{into}/_{name}")
        replacement = {"aside": f"{into}/_{name}", "path": f"{into}/{name}", "gone": small}
        self.state.write(REPLACEMENT, json.dumps(replacement).encode())
        self.finish()
        return len(small)

    def tidy(self, table: str) -> None:
        """Complete an interrupted merge, and remove unused temporary files."""
        self.finish()
        self.results.remove([path for path in self.results.sizes(table) if path.rpartition("/")[2].startswith("_merged-")])

    def finish(self) -> None:
        """Complete a recorded replacement. Idempotent."""
        if REPLACEMENT not in self.state.names():
            return
        replacement: dict[str, Any] = json.loads(self.state.read(REPLACEMENT).to_pybytes())
        store = ArchiveFiles(self.results.location)
        temporary, path = f"{store.root}/{replacement['aside']}", f"{store.root}/{replacement['path']}"
        if store.filesystem.get_file_info(temporary).type == fs.FileType.File:
            store.filesystem.move(temporary, path)  # an object store copies, then removes; this can be repeated
        self.results.remove(replacement["gone"])
        kept = replacement["path"].rpartition("/")[0]
        for folder in sorted({each.rpartition("/")[0] for each in replacement["gone"]} - {kept}):
            self.results.remove_folder(folder)
        self.state.remove([REPLACEMENT])

    def _files(self, table: str) -> list[tuple[str, int]]:
        """Return the paths and sizes of the published files, by batch."""
        found = self.results.sizes(table).items()
        visible = [(path, size) for path, size in found if path.endswith(".parquet") and path.rpartition("/")[2][0] != "_"]
        return sorted(visible, key=lambda each: (_batch(each[0]), each[0]))


def _put_locally(made: Path, folder: Path) -> None:
    """Publish by one rename; from another disk, copy first. Replaces files that a superseded stream has left there."""
    if not made.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    temporary = folder.with_name(f"_{folder.name}")
    try:
        made.rename(folder)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.copytree(made, temporary)
        temporary.rename(folder)


def _batch(path: str) -> int:
    return int(path.rpartition("/")[0].rpartition("batch=")[2] or 0)


def _merge(store: ArchiveFiles, paths: Sequence[str], into: str) -> None:
    """Merge files into one, a file at a time."""
    with store.filesystem.open_input_file(paths[0]) as source:
        schema = pq.read_schema(source)
    with store.filesystem.open_output_stream(into) as sink, pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for path in paths:
            with store.filesystem.open_input_file(path) as source:
                writer.write_table(pq.ParquetFile(source).read(use_threads=False))
