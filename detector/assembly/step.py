"""One step of the assembly when records of a snapshot have arrived: wait, ask for looks, or return the result. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from detector.assembly.evaluation import Evaluation, evaluate, evaluate_columns, is_complete
from detector.assembly.recent import Recent
from detector.assembly.records import (
    HEADER,
    LOOKS,
    REPORT,
    Answers,
    Asked,
    Header,
    answers_of,
    header_of,
    report_of,
)
from detector.assembly.results import Result, asked_record, result_of, result_record
from stilltrue.protocol.report import Report
from stilltrue.protocol.wire.values import MalformedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A record to write. ``asked``: the number of rounds of looks requested so far.

    ``result``: the result that completes the snapshot; None while waiting for looks.
    """

    record: bytes
    asked: int
    result: Result | None = None


def step(records: Sequence[bytes], *, asked: int = 0, late: bool = False, recent: Recent | None = None) -> Step | None:
    """Proceed as far as the records allow; None if more records are needed first.

    Parameters
    ----------
    records : all records of one snapshot so far, in any order and possibly repeated.
    asked : the number of rounds requested so far; a round is requested only once.
    late : do not wait for more records. Members without a report are missing, and looks not yet received count as none.
    recent : a cache of earlier snapshots; it makes this faster but does not change the result.
    """
    header = next((header_of(record) for record in records if record[:1] == HEADER), None)
    if header is None:
        return None
    received = [record for record in records if record[:1] == REPORT]
    if len(received) < len(header.reported) and not late:
        return None
    answers = [answers_of(record) for record in records if record[:1] == LOOKS]
    if not answers and (recent is None or not recent.quiet(header.fleet, received)):
        found = evaluate_columns(header, received, late=late)
        if found is not None:
            return _final(header, found, asked)
    reports = list(_decoded(received, report_of if recent is None else recent.report))
    if not late and not is_complete(header, (report.process for report in reports)):
        return None
    return _evaluate(header, reports, answers, asked, recent, late=late)


def _evaluate(
    header: Header, reports: list[Report], answers: list[Answers], asked: int, recent: Recent | None, *, late: bool
) -> Step | None:
    while isinstance(found := evaluate(header, reports, answers, recent), Asked):
        if not late:
            return None if found.round <= asked else Step(record=asked_record(header.fleet, found), asked=found.round)
        answers.append(Answers(round=found.round, at=header.ended))
    return _final(header, found, asked)


def _final(header: Header, found: Evaluation, asked: int) -> Step:
    result = result_of(header, found)
    return Step(record=result_record(header.fleet, result), asked=asked, result=result)


def _decoded(records: Iterable[bytes], decode: Callable[[bytes], Report]) -> Iterable[Report]:
    """Decode the reports. Collectors reject malformed ones; if one slips through, its process is missing."""
    for record in records:
        try:
            yield decode(record)
        except (MalformedError, DecodeError):
            continue
