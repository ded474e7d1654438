"""Reads snapshot documents (docs/design.md section 8)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, NoReturn

from detector.core.document.keys import KeyCheck, ObjectKind, OnUnknownKey, first_with, ignore_unknown_key, refuse_verdict
from detector.core.document.locate import line_of
from detector.core.document.values import (
    DocumentError,
    Path,
    integer,
    is_party,
    key_of,
    list_of,
    listed,
    object_of,
    party,
    process,
    refuse,
    text_of,
    time_of,
)
from detector.core.document.writer import write_document
from detector.core.membership_doubt import About, MembershipDoubt
from detector.core.snapshot import Snapshot
from detector.graph.columns import WaitColumns, WaitError, columns_of_lists
from stilltrue.model import (
    Activity,
    Facts,
    Message,
    ProcessName,
    ProcessState,
    SnapshotId,
    SnapshotRef,
)

__all__ = ["SEVERAL_TEXTS", "DocumentError", "key_of", "message_order", "parse_document", "read_document", "write_document"]

NAN = float("nan")
SEVERAL_TEXTS = "invalid JSON: Extra data"
"""The error of a document that is followed by another one."""
_ABOUT = {about.value: about for about in About}
ACTIVITIES = {activity.value: activity for activity in Activity}


def parse_document(
    text: str, *, file: str = "", first_line: int = 1, on_unknown_key: OnUnknownKey = ignore_unknown_key
) -> tuple[Any, Snapshot]:
    """Parse one JSON text; returns the raw object and its snapshot.

    Parameters
    ----------
    text : the JSON text.
    file, first_line : where the text comes from, for error messages.
    on_unknown_key : called for each ignored unknown key, with an error that names its place and is not raised.

    Raises
    ------
    DocumentError
        When it is not valid JSON, or violates a rule of the snapshot document; names file, line and key.
    """
    if not text.strip():
        raise DocumentError("empty; a document is a JSON object", file=file, line=first_line)
    try:
        raw = json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        last = text.rstrip().count("\n") + 1  # report a premature end on the last non-blank line
        raise DocumentError(f"invalid JSON: {error.msg}", file=file, line=first_line + min(error.lineno, last) - 1) from None
    except RecursionError:
        raise DocumentError("invalid JSON: nested too deeply", file=file, line=first_line) from None
    except ValueError as error:
        raise DocumentError(f"invalid JSON: {str(error).split(';', 1)[0]}", file=file, line=first_line) from None

    def located(error: DocumentError) -> DocumentError:
        return error.at(file=file, line=first_line + line_of(text, error.path) - 1)

    try:
        return raw, read_document(raw, lambda ignored: on_unknown_key(located(ignored)))
    except DocumentError as error:
        raise located(error) from None


def read_document(raw: object, on_unknown_key: OnUnknownKey = ignore_unknown_key) -> Snapshot:
    """Convert a parsed document to a snapshot.

    Parameters
    ----------
    raw : the document.
    on_unknown_key : as for :func:`parse_document`, but the error has no file or line; once per key and kind of object.

    Raises
    ------
    DocumentError
        Names the invalid or misspelt key.
    """
    top = object_of(raw, ())
    refuse_verdict(top)
    keys = KeyCheck(on_unknown_key)
    keys.check(ObjectKind.DOCUMENT, top, lambda _: ())
    missing = _processes(top, "missing")
    processes = {
        process(name, ("processes", name)): _state(value, ("processes", name), keys)
        for name, value in sorted(object_of(top.get("processes", {}), ("processes",)).items())
    }
    if top.get("previous") is not None:  # written by earlier versions; checked, but not used
        _waits(list_of(top, "previous", ()), ("previous",), keys)
    return Snapshot(
        ref=_ref(top, len(set(processes) | set(missing))),
        processes=processes,
        waits=_waits(list_of(top, "waits", ()), ("waits",), keys),
        in_transit=tuple(
            sorted(
                (_message(value, ("in_transit", at), keys) for at, value in enumerate(list_of(top, "in_transit", ()))),
                key=message_order,
            )
        ),
        missing=missing,
        forgetful=_processes(top, "forgetful"),
        doubts=_reasons(top, "doubts"),
        set_aside=_reasons(top, "set_aside"),
        membership=tuple(
            _membership(value, ("membership", at), keys) for at, value in enumerate(list_of(top, "membership", ()))
        ),
    )


def _processes(top: Mapping[str, Any], key: str) -> tuple[ProcessName, ...]:
    return tuple(sorted({process(name, (key, at)) for at, name in enumerate(list_of(top, key, ()))}))


def _reasons(top: Mapping[str, Any], key: str) -> dict[ProcessName, str]:
    """The value of ``key``: a reason for each process that has one."""
    reasons = object_of(top.get(key, {}), (key,))
    return {process(name, (key, name)): text_of(reasons, name, (key,)) for name in sorted(reasons)}


def _membership(raw: object, path: Path, keys: KeyCheck) -> MembershipDoubt:
    value = object_of(raw, path)
    keys.check(ObjectKind.MEMBERSHIP, value, lambda _: path)
    about = value.get("about")
    if not isinstance(about, str) or about not in _ABOUT:
        refuse(" or ".join(f'"{one}"' for one in _ABOUT), about, (*path, "about"))
    decisive = enumerate(list_of(value, "decisive", path))
    return MembershipDoubt(
        about=_ABOUT[about],
        text=text_of(value, "text", path),
        predicate=text_of(value, "predicate", path),
        decisive=tuple(process(name, (*path, "decisive", at)) for at, name in decisive),
    )


def message_order(message: Message) -> tuple[Any, ...]:
    """A sort key that depends only on the message's content."""
    facts = json.dumps(dict(message.facts), sort_keys=True)
    return message.source, message.target is None, message.target or "", message.what, facts


