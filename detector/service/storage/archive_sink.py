"""Writes every finished snapshot to the analytical archive (Parquet), on a separate thread; fails open.

The snapshot store keeps what the service itself needs; the archive is for later analysis. A full disk, a missing pyarrow or a
slow thread costs only rows, and is logged and counted.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from detector.core.protocol.assembler import Assembled
from detector.ops.logs import Log
from detector.service.detection.incident.incidents import Incident
from detector.service.metrics import Metrics
from detector.service.storage.compactor import Compactor
from stilltrue.model import ProcessId, ProcessName, Verdict

if TYPE_CHECKING:
    from detector.archive.writer import ArchiveWriter

FOLDER = "archive"
SECONDS_PER_FILE = 60.0
QUEUE_MAX = 256
RECOVERY_SECONDS_MIN = 5.0
"""How often rows in the journal are tried again after the disk has failed; meanwhile no rows are accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ArchivedSnapshot:
    assembled: Assembled
    verdicts: tuple[Verdict, ...]
    members: Mapping[ProcessName, ProcessId]


class ArchiveSink:
    """Writes the finished snapshots and changed incidents that the event loop passes to it."""

    def __init__(
        self,
        *,
        directory: Path,
        bytes_max: int,
        metrics: Metrics,
        log: Log,
        compact_seconds_min: float = 0,
        age_seconds_max: float = 0,
    ) -> None:
        """``directory``: the service's data directory; ``bytes_max``: beyond it the oldest files are deleted; 0: no archive.

        ``compact_seconds_min``: how long after the end of a day its files are merged; 0: never. ``age_seconds_max``: older
        days are deleted; 0: no age limit.
        """
        self._age_seconds_max = age_seconds_max
        self._compactor = Compactor(location=str(directory / FOLDER), seconds_min=compact_seconds_min, log=log)
        self._directory = directory
        self._location = str(directory / FOLDER)
        self._bytes_max = bytes_max
        self._metrics = metrics
        self._log = log
        self._failing = False
        self._recovery_at = 0.0
        self._queue: queue.Queue[_ArchivedSnapshot | Incident | None] = queue.Queue(QUEUE_MAX)
        self._thread = threading.Thread(target=self._write_all, name="stilltrue-archive-sink", daemon=True)
        if bytes_max:
            self._thread.start()

    def finished(self, assembled: Assembled, verdicts: tuple[Verdict, ...], members: Mapping[ProcessName, ProcessId]) -> None:
        """Queue a finished snapshot; ``members``: the incarnations of its missing members."""
        self._put(_ArchivedSnapshot(assembled=assembled, verdicts=verdicts, members=members))

    def incident(self, incident: Incident) -> None:
        """Queue a changed incident."""
        self._put(incident)

    def close(self, seconds: float) -> None:
        """Write the queue out, for at most ``seconds``."""
        if self._thread.is_alive():
            try:
                self._queue.put(None, timeout=seconds)
            except queue.Full:
                return
            self._thread.join(seconds)

    def _put(self, work: _ArchivedSnapshot | Incident) -> None:
        if not self._thread.is_alive():
            return
        try:
            self._queue.put_nowait(work)
        except queue.Full:
            self._metrics.storage_dropped()

    def _write_all(self) -> None:
        try:
            from detector.archive.files import ArchiveFiles  # noqa: PLC0415 - pyarrow is an extra
            from detector.archive.journal import Journal  # noqa: PLC0415
            from detector.archive.without_pandas import hide_pandas  # noqa: PLC0415
            from detector.archive.writer import ArchiveWriter, archive_id  # noqa: PLC0415
        except ImportError:
            self._log.info("archive not kept", reason="pyarrow is not installed: pip install 'stilltrue-detector[archive]'")
            return
        hide_pandas()
        store = ArchiveFiles(self._location)
        try:
            archive = archive_id(self._directory)
        except OSError as error:
            self._log.failure(
                "archive without its id", location=self._location, reason=str(error), consequence="the service goes on"
            )
            archive = ""
        writer = ArchiveWriter(store, archive=archive, seconds_max=SECONDS_PER_FILE, journal=Journal(self._directory))
        self._recover(writer)
        changed: list[Incident] = []
        while (work := self._queue.get()) is not None:
            if isinstance(work, Incident):
                changed.append(work)
                continue
            if writer.unrecovered and time.monotonic() >= self._recovery_at:
                self._recover(writer)
            if writer.unrecovered:
                self._metrics.storage_dropped()
                changed = changed[-QUEUE_MAX:]
                continue
            self._add(writer, work, changed)
            changed = []
        if not writer.unrecovered:
            self._add(writer, None, changed)

    def _recover(self, writer: ArchiveWriter) -> None:
        """Write the rows in the journal; if the disk fails, they stay there. Rows that no disk takes are given up."""
        self._recovery_at = time.monotonic() + RECOVERY_SECONDS_MIN
        try:
            snapshots = writer.recover()
        except Exception as error:  # noqa: BLE001 - as below
            writer.unrecovered = isinstance(error, OSError) and error.errno is not None
            self._failed("journal not recovered", error, again=self._failing)
            self._failing = writer.unrecovered
        else:
            if snapshots:
                self._log.info("journal recovered", snapshots=snapshots, location=self._location)

    def _failed(self, event: str, error: Exception, *, again: bool = False) -> None:
        """Count a failure, and log it unless it comes ``again``: disk errors by their reason, others with a traceback."""
        self._metrics.storage_failed()
        if again:
            return
        cause, reason = (None, str(error)) if isinstance(error, OSError) else (error, None)
        self._log.failure(event, cause, location=self._location, reason=reason, consequence="the service goes on")

    def _add(self, writer: ArchiveWriter, work: _ArchivedSnapshot | None, changed: list[Incident]) -> None:
        """Add a snapshot and the incidents that changed before its end; None: flush the writer."""
        try:
            if work is None:
                written = writer.flush()
            else:
                rows = [_row(incident) for incident in changed]
                written = writer.add(work.assembled, work.verdicts, rows, work.members)
            if writer.dropped:
                self._log.warning("rows not archived", rows=writer.dropped, reason="a number is out of its column's range")
                self._metrics.storage_dropped()
                writer.dropped = 0
            if written:
                writer.store.prune(self._bytes_max)
                if self._age_seconds_max:
                    from detector.archive.files import day_of  # noqa: PLC0415 - as above

                    writer.store.prune_before(day_of(time.time() - self._age_seconds_max))
                self._compactor.begin_if_due()
        except Exception as error:  # noqa: BLE001 - a failure here must cost only rows
            self._failed("archive not written", error, again=self._failing)
            self._failing = True
        else:
            if written and self._failing:
                self._failing = False
                self._log.info("archive works again", location=self._location)


def _row(incident: Incident) -> dict[str, object]:
    return {
        "id": incident.id,
        "predicate": incident.predicate,
        "scope": incident.scope,
        "core": list(incident.core),
        "behind": list(incident.behind),
        "opened": incident.opened,
        "seen": incident.seen,
        "closed": incident.closed,
        "formed": incident.formed,
        "first_snapshot": incident.first_snapshot,
        "last_snapshot": incident.last_snapshot,
        "text": incident.text,
        "waits": list(incident.waits),
        "ending": incident.ending,
    }
