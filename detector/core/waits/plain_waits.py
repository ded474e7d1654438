"""Resolves the waits of *plain* processes, which nearly all are, as columns; the others are resolved row by row.

For a plain process the result is the same as that of :class:`~detector.core.waits.resolution.Resolution`; tests compare the two
row by row. When in doubt a process counts as not plain, which costs time but does not change the result.

Rules:

1. A call is plain if it was made once, without facts or doubt, and no server remembers answering it; and if either one process
   serves it, without items in transit, or no process has seen it and no member is missing (then it ends by itself).
2. A wait is plain if it is coloured, needs all of its targets, and each target is a call or a party.
3. Its waiter must not be cancellable: it serves no call whose end would interrupt it, or its caller waits only for that call
   and cannot be cancelled either, and so on for at most ``HOPS_MAX`` callers (rule 2 of
   :mod:`detector.core.waits.cancellation`).
4. A process is plain if all its calls and waits are plain, and no process had to forget any of its calls.
5. If reports contradict each other, nothing is resolved.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from detector.core.waits.budget import STEPS_MAX
from detector.core.waits.report_columns import CALL, MISSING, OTHER, PARTY, ReportColumns, Rows
from detector.graph.columns import Bools
from stilltrue.model import Message, ProcessName
from stilltrue.protocol.report import OBSERVED_MIN

HOPS_MAX = 64
_WAITS_MAX = STEPS_MAX // (HOPS_MAX + 2)
"""Bound on the waits of one process: with more, its budget of steps might run out."""
_END, _BAD = -1, -2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlainWaits:
    """The resolved plain processes: their waits as parallel lists, each for one party, and the calls that no member has seen.

    ``plain``: (P,) mask of the plain processes.
    """

    plain: Bools
    waiters: list[str]
    among: list[str]
    deadline: list[float]
    since: list[float]
    number: list[int]
    what: list[str]
    unseen: dict[ProcessName, list[Message]]


def plain_waits(columns: ReportColumns, *, missing: bool) -> PlainWaits | None:
    """Resolve the plain processes; None if reports contradict each other (rule 5). ``missing``: a member has not reported."""
    calls = _Calls(columns)
    if _contradicted(columns):
        return None
    odd = columns.lost | calls.odd_processes(missing=missing)
    waits = columns.waits
    odd[waits.process[_odd_waits(columns) | _Cancelled(columns, calls).may_be()]] = True  # rule 2, rule 3
    odd |= np.bincount(waits.process, minlength=len(odd)) > _WAITS_MAX
    return _resolved(columns, calls, ~odd)


class _Calls:
    """The outstanding calls, each with the process that has it (rule 1)."""

    def __init__(self, columns: ReportColumns) -> None:
        made, served, seen, waits = columns.made, columns.served, columns.seen, columns.waits
        self._columns = columns
        every = np.concatenate((made.number, served.number, seen.answered, waits.target[waits.kind == CALL]))
        distinct, place = np.unique(every, return_inverse=True)
        at = np.cumsum((len(made.number), len(served.number), len(seen.answered)))
        of_made, of_served, of_answered, of_target = np.split(place.astype(np.int64), at)
        width = max(len(distinct), 1)
        keys = made.process * width + of_made
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]
        again = self._keys[1:] == self._keys[:-1]
        self.doubled = np.zeros(len(keys), np.bool_)
        """(M,) mask of calls that share their number with another call of the same process."""
        self.doubled[self._order[1:][again]] = self.doubled[self._order[:-1][again]] = True

        known = served.same & (served.caller >= 0)
        self.of_served = np.where(known, self._found(served.caller * width + of_served), -1)
        """(S,) the outstanding call that is served; -1 if its caller is outside or does not know it."""
        self._forgotten = known & (self.of_served < 0)
        rows = np.flatnonzero(self.of_served >= 0)
        self._times = np.bincount(self.of_served[rows], minlength=len(keys))
        self.server = np.full(len(keys), -1, np.int64)
        """(M,) the row in ``served`` that has the call; -1 if there is none."""
        self.server[self.of_served[rows]] = rows

        by = seen.caller[seen.answered_by]
        known = seen.same[seen.answered_by] & (by >= 0)
        answered = np.where(known, self._found(by * width + of_answered), -1)
        self._answered = np.zeros(len(keys), np.bool_)
        self._answered[answered[answered >= 0]] = True

        self.of_target = np.full(len(waits.target), -1, np.int64)
        """(T,) the outstanding call that the target is; -1 if it is none."""
        is_call = waits.kind == CALL
        self.of_target[is_call] = self._found(waits.process[waits.wait[is_call]] * width + of_target)

    def _found(self, keys: Rows) -> Rows:
        if not len(self._keys):
            return np.full(len(keys), -1, np.int64)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[at] == keys, self._order[at], -1)

    def odd_processes(self, *, missing: bool) -> Bools:
        """(P,) mask of the processes with a call that is not plain."""
        columns, made, served, seen = self._columns, self._columns.made, self._columns.served, self._columns.seen
        has = self.server >= 0
        at = self.server[has]
        wrong = made.special | self.doubled | self._answered | (self._times > 1)
        wrong |= ~has & missing
        wrong[has] |= (
            (served.method[at] != made.method[has])
            | served.hung_up[at]
            | ~served.serving[at]
            | (made.sent[has] > served.received[at])
            | (served.sent[at] > made.received[has])
        )
        odd = np.zeros(len(columns.processes), np.bool_)
        odd[made.process[wrong]] = True
        odd[seen.caller[seen.same & (seen.caller >= 0) & seen.forgotten]] = True  # rule 4
        if columns.has_facts:  # a request that its caller has abandoned may carry one
            odd[served.caller[self._forgotten & ~served.taken]] = True
        return odd


def _odd_waits(columns: ReportColumns) -> Bools:
    """(W,) mask of the waits that are not plain (rule 2)."""
    waits = columns.waits
    odd = waits.uncoloured | ~waits.every
    odd[waits.wait[waits.kind == OTHER]] = True
    return odd


class _Cancelled:
    """Finds the waiters that may be cancelled (rule 3)."""

    def __init__(self, columns: ReportColumns, calls: _Calls) -> None:
        self._columns = columns
        self._calls = calls

    def may_be(self) -> Bools:
        """(W,) mask of the waits whose waiter may be cancelled."""
        after = self._after()
        waiter = self._columns.waits.waiter
        found = np.zeros(len(after), np.bool_)
        todo = np.unique(waiter)
        at = todo
        for _ in range(HOPS_MAX):
            step = after[at]
            found[todo[step == _BAD]] = True
            further = step >= 0
            todo, at = todo[further], step[further]
        found[todo] = True
        return found[waiter]

    def _after(self) -> Rows:
        """(N,) the party that each party's cancellation depends on; ``_END``: it cannot be cancelled, ``_BAD``: unclear."""
        columns, calls, served = self._columns, self._calls, self._columns.served
        awaited = self._awaited()
        after = np.where(awaited, _BAD, _END)
        after[served.party] = _END
        rows = np.flatnonzero(served.interruptible)
        call, caller = calls.of_served[rows], served.caller[rows]
        alone = served.hung_up[rows] | ((caller != MISSING) & ~(served.same[rows] & (caller >= 0)))
        bound = np.where(call >= 0, self._bound()[call], _BAD) if len(columns.made.number) else np.full(len(rows), _BAD)
        after[served.party[rows]] = np.where(alone, _END, bound)
        twice = np.bincount(served.party, minlength=len(after)) > 1
        after[twice | (awaited & (after != _END))] = _BAD
        after[served.party[rows][awaited[served.party[rows]]]] = _BAD
        return after

    def _awaited(self) -> Bools:
        """(N,) mask of the parties that others await as tasks."""
        waits = self._columns.waits
        task = (waits.kind == PARTY) & ((waits.number >= OBSERVED_MIN) & ~waits.uncoloured)[waits.wait]
        found = np.zeros(len(self._columns.names), np.bool_)
        found[waits.target[task]] = True
        return found

    def _bound(self) -> Rows:
        """(M,) the only party that waits for the call, and for nothing that could end without it; ``_BAD`` if there is none."""
        calls, waits, made = self._calls, self._columns.waits, self._columns.made
        rows = np.flatnonzero(calls.of_target >= 0)
        call, wait = calls.of_target[rows], waits.wait[rows]
        times = np.bincount(call, minlength=len(made.number))
        waiter = np.full(len(made.number), _BAD, np.int64)
        firm = waits.every & np.isnan(waits.deadline) & ~waits.uncoloured
        waiter[call[firm[wait]]] = waits.waiter[wait[firm[wait]]]
        return np.where((times == 1) & ~made.special & ~calls.doubled & np.isnan(made.deadline), waiter, _BAD)