def _ref(top: Mapping[str, Any], members: int) -> SnapshotRef:
    number, scope = top.get("id"), top.get("scope")
    return SnapshotRef(
        id=SnapshotId(number) if isinstance(number, int) and not isinstance(number, bool) else None,
        scope=scope if isinstance(scope, str) else "all",
        begun=time_of(top, "begun", ()),
        ended=time_of(top, "ended", ()),
        members=members,
    )


def _waits(values: list[Any], path: Path, keys: KeyCheck) -> WaitColumns:
    """Read waits column by column, which is fast; go row by row only to locate an error."""
    if set(map(type, values)) - {dict}:
        _raise_first(object_of, values, path)
    used: set[str] = set().union(*values)
    keys.check(ObjectKind.WAIT, used, lambda key: (*path, first_with(key, values)))
    waiters = [row.get("waiter") for row in values]
    if not _all_parties(waiters):
        _raise_first(party, waiters, path, "waiter")
    among = [row.get("among", ()) for row in values]
    if set(map(type, among)) - {list, tuple}:
        _raise_first(listed, among, path, "among")
    flat = list(chain.from_iterable(among))
    if not _all_parties(flat):
        _raise_first(_parties, among, path, "among")
    needs = [row.get("needs", 1) for row in values]
    if set(map(type, needs)) - {int}:
        _raise_first(integer, needs, path, "needs")
    try:
        return columns_of_lists(
            waiters=waiters,
            needs=needs,
            sizes=list(map(len, among)),
            among=flat,
            deadline=_times(values, "deadline", path) if "deadline" in used else (),
            since=_times(values, "since", path) if "since" in used else (),
            number=_numbers(values, path) if "number" in used else (),
            uncoloured=_flags(values, path) if "uncoloured" in used else (),
            what=[text_of(row, "what", (*path, at)) for at, row in enumerate(values)] if "what" in used else (),
        )
    except WaitError as error:
        raise DocumentError(error.text, path=(*path, error.index, error.key)) from None


def _all_parties(names: list[Any]) -> bool:
    """Whether all are valid party names, first by one search in the joined text, which valid names almost always pass."""
    if set(map(type, names)) - {str}:
        return False
    text = "\n".join(("", *names, ""))
    return not ("\n\n" in text or "\n/" in text or "/\n" in text) or all(map(is_party, names))


def _parties(names: list[Any], path: Path) -> None:
    for at, name in enumerate(names):
        party(name, (*path, at))


def _raise_first(check: Callable[[Any, Path], object], values: list[Any], path: Path, *key: str) -> NoReturn:
    """Raise the error of ``check`` for the first value that it rejects."""
    for at, value in enumerate(values):
        check(value, (*path, at, *key))
    raise AssertionError(f"{path}: a value was rejected, but each is valid")


def _times(rows: list[Mapping[str, Any]], key: str, path: Path) -> list[float]:
    times = (time_of(row, key, (*path, at)) for at, row in enumerate(rows))
    return [NAN if time is None else time for time in times]


def _numbers(rows: list[Mapping[str, Any]], path: Path) -> list[int]:
    numbers = []
    for at, row in enumerate(rows):
        number = row.get("number")
        if number is not None and not 0 <= integer(number, (*path, at, "number")) < 2**63:
            raise DocumentError("must be between 0 and 2^63 - 1", path=(*path, at, "number"))
        numbers.append(-1 if number is None else number)
    return numbers


def _flags(rows: list[Mapping[str, Any]], path: Path) -> list[bool]:
    for at, row in enumerate(rows):
        if not isinstance(row.get("uncoloured", False), bool):
            refuse("true or false", row["uncoloured"], (*path, at, "uncoloured"))
    return [row.get("uncoloured", False) for row in rows]


def _state(raw: object, path: Path, keys: KeyCheck) -> ProcessState:
    value = object_of(raw, path)
    keys.check(ObjectKind.PROCESS, value, lambda _: path)
    word = value.get("activity", "active")
    if not isinstance(word, str) or word not in ACTIVITIES:
        refuse('"active", "idle" or "blocked"', word, (*path, "activity"))
    labels = object_of(value.get("labels", {}), (*path, "labels"))
    for name in labels:
        text_of(labels, name, (*path, "labels"))
    return ProcessState(
        activity=ACTIVITIES[word],
        facts=_facts(value, path),
        service=text_of(value, "service", path),
        labels=dict(sorted(labels.items())),
    )


def _message(raw: object, path: Path, keys: KeyCheck) -> Message:
    value = object_of(raw, path)
    keys.check(ObjectKind.MESSAGE, value, lambda _: path)
    target = value.get("target")
    return Message(
        source=process(value.get("source"), (*path, "source")),
        target=None if target is None else process(target, (*path, "target")),
        facts=_facts(value, path),
        what=text_of(value, "what", path),
    )


def _facts(value: Mapping[str, Any], path: Path) -> Facts:
    facts = object_of(value.get("facts", {}), (*path, "facts"))
    for name, fact in facts.items():
        if not isinstance(fact, (int, float, str, bool)):
            refuse("a number, a string, true or false", fact, (*path, "facts", name))
    return dict(sorted(facts.items()))


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")
