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
from detector.ops.atomic_file import write_atomically

BATCHES_MIN = 32
"""As many files are put together."""
BYTES_MAX = 64 * 2**20
"""A file of this size is large enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Results at ``location`` (a directory or a URI); ``state``: a directory for what is under way."""

    location: str
    state: Path

    def put(self, made: Path, table: str, batch: int) -> None:
        """Let readers see the files in ``made`` as the batch's (rule 1)."""
        store = ArchiveFiles(self.location)
        folder = f"{store.root}/{table}/batch={batch}"
        if isinstance(store.filesystem, fs.LocalFileSystem):
            _put_locally(made, Path(folder))
            return
        for path in sorted(made.glob("*.parquet")):
            with path.open("rb") as source, store.filesystem.open_output_stream(f"{folder}/{path.name}") as sink:
                shutil.copyfileobj(source, sink)

    def compact(self, table: str) -> int:
        """Put small files together if there are enough (rule 2); how many."""
        self.finish()
        store = ArchiveFiles(self.location)
        small = [entry for entry in self._files(store, table) if entry.size < BYTES_MAX]
        if len(small) < BATCHES_MIN:
            return 0
        into = small[-1].path.rpartition("/")[0]
        name = f"merged-{uuid4().hex[:8]}.parquet"
        _merge(store, [entry.path for entry in small], f"{into}/_{name}")
        told = {"aside": f"{into}/_{name}", "path": f"{into}/{name}", "gone": [entry.path for entry in small]}
        write_atomically(self._under_way, json.dumps(told).encode())
        self.finish()
        return len(small)

    def finish(self) -> None:
        """Do the rest of what was cut short. Idempotent."""
        if not self._under_way.exists():
            return
        told: dict[str, Any] = json.loads(self._under_way.read_text())
        store = ArchiveFiles(self.location)
        if store.filesystem.get_file_info(told["aside"]).type == fs.FileType.File:
            store.filesystem.move(told["aside"], told["path"])
        store.remove(told["gone"])
        for folder in sorted({path.rpartition("/")[0] for path in told["gone"]} - {told["path"].rpartition("/")[0]}):
            if store.filesystem.get_file_info(folder).type == fs.FileType.Directory:
                store.filesystem.delete_dir(folder)
        self._under_way.unlink()

    @property
    def _under_way(self) -> Path:
        return self.state / "compacting.json"

    def _files(self, store: ArchiveFiles, table: str) -> list[Any]:
        """By batch; those in the making are none."""
        selector = fs.FileSelector(f"{store.root}/{table}", allow_not_found=True, recursive=True)
        found = [entry for entry in store.filesystem.get_file_info(selector) if entry.type == fs.FileType.File]
        visible = [entry for entry in found if entry.base_name.endswith(".parquet") and entry.base_name[0] not in "_."]
        return sorted(visible, key=lambda entry: (_batch(entry.path), entry.path))


def _put_locally(made: Path, folder: Path) -> None:
    """By one rename; from another disk it is copied beside first."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    if folder.exists():
        return
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
