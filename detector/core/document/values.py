"""Reads and checks the values of a snapshot document; the wording of all such errors is here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from detector.core.times import read_time
from stilltrue.model import PartyName, ProcessName

Path = tuple[str | int, ...]


class DocumentError(ValueError):
    """An invalid document. The one-line text says what is wrong, at which key, and (if known) in which file and line."""

    def __init__(self, text: str, *, path: Path = (), file: str = "", line: int | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.path = path
        self.file = file
        self.line = line

    def __str__(self) -> str:
        place = [part for part in (self.file, str(self.line) if self.line is not None else "", key_of(self.path)) if part]
        return " ".join(": ".join([*place, self.text]).split())

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self.text, self.path, self.file, self.line)  # keeps the place when pickled

    def at(self, *, file: str, line: int) -> DocumentError:
        """A copy of this error with its place in a file."""
        return DocumentError(self.text, path=self.path, file=file, line=line)


def _unpickled(text: str, path: Path, file: str, line: int | None) -> DocumentError:
    return DocumentError(text, path=path, file=file, line=line)


def key_of(path: Path) -> str:
    """Format ``("waits", 3, "needs")`` as ``waits[3].needs``."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def refuse(expected: str, value: object, path: Path) -> NoReturn:
    """Raise an error that the value at ``path`` must be ``expected``."""
    shown = "nothing" if value is None else json.dumps(value)
    raise DocumentError(f"must be {expected}, not {shown if len(shown) <= 60 else shown[:57] + '...'}", path=path)


def object_of(value: object, path: Path) -> Mapping[str, Any]:
    """The object at ``path``."""
    if not isinstance(value, dict):
        refuse("an object", value, path)
    return value


def list_of(value: Mapping[str, Any], key: str, path: Path) -> list[Any]:
    """The list under ``key`` of the object at ``path``; empty when absent."""
    return listed(value.get(key, []), (*path, key))


def listed(values: object, path: Path) -> list[Any]:
    """The list at ``path``."""
    if not isinstance(values, list):
        refuse("a list", values, path)
    return values


def text_of(value: Mapping[str, Any], key: str, path: Path) -> str:
    """The string under ``key`` of the object at ``path``; empty when absent."""
    text = value.get(key, "")
    if not isinstance(text, str):
        refuse("a string", text, (*path, key))
    return text


def integer(value: object, path: Path) -> int:
    """The integer at ``path``."""
    if type(value) is not int:
        refuse("an integer", value, path)
    return value


def time_of(value: Mapping[str, Any], key: str, path: Path) -> float | None:
    """The time under ``key`` of the object at ``path``, seconds since the epoch."""
    text = value.get(key)
    if text is None:
        return None
    if not isinstance(text, str):
        refuse("a time such as 2026-11-20T14:02:11Z", text, (*path, key))
    try:
        return read_time(text)
    except ValueError:
        refuse("a time such as 2026-11-20T14:02:11Z", text, (*path, key))


def is_party(name: str) -> bool:
    """Whether ``name`` is of the form ``process`` or ``process/name``."""
    process, slash, rest = name.partition("/")
    return bool(process and (rest or not slash))


def party(name: object, path: Path) -> PartyName:
    """The party name at ``path``."""
    if not isinstance(name, str) or not is_party(name):
        refuse("the name of a party (PROCESS/NAME, or a process)", name, path)
    return PartyName(name)


def process(name: object, path: Path) -> ProcessName:
    """The process name at ``path``."""
    if not isinstance(name, str) or not name or "/" in name:
        refuse('the name of a process, without "/"', name, path)
    return ProcessName(name)
