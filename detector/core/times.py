"""Times in documents: ISO 8601 in UTC with a Z outside, seconds since the epoch inside."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_time(text: str) -> float:
    """Seconds since the epoch; a time without a zone is UTC.

    Raises
    ------
    ValueError
        When ``text`` is no ISO 8601 time, or lies outside the years 1 to 9999 in UTC.
    """
    try:
        moment = datetime.fromisoformat(text)
        zoned = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{text!r} lies outside the years 1 to 9999") from error
    return (zoned - EPOCH) / timedelta(seconds=1)


def write_time(seconds: float) -> str:
    """The moment ``seconds`` after the epoch, to the microsecond: ``2026-11-20T14:02:11.5Z``."""
    moment = EPOCH + timedelta(microseconds=round(seconds * 1e6))
    text = moment.replace(tzinfo=None).isoformat()
    return (text.rstrip("0") if "." in text else text) + "Z"


def clock(seconds: float) -> str:
    """The time of day, for sentences: ``14:02:11``."""
    return (EPOCH + timedelta(seconds=seconds)).strftime("%H:%M:%S")
