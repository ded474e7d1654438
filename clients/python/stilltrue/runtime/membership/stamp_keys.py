"""The fleet's stamp keys, from a setting or from a file that is reread when it changes."""

from __future__ import annotations

import os
from pathlib import Path

from stilltrue.protocol.stamp_tag import StampKeyError, StampTags
from stilltrue.runtime.log_queue import LOG
from stilltrue.runtime.membership.secret_file import writable_by_all

FILE_CHARACTERS_MAX = 64 * 1024
Signature = tuple[int, int, int, int]


class StampKeys:
    """``tags`` signs and verifies with the newest keys; None: stamps have no tags, and all are accepted."""

    def __init__(self, *, text: str = "", file: str = "") -> None:
        """``text``: keys separated by commas or blanks; ``file``: one key per line. Raises :class:`StampKeyError`."""
        self._file = file
        self._signature: Signature | None = None
        self._refused = ""
        self.tags: StampTags | None = None
        if text and file:
            raise StampKeyError("stamp_key and stamp_key_file: set only one of them")
        if text:
            self.tags = StampTags(text.replace(",", " ").split())
        elif file:
            self._read()

    def reload(self) -> None:
        """Reread the file if it has changed. If it is unusable, keep the previous keys and log a warning."""
        if not self._file:
            return
        try:
            self._read()
            self._refused = ""
        except StampKeyError as refusal:
            if str(refusal) != self._refused:
                self._refused = str(refusal)
                LOG.warning("stamp keys not reloaded, keeping the previous ones: %s", refusal)

    def _read(self) -> None:
        try:
            found = os.stat(self._file)  # noqa: PTH116 - a single call, as it runs each second
            signature = (found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode)
            if signature != self._signature:
                self.tags = _tags_in(self._file)
                self._signature = signature
        except OSError as error:
            raise StampKeyError(f"{self._file}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise StampKeyError(f"{self._file}: not text") from None
        except StampKeyError as refusal:
            raise StampKeyError(f"{self._file}: {refusal}") from None


def _tags_in(file: str) -> StampTags:
    if writable_by_all(file):
        raise StampKeyError("writable by all users (chmod o-w)")
    with Path(file).open(encoding="utf-8") as opened:
        text = opened.read(FILE_CHARACTERS_MAX)
    lines = [line.strip() for line in text.splitlines()]
    return StampTags([line for line in lines if line and not line.startswith("#")])
