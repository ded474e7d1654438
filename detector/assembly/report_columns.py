"""Reads the messages of many reports into columns, field by field, with the same checks as when they are decoded to objects.

Rarely used parts of a report (facts, holds, connections, details of answered calls) are decoded to objects and checked there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np

from detector.core.protocol.clock_offsets import ahead_at
from detector.core.waits.report_columns import (
    CALL,
    MISSING,
    OTHER,
    OUTSIDE,
    PARTY,
    LocalWaitColumns,
    MadeColumns,
    ReportColumns,
    Rows,
    SeenColumns,
    ServedColumns,
)
from detector.graph.columns import Bools, Floats
from stilltrue.model import NO_FACTS, PartyName, ProcessId, ProcessName, ProcessState, process_of
from stilltrue.protocol.stamp import INCARNATION_MAX, NUMBER_MAX
from stilltrue.protocol.wire.report import activity_from_wire, report_from_wire
from stilltrue.protocol.wire.values import MalformedError, any_party, process_from_wire
from stilltrue.v1 import snapshot_pb2 as pb

_KINDS = {"call": CALL, "party": PARTY, "resource": OTHER, "served": OTHER}


def columns_of_reports(
    messages: Sequence[pb.Report], missing: Iterable[ProcessName], begun: float, ended: float
) -> ReportColumns:
    """Read a snapshot's reports, sorted by process name, into columns. Raises :class:`MalformedError`.

    ``missing``: the members without a report. ``begun``, ``ended``: the snapshot's times, by the detector's clock.
    """
    return _Reader(messages, missing, begun, ended).columns()


class _Reader:
    """Reads one snapshot's messages."""

    def __init__(self, messages: Sequence[pb.Report], missing: Iterable[ProcessName], begun: float, ended: float) -> None:
        self._messages = messages
        self._processes = [process_from_wire(message.process) for message in messages]
        self._positions = {process.instance: at for at, process in enumerate(self._processes)}
        self._positions |= dict.fromkeys(missing, MISSING)
        self._names: dict[str, int] = {}
        self._methods: dict[str, int] = {}
        self._ahead = np.array([ahead_at(message.cut_at, begun, ended) for message in messages], np.float64)

    def columns(self) -> ReportColumns:
        """Read all columns."""
        messages = self._messages
        if any(message.snapshot <= message.after for message in messages):
            raise MalformedError("snapshot: not above after")
        _finite(np.array([message.cut_at for message in messages]))
        _numbers([message.snapshot for message in messages])
        states = tuple(map(_state, messages, self._processes))
        made, served, seen, waits = self._made(), self._served(), self._seen(), self._waits()
        names = tuple(map(PartyName, self._names))
        owner = np.fromiter((self._positions.get(process_of(name), OUTSIDE) for name in names), np.int64, len(names))
        for name in names:
            any_party("party", name)
        _own(owner, served.process, served.party)
        _own(owner, waits.process, waits.waiter)
        return ReportColumns(
            processes=tuple(self._processes),
            states=states,
            next_number=_numbers([message.next_number for message in messages]),
            lost=np.array([message.lost > 0 for message in messages], np.bool_),
            holding=_truths([len(message.holds) > 0 for message in messages]),
            names=names,
            owner=owner,
            methods=tuple(self._methods),
            made=made,
            served=served,
            seen=seen,
            waits=waits,
        )

    def _made(self) -> MadeColumns:
        process, rows = _flat([message.made for message in self._messages])
        for at, party in set(zip(process.tolist(), map(attrgetter("party"), rows), strict=True)):
            if party:
                self._checked_own(at, party)
        if any(row.HasField("party") for row in rows if not row.party):
            raise MalformedError("made.party: empty")
        _finite(_values(rows, "since"))
        return MadeColumns(
            process=process,
            number=_numbers([row.number for row in rows]),
            method=_places(self._methods, [row.method for row in rows]),
            deadline=self._times(process, rows, "deadline"),
            sent=_counts([row.sent for row in rows]),
            received=_counts([row.received for row in rows]),
            special=_truths([row.doubtful or row.hedged or row.copies_max > 1 or len(row.facts) > 0 for row in rows]),
        )

    def _served(self) -> ServedColumns:
        process, rows = _flat([message.served for message in self._messages])
        _finite(_values(rows, "since"))
        caller, same = self._callers([row.caller if row.HasField("caller") else None for row in rows])
        return ServedColumns(
            process=process,
            party=_places(self._names, [row.party for row in rows]),
            method=_places(self._methods, [row.method for row in rows]),
            caller=caller,
            same=same,
            number=_numbers([row.number for row in rows]),
            deadline=self._times(process, rows, "deadline"),
            sent=_counts([row.sent for row in rows]),
            received=_counts([row.received for row in rows]),
            serving=_truths([row.serving for row in rows]),
            taken=_truths([row.taken for row in rows]),
            interruptible=_truths([row.interruptible for row in rows]),
            hung_up=_truths([row.hung_up for row in rows]),
        )

    def _seen(self) -> SeenColumns:
        process, rows = _flat([message.seen for message in self._messages])
        caller, same = self._callers([row.caller for row in rows])
        answered = [[*row.plain, *(entry.number for entry in row.answered)] for row in rows]
        by = np.repeat(np.arange(len(rows)), list(map(len, answered)))
        numbers = _numbers(list(chain.from_iterable(answered)))
        highest = _numbers([row.highest for row in rows])
        if bool(np.any(numbers > highest[by])):
            raise MalformedError("seen.answered: a number above the highest seen")
        return SeenColumns(
            process=process,
            caller=caller,
            same=same,
            highest=highest,
            floor=_counts([row.floor for row in rows]),
            forgotten=_truths([row.forgotten > 0 for row in rows]),
            answered_by=by,
            answered=numbers,
        )

    def _callers(self, callers: Sequence[pb.Caller | None]) -> tuple[Rows, Bools]:
        """The position of each caller's process, and whether it is the incarnation that reported."""
        known = {(caller.process, caller.incarnation) for caller in callers if caller is not None}
        found: dict[tuple[str, int], tuple[int, bool]] = {}
        for name, incarnation in known:
            if not name or incarnation > INCARNATION_MAX:
                raise MalformedError("caller")
            at = self._positions.get(ProcessName(name), OUTSIDE)
            found[name, incarnation] = at, at >= 0 and self._processes[at].incarnation == incarnation
        unknown = OUTSIDE, False
        each = [unknown if caller is None else found[caller.process, caller.incarnation] for caller in callers]
        return np.array([at for at, _ in each], np.int64), _truths([same for _, same in each])

    def _waits(self) -> LocalWaitColumns:
        process, rows = _flat([message.waits for message in self._messages])
        among = [list(row.among) for row in rows]
        sizes = np.array(list(map(len, among)), np.int64)
        needs = np.array([row.needs for row in rows], np.int64)
        if bool(np.any((needs < 1) | (needs > sizes))):
            raise MalformedError("waits.needs")
        targets = list(chain.from_iterable(among))
        kinds = [_KINDS.get(target.WhichOneof("target") or "") for target in targets]
        if None in kinds:
            raise MalformedError("waits.among: a target without a kind")
        numbers, parties = [target.call for target in targets], [target.party for target in targets]
        kind = np.array(kinds, np.int64)
        target, is_party = _numbers(numbers), kind == PARTY
        target[is_party] = _places(self._names, [parties[at] for at in np.flatnonzero(is_party).tolist()])
        wait = np.repeat(np.arange(len(rows)), sizes)
        for at in np.flatnonzero(kind == OTHER).tolist():
            if targets[at].HasField("served"):
                self._checked_own(process[wait[at]], targets[at].served)
        return LocalWaitColumns(
            process=process,
            waiter=_places(self._names, [row.waiter for row in rows]),
            number=_numbers([row.number for row in rows]),
            deadline=self._times(process, rows, "deadline"),
            since=self._times(process, rows, "since"),
            uncoloured=_truths([row.uncoloured for row in rows]),
            every=needs == sizes,
            what=tuple(row.what for row in rows),
            wait=wait,
            kind=kind,
            target=target,
        )

    def _checked_own(self, process: int, party: str) -> None:
        if process_of(any_party("party", party)) != self._processes[process].instance:
            raise MalformedError(f"{party!r} is not a party of its process")

    def _times(self, process: Rows, rows: Sequence[Any], name: str) -> Floats:
        """The times in field ``name``, by the detector's clock."""
        values = _values(rows, name)
        _finite(values)
        present = _truths([row.HasField(name) for row in rows])
        return np.where(present, values - self._ahead[process], np.nan)


