"""What a process runs that is written as text: a script, its code, and the files that these name or import.

Rules:

1. An interpreter runs the code that an option gives, the module that one names (``python -m``), or else the file that its first
   argument without a dash names. Files are found where the process runs.
2. The text of a shell names the files beside it, or where the process runs. Text in Python imports modules from there, or from
   where this process does. Those of Python itself and of libraries are left out.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from stilltrue.runtime.own_packages import is_installed_library

FILES_MAX, TEXT_MAX = 50, 64 * 1024
_CODE, _MODULE, _WITH_VALUE = re.compile(rb"-[A-Za-z]*c|-[a-z]*e"), re.compile(rb"-[A-Za-z]*m"), (b"-W", b"-X")
_IMPORTS = re.compile(rb"(?:^|[;:])[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+\(?([^;\n#]*)|import[ \t]+([^;\n#]+))", re.M)
_NAMES = re.compile(rb"[\w.+-]+")
_STDLIB = str(Path(os.__file__).parent) + os.sep
_PROC = Path("/proc")


def texts_run_by(pid: int, arguments: Sequence[bytes], *, python: bool) -> Iterator[bytes]:
    """The texts that an interpreter runs, ``python`` or another one, with these arguments (rules 1 and 2)."""
    here = _PROC / str(pid) / "cwd"
    begun = _begun_with(arguments, here, python=python)
    texts, todo = ([begun], []) if isinstance(begun, bytes) else ([], begun)
    root, read = (todo[0].parent if todo else here), set[Path]()
    while texts or (todo and len(read) < FILES_MAX):
        path = None if texts else todo.pop()
        if path is not None and path in read:
            continue
        read |= set() if path is None else {path}
        text = texts.pop() if path is None else read_text(path)
        yield text
        beside = (root if path is None else path.parent, root, here)
        todo += _imported_by(text, (*beside, *map(Path, sys.path))) if python else _named_in(text, beside)


def has_code(arguments: Sequence[bytes]) -> bool:
    """Whether an interpreter with these arguments does not read its commands from its input."""
    return any(not one.startswith(b"-") or _CODE.fullmatch(one) or _MODULE.fullmatch(one) for one in arguments)


def read_text(path: Path) -> bytes:
    """The beginning of a file; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(TEXT_MAX)
    except OSError:  # it has ended, or belongs to another user
        return b""


def _begun_with(arguments: Sequence[bytes], here: Path, *, python: bool) -> bytes | list[Path]:
    """Rule 1: the code, or the file."""
    every = iter(arguments)
    for one in every:
        if _CODE.fullmatch(one):
            return next(every, b"")
        if python and _MODULE.fullmatch(one):
            return _files_of_module(next(every, b""), (here, *map(Path, sys.path)))
        if python and one in _WITH_VALUE:
            next(every, b"")
        elif not one.startswith(b"-"):
            return _existing([here / os.fsdecode(one)])
    return b""


def _imported_by(text: bytes, roots: Sequence[Path]) -> Iterator[Path]:
    for start, names, modules in _IMPORTS.findall(text):
        found = [one.split()[0] for one in (modules or names).replace(b")", b"").split(b",") if one.split()]
        every = [b"%s.%s" % (start, one) for one in found] + [start] if start else found
        for name in every:
            if name.partition(b".")[0].decode(errors="replace") not in sys.stdlib_module_names:
                yield from _files_of_module(name.lstrip(b"."), roots)


def _files_of_module(name: bytes, roots: Iterable[Path]) -> list[Path]:
    """The files of a module in the first of these folders that has them, if it is none of Python's or of a library."""
    parts = Path(*os.fsdecode(name).split("."))
    for root in roots if name else ():
        found = _existing([root / parts.with_suffix(".py"), *(root / parts / f"__{one}__.py" for one in ("init", "main"))])
        if found:
            return [one for one in found if not _is_of_others(str(one))]
    return []


def _is_of_others(file: str) -> bool:
    return is_installed_library(file) or (file.startswith(_STDLIB) and "site-packages" not in file)


def _named_in(text: bytes, folders: Iterable[Path]) -> Iterator[Path]:
    """The files in these folders whose names a text mentions."""
    names = {os.fsdecode(one) for one in _NAMES.findall(text)}
    for folder in dict.fromkeys(folders):
        with contextlib.suppress(OSError):  # it is not shown
            yield from _existing([folder / one for one in names.intersection(os.listdir(folder))])  # noqa: PTH208 - names are enough


def _existing(paths: Iterable[Path]) -> list[Path]:
    found = []
    for one in paths:
        with contextlib.suppress(OSError):  # its name is too long for a file's
            found += [one] if one.is_file() else []
    return found
