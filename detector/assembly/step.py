"""What the assembly does when records of a snapshot have come: nothing yet, ask for looks, or give the result. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from detector.assembly.judging import Judged, is_complete, judged, judged_as_columns
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
    """What is to be said, as a record; ``asked``: how many rounds of looks have been asked for by now.

    ``result`` is None while looks are waited for; with it, the snapshot is done.
    """

    record: bytes
    asked: int
    result: Result | None = None


def step(records: Sequence[bytes], *, asked: int = 0, late: bool = False, recent: Recent | None = None) -> Step | None:
    """Go on as far as the records allow; None: something has to come first.

    Parameters
    ----------
    records : all of one snapshot's so far, in any order, some perhaps more than once.
    asked : how many rounds have been asked for already; the same round is not asked for again.
    late : nothing more is waited for. Members without a report are missing, and looks that have not come are none.
    recent : what the caller remembers of the snapshots before; it makes this faster, and no different.
    """
    header = next((header_of(record) for record in records if record[:1] == HEADER), None)
    if header is None:
        return None
    came = [record for record in records if record[:1] == REPORT]
    if len(came) < len(header.reported) and not late:
        return None
    answers = [answers_of(record) for record in records if record[:1] == LOOKS]
    if not answers and (recent is None or not recent.quiet(header.fleet, came)):
        found = judged_as_columns(header, came, late=late)
        if found is not None:
            return _ended(header, found, asked)
    reports = list(_decoded(came, report_of if recent is None else recent.report))
    if not late and not is_complete(header, (report.process for report in reports)):
        return None
    return _further(header, reports, answers, asked, recent, late=late)


def _further(
    header: Header, reports: list[Report], answers: list[Answers], asked: int, recent: Recent | None, *, late: bool
) -> Step | None:
    while isinstance(found := judged(header, reports, answers, recent), Asked):
        if not late:
            return None if found.round <= asked else Step(record=asked_record(header.fleet, found), asked=found.round)
        answers.append(Answers(round=found.round, at=header.ended))
    return _ended(header, found, asked)


def _ended(header: Header, found: Judged, asked: int) -> Step:
    result = result_of(header, found)
    return Step(record=result_record(header.fleet, result), asked=asked, result=result)


def _decoded(records: Iterable[bytes], decode: Callable[[bytes], Report]) -> Iterable[Report]:
    """The reports; a collector lets no malformed one pass, and if one did, its process is missing."""
    for record in records:
        try:
            yield decode(record)
        except (MalformedError, DecodeError):
            continue
