"""A detector keeps the lock on its directory, and no standby gets it, even if files are deleted while it runs."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from detector.service.storage import snapshot_store as snapshot_store_module
from detector.service.storage.sqlite import lock_directory, wait_until_free
from tests.service.storage.test_snapshot_store import FILE, Lines, snapshot_store, taken, until


def delete_file(folder: Path) -> None:
    (folder / FILE).unlink()


@pytest.mark.parametrize("delete", [delete_file, shutil.rmtree])
def test_no_standby_gets_the_lock_while_the_store_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delete: Any
) -> None:
    def slowly(directory: Path) -> int:
        time.sleep(0.3)  # a standby has time to be faster
        return lock_directory(directory)

    log, folder, free = Lines(), tmp_path / "data", threading.Event()
    one = snapshot_store(folder, log)
    monkeypatch.setattr(snapshot_store_module, "lock_directory", slowly)

    def wait() -> None:
        wait_until_free(folder)
        free.set()

    standby = threading.Thread(target=wait, daemon=True)
    standby.start()
    time.sleep(0.1)  # the standby waits for the lock
    delete(folder)
    one.finished(*taken(1), pinned=False)
    until(lambda: log.said("store vanished") == 1 and (folder / FILE).exists() and not one._lost)
    assert not free.is_set()
    one.close(5)
    standby.join(10)
    assert free.is_set()
