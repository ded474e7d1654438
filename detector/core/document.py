"""Snapshot documents (DESIGN.md section 8): JSON in, a snapshot out, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, NoReturn

from detector.core.document_out import write_document
from detector.core.locate import line_of
from detector.core.snapshot import Snapshot
from detector.core.times import read_time
from detector.graph.columns import WaitColumns, WaitError, columns_of_lists
from stilltrue.model import (
    Activity,
    Facts,
    Message,
    PartyName,
    ProcessName,
    ProcessState,
    SnapshotId,
    SnapshotRef,
    process_of,
)

__all__ = ["DocumentError", "key_of", "message_order", "parse_document", "read_document", "write_document"]

Path = tuple[str | int, ...]
NAN = float("nan")
ACTIVITIES = {activity.value: activity for activity in Activity}


class DocumentError(ValueError):
    """The document's fault: what is wrong, at which key, and (when known) in which file and line. Prints as one line."""

    def __init__(self, text: str, *, path: Path = (), file: str = "", line: int | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.path = path
        self.file = file
        self.line = line

    def __str__(self) -> str:
        place = [part for part in (self.file, str(self.line) if self.line is not None else "", key_of(self.path)) if part]
        return " ".join(": ".join([*place, self.text]).split())

    def at(self, *, file: str, line: int) -> DocumentError:
        """The same error with its place in a file."""
        return DocumentError(self.text, path=self.path, file=file, line=line)


def key_of(path: Path) -> str:
    """``("waits", 3, "needs")`` as people write it: ``waits[3].needs``."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def parse_document(text: str, *, file: str = "", first_line: int = 1) -> tuple[Any, Snapshot]:
    """Read one JSON text: the raw object and its snapshot.

    Parameters
    ----------
    text : the JSON text.
    file, first_line : where it stands, for the error.

    Raises
    ------
    DocumentError
        When it is no JSON, or breaks a rule of the snapshot document; names file, line and key.
    """
    try:
        raw = json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        last = text.rstrip().count("\n") + 1  # an end that comes too early is on the last line that has anything
        raise DocumentError(f"no JSON: {error.msg}", file=file, line=first_line + min(error.lineno, last) - 1) from None
    except RecursionError:
        raise DocumentError("no JSON: nested too deeply", file=file, line=first_line) from None
    except ValueError as error:
        raise DocumentError(f"no JSON: {str(error).split(';', 1)[0]}", file=file, line=first_line) from None
    try:
        return raw, read_document(raw)
    except DocumentError as error:
        raise error.at(file=file, line=first_line + line_of(text, error.path) - 1) from None


def read_document(raw: object) -> Snapshot:
    """The snapshot that a parsed document says; keys it does not know are ignored.

    Raises
    ------
    DocumentError
        Naming the key that breaks a rule.
    """
    top = _object(raw, ())
    missing = tuple(sorted({_process(name, ("missing", at)) for at, name in enumerate(_list(top, "missing", ()))}))
    processes = {
        _process(name, ("processes", name)): _state(value, ("processes", name))
        for name, value in sorted(_object(top.get("processes", {}), ("processes",)).items())
    }
    previous = None if top.get("previous") is None else _waits(_list(top, "previous", ()), ("previous",))
    return Snapshot(
        ref=_ref(top, len(set(processes) | set(missing))),
        processes=processes,
        waits=_waits(_list(top, "waits", ()), ("waits",)),
        in_transit=tuple(
            sorted(
                (_message(value, ("in_transit", at)) for at, value in enumerate(_list(top, "in_transit", ()))),
                key=message_order,
            )
        ),
        missing=missing,
        previous=previous,
    )


def message_order(message: Message) -> tuple[Any, ...]:
    """Messages in an order that depends on what they say alone."""
    facts = json.dumps(dict(message.facts), sort_keys=True)
    return message.source, message.target is None, message.target or "", message.what, facts


def _ref(top: Mapping[str, Any], members: int) -> SnapshotRef:
    number, scope = top.get("id"), top.get("scope")
    return SnapshotRef(
        id=SnapshotId(number) if isinstance(number, int) and not isinstance(number, bool) else None,
        scope=scope if isinstance(scope, str) else "all",
        begun=_time(top, "begun", ()),
        ended=_time(top, "ended", ()),
        members=members,
    )


def _waits(values: list[Any], path: Path) -> WaitColumns:
    """Waits as columns: each key of all rows at once; only once something is wrong, row by row to say where."""
    if set(map(type, values)) - {dict}:
        _blame(_object, values, path)
    waiters = [row.get("waiter") for row in values]
    if not _all_parties(waiters):
        _blame(_party, waiters, path, "waiter")
    among = [row.get("among", ()) for row in values]
    if set(map(type, among)) - {list, tuple}:
        _blame(_listed, among, path, "among")
    flat = list(chain.from_iterable(among))
    if not _all_parties(flat):
        _blame(_parties, among, path, "among")
    needs = [row.get("needs", 1) for row in values]
    if set(map(type, needs)) - {int}:
        _blame(_whole, needs, path, "needs")
    said: set[str] = set().union(*values)
    try:
        return columns_of_lists(
            waiters=waiters,
            needs=needs,
            sizes=list(map(len, among)),
            among=flat,
            deadline=_times(values, "deadline", path) if "deadline" in said else (),
            since=_times(values, "since", path) if "since" in said else (),
            number=_numbers(values, path) if "number" in said else (),
            uncoloured=_flags(values, path) if "uncoloured" in said else (),
            what=[_text(row, "what", (*path, at)) for at, row in enumerate(values)] if "what" in said else (),
        )
    except WaitError as error:
        raise DocumentError(error.text, path=(*path, error.index, error.key)) from None


def _all_parties(names: list[Any]) -> bool:
    """Whether all are names of parties: one search over all of them for what a bad name leaves at its borders."""
    if set(map(type, names)) - {str}:
        return False
    text = "\n".join(("", *names, ""))
    return not ("\n\n" in text or "\n/" in text or "/\n" in text) or all(map(_is_party, names))


def _parties(names: list[Any], path: Path) -> None:
    for place, name in enumerate(names):
        _party(name, (*path, place))


def _blame(check: Callable[[Any, Path], object], values: list[Any], path: Path, *key: str) -> NoReturn:
    """Raise what ``check`` has against the first value that it refuses."""
    for at, value in enumerate(values):
        check(value, (*path, at, *key))
    raise AssertionError(f"{path}: something was seen to be wrong, and then not found")


def _times(rows: list[Mapping[str, Any]], key: str, path: Path) -> list[float]:
    times = (_time(row, key, (*path, at)) for at, row in enumerate(rows))
    return [NAN if time is None else time for time in times]


def _numbers(rows: list[Mapping[str, Any]], path: Path) -> list[int]:
    numbers = []
    for at, row in enumerate(rows):
        number = row.get("number")
        if number is not None and not 0 <= _whole(number, (*path, at, "number")) < 2**63:
            raise DocumentError("must lie between 0 and 2^63 - 1", path=(*path, at, "number"))
        numbers.append(-1 if number is None else number)
    return numbers


def _flags(rows: list[Mapping[str, Any]], path: Path) -> list[bool]:
    for at, row in enumerate(rows):
        if not isinstance(row.get("uncoloured", False), bool):
            _refuse("true or false", row["uncoloured"], (*path, at, "uncoloured"))
    return [row.get("uncoloured", False) for row in rows]


def _state(raw: object, path: Path) -> ProcessState:
    value = _object(raw, path)
    word = value.get("activity", "active")
    if not isinstance(word, str) or word not in ACTIVITIES:
        _refuse('"active", "idle" or "blocked"', word, (*path, "activity"))
    labels = _object(value.get("labels", {}), (*path, "labels"))
    for name in labels:
        _text(labels, name, (*path, "labels"))
    return ProcessState(
        activity=ACTIVITIES[word],
        facts=_facts(value, path),
        service=_text(value, "service", path),
        labels=dict(sorted(labels.items())),
    )


def _message(raw: object, path: Path) -> Message:
    value = _object(raw, path)
    target = value.get("target")
    return Message(
        source=_process(value.get("source"), (*path, "source")),
        target=None if target is None else _process(target, (*path, "target")),
        facts=_facts(value, path),
        what=_text(value, "what", path),
    )


def _facts(value: Mapping[str, Any], path: Path) -> Facts:
    facts = _object(value.get("facts", {}), (*path, "facts"))
    for name, fact in facts.items():
        if not isinstance(fact, (int, float, str, bool)):
            _refuse("a number, a text, true or false", fact, (*path, "facts", name))
    return dict(sorted(facts.items()))


def _refuse(wanted: str, value: object, path: Path) -> NoReturn:
    shown = "nothing" if value is None else json.dumps(value)
    raise DocumentError(f"must be {wanted}, not {shown if len(shown) <= 60 else shown[:57] + '...'}", path=path)


def _object(value: object, path: Path) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        _refuse("an object", value, path)
    return value


def _list(value: Mapping[str, Any], key: str, path: Path) -> list[Any]:
    return _listed(value.get(key, []), (*path, key))


def _listed(values: object, path: Path) -> list[Any]:
    if not isinstance(values, list):
        _refuse("a list", values, path)
    return values


def _text(value: Mapping[str, Any], key: str, path: Path) -> str:
    text = value.get(key, "")
    if not isinstance(text, str):
        _refuse("a text", text, (*path, key))
    return text


def _whole(value: object, path: Path) -> int:
    if type(value) is not int:
        _refuse("a whole number", value, path)
    return value


def _time(value: Mapping[str, Any], key: str, path: Path) -> float | None:
    text = value.get(key)
    if text is None:
        return None
    if not isinstance(text, str):
        _refuse("a time such as 2026-11-20T14:02:11Z", text, (*path, key))
    try:
        return read_time(text)
    except ValueError:
        _refuse("a time such as 2026-11-20T14:02:11Z", text, (*path, key))


def _is_party(name: str) -> bool:
    return bool(process_of(PartyName(name))) and not name.endswith("/")


def _party(name: object, path: Path) -> PartyName:
    if not isinstance(name, str) or not _is_party(name):
        _refuse("the name of a party (process/name, or a process)", name, path)
    return PartyName(name)


def _process(name: object, path: Path) -> ProcessName:
    if not isinstance(name, str) or not name or "/" in name:
        _refuse('the name of a process, without "/"', name, path)
    return ProcessName(name)


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON number")
