"""A directory of completed points: one folder per pipeline, one file per point, savepoints under their names."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from detector.checkpoints.protocol.points import CompletedPoint, PointKind
from detector.checkpoints.storage.bodies import read_point, write_point
from stilltrue.model import ProcessName, SnapshotId

_SUFFIX = ".point"
_SAVEPOINT = "savepoint-"


class PointDirectory:
    """Keeps the points of all pipelines below ``root``; give :meth:`of` to the runtime as its stores."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def of(self, pipeline: ProcessName) -> PipelineFolder:
        """The folder of the pipeline whose first vertex is ``pipeline``."""
        return PipelineFolder(self.root / quote(pipeline, safe=""))

    def latest(self) -> tuple[CompletedPoint, ...]:
        """The newest periodic or final point of every pipeline, to restore from.

        A file that is torn, damaged or foreign is refused (SnapshotFileError): a restore never silently uses an older one.
        """
        found = (folder.latest() for folder in self._folders())
        return tuple(point for point in found if point is not None)

    def savepoint(self, name: str) -> tuple[CompletedPoint, ...]:
        """Every pipeline's savepoint of that name (FileNotFoundError if there is none)."""
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
        """Write the point; when this returns it is on the disk."""
        named = point.kind is PointKind.SAVEPOINT
        write_point(self.savepoint_path(point.name) if named else self._path(point.id), point)

    def drop(self, point: SnapshotId) -> None:
        """Delete a point that is no savepoint, if it is there."""
        self._path(point).unlink(missing_ok=True)

    def latest(self) -> CompletedPoint | None:
        """The newest point that is no savepoint; None if there is none."""
        paths = sorted(one for one in self.path.glob(f"*{_SUFFIX}") if not one.name.startswith((_SAVEPOINT, ".")))
        return read_point(paths[-1]) if paths else None

    def savepoint_path(self, name: str) -> Path:
        """The path of the savepoint of that name, whether it exists or not."""
        return self.path / f"{_SAVEPOINT}{quote(name, safe='')}{_SUFFIX}"

    def _path(self, point: SnapshotId) -> Path:
        return self.path / f"{point:012d}{_SUFFIX}"
