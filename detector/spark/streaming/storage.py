"""A stream's files in a directory or at a URI; all writes are atomic, and renames are used only on disks."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
from pyarrow import fs

from detector.archive.files import ArchiveFiles
from detector.ops.files.atomic_file import write_atomically


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """The files below ``folder`` of ``location``, a directory or a URI. It can be sent to workers.

    Object stores show only complete objects; on a disk, files are written under a temporary name and renamed.
    """

    location: str
    folder: str = ""

    @property
    def directory(self) -> Path | None:
        """The directory, if it is on a disk."""
        store = self._store()
        return Path(self._place(store, "")) if isinstance(store.filesystem, fs.LocalFileSystem) else None

    def names(self, folder: str = "") -> list[str]:
        """List the names of the files in a folder, sorted, without temporary ones."""
        return sorted(entry.base_name for entry in self._entries(folder) if entry.type == fs.FileType.File)

    def folders(self) -> list[str]:
        """List the names of the folders in this one, sorted."""
        return sorted(entry.base_name for entry in self._entries("") if entry.type == fs.FileType.Directory)

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the size of each file below a folder, without temporary ones, by its path relative to this storage."""
        store = self._store()
        root = self._place(store, "")
        entries = [entry for entry in self._entries(folder, recursive=True) if entry.type == fs.FileType.File]
        return {str(PurePosixPath(entry.path).relative_to(root)): int(entry.size) for entry in entries}

    def read(self, name: str) -> pa.Buffer:
        """Read a file. Raises FileNotFoundError."""
        store = self._store()
        with store.filesystem.open_input_file(self._place(store, name)) as source:
            return source.read_buffer()

    def write(self, name: str, content: bytes | pa.Buffer) -> None:
        """Write or replace a file, atomically."""
        store = self._store()
        path = self._place(store, name)
        if isinstance(store.filesystem, fs.LocalFileSystem):
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(Path(path), memoryview(content))
            return
        store.filesystem.create_dir(path.rpartition("/")[0], recursive=True)
        with store.filesystem.open_output_stream(path) as sink:
            sink.write(content)

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, ignoring those that do not exist."""
        store = self._store()
        store.remove(self._place(store, name) for name in names)

    def remove_folder(self, folder: str) -> None:
        """Remove a folder with its content; idempotent."""
        store = self._store()
        path = self._place(store, folder)
        if isinstance(store.filesystem, fs.LocalFileSystem):
            shutil.rmtree(path, ignore_errors=True)
        elif store.filesystem.get_file_info(path).type == fs.FileType.Directory:
            store.filesystem.delete_dir(path)

    def copy(self, name: str, target: Storage, into: str) -> None:
        """Copy a file to ``into`` in another storage, atomically."""
        target.write(into, self.read(name))

    def _entries(self, folder: str, *, recursive: bool = False) -> list[Any]:
        store = self._store()
        selector = fs.FileSelector(self._place(store, folder), allow_not_found=True, recursive=recursive)
        return [entry for entry in store.filesystem.get_file_info(selector) if entry.base_name[0] != "."]

    def _store(self) -> ArchiveFiles:
        return ArchiveFiles(self.location)

    def _place(self, store: ArchiveFiles, name: str) -> str:
        return "/".join(part for part in (store.root, self.folder, name) if part)