def _state(message: pb.Report, process: ProcessId) -> ProcessState:
    facts = NO_FACTS
    if message.facts or message.holds or message.sent_over or message.held_up or any(seen.answered for seen in message.seen):
        facts = report_from_wire(message).facts
    return ProcessState(
        activity=activity_from_wire(message.activity), facts=facts, service=process.service, labels=dict(message.labels)
    )


def _flat(lists: Sequence[Sequence[Any]]) -> tuple[Rows, list[Any]]:
    """The process of each row, and the rows of all processes in turn."""
    process = np.repeat(np.arange(len(lists)), list(map(len, lists))).astype(np.int64, copy=False)
    return process, list(chain.from_iterable(lists))


def _places(known: dict[str, int], texts: Sequence[str]) -> Rows:
    """The index of each text in ``known``, to which new texts are added."""
    for text in texts:
        if text not in known:
            known[text] = len(known)
    return np.fromiter(map(known.__getitem__, texts), np.int64, len(texts))


def _own(owner: Rows, process: Rows, party: Rows) -> None:
    if bool(np.any(owner[party] != process)):
        raise MalformedError("a report's own parties must belong to its process")


def _values(rows: Sequence[Any], name: str) -> Floats:
    """The times in field ``name``; 0 if unset."""
    return np.fromiter(map(attrgetter(name), rows), np.float64, len(rows))


def _numbers(values: Sequence[int]) -> Rows:
    found = np.array(values, np.uint64)
    if len(found) and int(found.max()) > NUMBER_MAX:
        raise MalformedError(f"a number above {NUMBER_MAX}")
    return found.astype(np.int64)


def _counts(values: Sequence[int]) -> Rows:
    """Numbers that are not checked, clamped to what a column can hold."""
    return np.minimum(np.array(values, np.uint64), np.uint64(2**63 - 1)).astype(np.int64)


def _truths(values: Sequence[bool]) -> Bools:
    return np.array(values, np.bool_)


def _finite(values: Floats) -> None:
    if not bool(np.isfinite(values).all()):
        raise MalformedError("not a time")
