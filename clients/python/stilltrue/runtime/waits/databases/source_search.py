"""Searches a program for mentions of some words: the text of every file that it has imported.

A server does not show another session's settings. So a program that mentions a setting anywhere, even in a comment, may have
set it. The files of the drivers and the standard library are left out: they set nothing by themselves.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from stilltrue.runtime.concurrent_reads import items_of
from stilltrue.runtime.own_packages import is_installed_library, package_of
from stilltrue.runtime.waits.databases.drivers import LIBRARIES

BYTES_MAX = 16 * 2**20
"""Bytes to read in one look; the next look continues."""
FILE_BYTES_MAX = 4 * 2**20
_LEFT_OUT = ("stilltrue", "grpc", "google", *LIBRARIES)
_STDLIB = str(Path(os.__file__).parent) + os.sep


class Mentions:
    """The search so far; each file is read once."""

    def __init__(self, wanted: str, *, own_only: bool = False, unless: Callable[[str, bytes], bool] = lambda *_: False) -> None:
        """``wanted``: a regular expression; case does not matter. ``own_only``: leave out libraries.

        ``unless``: whether to ignore the mentions in a file, given its name and text.
        """
        self._own_only = own_only
        self._unless = unless
        self._wanted = re.compile(wanted.encode(), re.I)
        self._read: set[str] = set()
        self.found = ""
        """The first mention, as text; empty: none so far."""

    def search(self) -> bool:
        """Search on; returns whether the search is complete."""
        left = BYTES_MAX
        for name, module in [] if self.found else items_of(sys.modules):
            file = _file_of(name, module)
            if file is None or file in self._read or (self._own_only and is_installed_library(file)):
                continue
            if left <= 0:
                return False
            self._read.add(file)
            text = _text_of(file)
            left -= len(text)
            named = self._wanted.search(text)
            if named is not None and not self._unless(file, text):
                self.found = f"{file} mentions {named[0].decode()}"
                break
        return True


def _file_of(name: str, module: object) -> str | None:
    """The file of a module that may set something; None for a module that does not."""
    if not issubclass(type(module), ModuleType) or name.partition(".")[0] in _LEFT_OUT:
        return None
    file = ModuleType.__getattribute__(module, "__dict__").get("__file__")
    if not isinstance(file, str) or (file.startswith(_STDLIB) and package_of(file) is None):
        return None
    return file


def _text_of(file: str) -> bytes:
    """The beginning of a file; empty if it cannot be read (in an archive)."""
    try:
        with Path(file).open("rb") as source:
            return source.read(FILE_BYTES_MAX)
    except OSError:
        return b""
