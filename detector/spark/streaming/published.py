"""The results of a stream where readers find them: a folder for each micro-batch, on any storage; many small ones become one.

Rules:

1. What a committed batch made is put there under names that are the batch's own: doing it twice changes nothing.
2. Small files of many batches are put together. The new file is made aside; a small file beside the stream's state then says
   what becomes of what; then the new file gets its name and the old ones go. Cut short, the next start does the rest. For a
   moment a reader may find rows twice, never none; :func:`detector.spark.streaming.pipeline.verdicts` counts them once.
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
"""As many files are put together."""
BYTES_MAX = 64 * 2**20
"""A file of this size is large enough."""
UNDER_WAY = "compacting.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """``results``: where readers look; ``state``: of the stream, where results are made and it is said what is under way."""

    results: Storage
    state: Storage

    def put(self, made: str, table: str, batch: int) -> None:
        """Let readers see the files in the folder ``made`` of the state as the batch's (rule 1)."""
        folder = f"{table}/batch={batch}"
        source, target = self.state.directory, self.results.directory
        if source is not None and target is not None:
            _put_locally(source / made, target / folder)
            return
        for name in self.state.names(made):
            if name.endswith(".parquet"):
                self.state.copied(f"{made}/{name}", self.results, f"{folder}/{name}")

    def compact(self, table: str) -> int:
        """Put small files together if there are enough (rule 2); how many."""
        self.finish()
        small = [path for path, size in self._files(table) if size < BYTES_MAX]
        if len(small) < BATCHES_MIN:
            return 0
        into = small[-1].rpartition("/")[0]
        name = f"merged-{uuid4().hex[:8]}.parquet"
        store = ArchiveFiles(self.results.location)
        _merge(store, [f"{store.root}/{path}" for path in small], f"{store.root}/{into}/_{name}")
        told = {"aside": f"{into}/_{name}", "path": f"{into}/{name}", "gone": small}
        self.state.write(UNDER_WAY, json.dumps(told).encode())
        self.finish()
        return len(small)

    def tidy(self, table: str) -> None:
        """Finish what was cut short, and remove what was made aside and is of no use."""
        self.finish()
        self.results.remove([path for path in self.results.sizes(table) if path.rpartition("/")[2].startswith("_merged-")])

    def finish(self) -> None:
        """Do the rest of what was cut short. Idempotent."""
        if UNDER_WAY not in self.state.names():
            return
        told: dict[str, Any] = json.loads(self.state.read(UNDER_WAY).to_pybytes())
        store = ArchiveFiles(self.results.location)
        aside, path = f"{store.root}/{told['aside']}", f"{store.root}/{told['path']}"
        if store.filesystem.get_file_info(aside).type == fs.FileType.File:
            store.filesystem.move(aside, path)  # a store copies, then removes: cut short between, it is done again
        self.results.remove(told["gone"])
        kept = told["path"].rpartition("/")[0]
        for folder in sorted({each.rpartition("/")[0] for each in told["gone"]} - {kept}):
            self.results.remove_folder(folder)
        self.state.remove([UNDER_WAY])

    def _files(self, table: str) -> list[tuple[str, int]]:
        """Their paths and sizes, by batch; those in the making are none."""
        found = self.results.sizes(table).items()
        visible = [(path, size) for path, size in found if path.endswith(".parquet") and path.rpartition("/")[2][0] != "_"]
        return sorted(visible, key=lambda each: (_batch(each[0]), each[0]))


def _put_locally(made: Path, folder: Path) -> None:
    """By one rename; from another disk it is copied beside first. What a stream that was overtaken left there is replaced."""
    if not made.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    aside = folder.with_name(f"_{folder.name}")
    try:
        made.rename(folder)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.rmtree(aside, ignore_errors=True)
        shutil.copytree(made, aside)
        aside.rename(folder)


def _batch(path: str) -> int:
    return int(path.rpartition("/")[0].rpartition("batch=")[2] or 0)


def _merge(store: ArchiveFiles, paths: Sequence[str], into: str) -> None:
    """One file of the rows of several, a file at a time."""
    with store.filesystem.open_input_file(paths[0]) as source:
        schema = pq.read_schema(source)
    with store.filesystem.open_output_stream(into) as sink, pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for path in paths:
            with store.filesystem.open_input_file(path) as source:
                writer.write_table(pq.ParquetFile(source).read(use_threads=False))
