"""A directory of completed points: one folder per pipeline, one file per point; savepoints have their own names."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from detector.checkpoints.protocol.points import CompletedPoint, PointKind
from detector.checkpoints.storage.snapshot_codec import read_point, write_point
from stilltrue.model import ProcessName, SnapshotId

_SUFFIX = ".point"
_SAVEPOINT = "savepoint-"


class PointDirectory:
    """Stores the points of all pipelines below ``root``; pass :meth:`of` to the runtime as ``stores``."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def of(self, pipeline: ProcessName) -> PipelineFolder:
        """Return the folder of the pipeline whose first vertex is ``pipeline``."""
        return PipelineFolder(self.root / quote(pipeline, safe=""))

    def latest(self) -> tuple[CompletedPoint, ...]:
        """Return the newest periodic or final point of every pipeline, to restore from.

        Raises SnapshotFileError for a truncated, damaged or foreign file, so a restore never silently uses an older point.
        """
        found = (folder.latest() for folder in self._folders())
        return tuple(point for point in found if point is not None)

    def savepoint(self, name: str) -> tuple[CompletedPoint, ...]:
        """Return every pipeline's savepoint of that name (FileNotFoundError if there is none)."""
        paths = [path for folder in self._folders() if (path := folder.savepoint_path(name)).is_file()]
        if not paths:
            raise FileNotFoundError(f"{self.root}: there is no savepoint {name}")
        return tuple(read_point(path) for path in paths)

    def _folders(self) -> list[PipelineFolder]:
        if not self.root.is_dir():
            return []
        return [PipelineFolder(path) for path in sorted(self.root.iterdir()) if path.is_dir()]


class PipelineFolder:
    """The points of one pipeline (a PointStore)."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def save(self, point: CompletedPoint) -> None:
        """Write the point; it is on the disk when this returns."""
        named = point.kind is PointKind.SAVEPOINT
        write_point(self.savepoint_path(point.name) if named else self._path(point.id), point)

    def drop(self, point: SnapshotId) -> None:
        """Delete a periodic or final point if it exists."""
        self._path(point).unlink(missing_ok=True)

    def latest(self) -> CompletedPoint | None:
        """Return the newest periodic or final point; None if there is none."""
        paths = sorted(one for one in self.path.glob(f"*{_SUFFIX}") if not one.name.startswith((_SAVEPOINT, ".")))
        return read_point(paths[-1]) if paths else None

    def savepoint_path(self, name: str) -> Path:
        """Return the path of a savepoint, which need not exist."""
        return self.path / f"{_SAVEPOINT}{quote(name, safe='')}{_SUFFIX}"

    def _path(self, point: SnapshotId) -> Path:
        return self.path / f"{point:012d}{_SUFFIX}"
