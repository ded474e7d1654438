"""Searches a program for mentions of some settings: in its environment, and in the text of every file that it has imported.

A server does not show another session's settings. So a program that mentions a setting anywhere, even in a comment, may have
set it. The files of the drivers and the standard library are left out: they set nothing by themselves.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from types import ModuleType

from stilltrue.runtime.concurrent_reads import items_of
from stilltrue.runtime.seen.databases.drivers import LIBRARIES

BYTES_MAX = 16 * 2**20
"""Bytes to read in one look; the next look continues."""
FILE_BYTES_MAX = 4 * 2**20
_LEFT_OUT = ("stilltrue", "grpc", "google", *LIBRARIES)
_STDLIB = str(Path(os.__file__).parent)
_INSTALLED = ("site-packages", "dist-packages")


class Mentions:
    """The search so far; each file is read once."""

    def __init__(self, names: tuple[str, ...]) -> None:
        """``names``: of the settings."""
        self._wanted = re.compile(rf"{'|'.join(names)}|\bset\s+(?:local\s+|session\s+)?\S*_timeout\b".encode(), re.I)
        self._read: set[str] = set()
        self._found = ""

    def doubt(self) -> str:
        """Where a setting is mentioned, as text; empty if nowhere."""
        options = os.environ.get("PGOPTIONS", "")
        if self._wanted.search(options.encode()):
            return f"PGOPTIONS is {options!r}"
        left = BYTES_MAX
        for name, module in [] if self._found else items_of(sys.modules):
            file = _file_of(name, module)
            if file is None or file in self._read:
                continue
            if left <= 0:
                return "not all files of the program have been searched for session settings yet"
            self._read.add(file)
            text = _text_of(file)
            left -= len(text)
            named = self._wanted.search(text)
            if named is not None:
                self._found = f"{file} mentions {named[0].decode()}, so the session may have such a timeout"
                break
        return self._found


def _file_of(name: str, module: object) -> str | None:
    """The file of a module that may set something; None for a module that does not."""
    if not issubclass(type(module), ModuleType) or name.partition(".")[0] in _LEFT_OUT:
        return None
    file = ModuleType.__getattribute__(module, "__dict__").get("__file__")
    if not isinstance(file, str) or (file.startswith(_STDLIB) and not any(folder in file for folder in _INSTALLED)):
        return None
    return file


def _text_of(file: str) -> bytes:
    """The beginning of a file; empty if it cannot be read (in an archive)."""
    try:
        with Path(file).open("rb") as source:
            return source.read(FILE_BYTES_MAX)
    except OSError:
        return b""