def _contradicted(columns: ReportColumns) -> bool:
    """Whether a server has seen what its caller rules out (rule 5)."""
    seen, made = columns.seen, columns.made
    oldest = columns.next_number.copy()
    np.minimum.at(oldest, made.process, made.number)
    rows = seen.same & (seen.caller >= 0)
    caller, highest, floor = seen.caller[rows], seen.highest[rows], seen.floor[rows]
    return bool(np.any(highest >= columns.next_number[caller]) or np.any((floor > 0) & (floor > oldest[caller])))


def _resolved(columns: ReportColumns, calls: _Calls, plain: Bools) -> PlainWaits:
    waits, made, served = columns.waits, columns.made, columns.served
    of_plain = plain[waits.process[waits.wait]]
    call = calls.of_target
    server = calls.server[call] if len(made.number) else np.full(len(call), -1, np.int64)
    held = of_plain & (waits.kind == CALL) & (call >= 0) & (server >= 0)
    rows = np.flatnonzero(held | (of_plain & (waits.kind == PARTY)))
    on_call = held[rows]
    wait, at, served_at = waits.wait[rows], call[rows][on_call], server[rows][on_call]
    among = np.where(on_call, 0, waits.target[rows])
    among[on_call] = served.party[served_at]
    deadline = waits.deadline[wait].copy()
    deadline[on_call] = np.fmin(deadline[on_call], np.fmin(made.deadline[at], served.deadline[served_at]))
    replies = iter(_replies(columns, served_at))
    what = [
        next(replies) if is_call else waits.what[own] or columns.names[party]
        for is_call, own, party in zip(on_call.tolist(), wait.tolist(), among.tolist(), strict=True)
    ]
    return PlainWaits(
        plain=plain,
        waiters=[columns.names[party] for party in waits.waiter[wait].tolist()],
        among=[columns.names[party] for party in among.tolist()],
        deadline=deadline.tolist(),
        since=waits.since[wait].tolist(),
        number=waits.number[wait].tolist(),
        what=what,
        unseen=_unseen(columns, calls, plain),
    )


def _replies(columns: ReportColumns, rows: Rows) -> list[str]:
    """The texts of waits for these served calls, built once per server and method."""
    width = max(len(columns.methods), 1)
    keys = columns.served.process[rows] * width + columns.served.method[rows]
    distinct, place = np.unique(keys, return_inverse=True)
    pairs = [(columns.processes[key // width].instance, columns.methods[key % width]) for key in distinct.tolist()]
    texts = [f"the reply of {server} to {method}" for server, method in pairs]
    return [texts[each] for each in place.tolist()]


def _unseen(columns: ReportColumns, calls: _Calls, plain: Bools) -> dict[ProcessName, list[Message]]:
    """The requests in transit of plain processes."""
    made, found = columns.made, dict[ProcessName, list[Message]]()
    for row in np.flatnonzero(plain[made.process] & (calls.server < 0)).tolist():
        source = columns.processes[made.process[row]].instance
        message = Message(source=source, target=None, what=f"request {columns.methods[made.method[row]]}")
        found.setdefault(source, []).append(message)
    return found
