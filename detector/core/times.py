"""Formats and parses times and durations, in seconds (since the epoch): ISO 8601 in documents, short forms for people."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = ((at.replace(tzinfo=UTC) - EPOCH) / timedelta(seconds=1) for at in (datetime.min, datetime.max))
_WAITED = re.compile(r"(.+? has waited )((?:\d+(?:\.\d+)? (?:ms|s|min|h|d) ?)+?)( for .*)", re.DOTALL)


def read_time(text: str) -> float:
    """Parse an ISO 8601 time into seconds since the epoch; a time without a zone is UTC.

    Raises
    ------
    ValueError
        When ``text`` is not an ISO 8601 time, or lies outside the years 1 to 9999 in UTC.
    """
    try:
        moment = datetime.fromisoformat(text)
        zoned = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{text!r} lies outside the years 1 to 9999") from error
    return (zoned - EPOCH) / timedelta(seconds=1)


def write_time(seconds: float) -> str:
    """Format a time as ISO 8601 in UTC, to the microsecond (``2026-11-20T14:02:11.5Z``), clamped to the years 1 to 9999."""
    moment = _moment(seconds)
    text = moment.replace(tzinfo=None).isoformat()
    return (text.rstrip("0") if "." in text else text) + "Z"


def clock(seconds: float) -> str:
    """The time of day in UTC, for verdicts: ``14:02:11``."""
    return _moment(seconds).strftime("%H:%M:%S")


def _moment(seconds: float) -> datetime:
    """The time as a ``datetime``, clamped to what it can represent."""
    if _FIRST < seconds < _LAST:
        return EPOCH + timedelta(microseconds=round(seconds * 1e6))
    return (datetime.min if seconds <= _FIRST else datetime.max).replace(tzinfo=UTC)


def local_time(seconds: float | None) -> str:
    """The local time of day, with the date unless it is today; UTC if it has no local form (the year 9999)."""
    if seconds is None:
        return "-"
    try:
        then = datetime.fromtimestamp(seconds).astimezone()
    except (OverflowError, ValueError, OSError):
        return write_time(seconds)
    return then.strftime("%H:%M:%S" if then.date() == datetime.now().astimezone().date() else "%Y-%m-%d %H:%M:%S")


def duration(seconds: float | None) -> str:
    """Format a duration: ``85 ms``, ``3.2 s``, ``4 min 5 s``, ``3 h 12 min``, ``2 d 4 h``; ``-`` for None.

    Examples
    --------
    >>> [duration(seconds) for seconds in (0.085, 3.21, 59.96, 245, 11520, 187_300)]
    ['85 ms', '3.2 s', '1 min 0 s', '4 min 5 s', '3 h 12 min', '2 d 4 h']
    """
    if seconds is None:
        return "-"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"


_UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def seconds_of(text: str) -> float:
    """Parse the output of :func:`duration`; raises ``ValueError`` for anything else.

    Examples
    --------
    >>> [seconds_of(duration(seconds)) for seconds in (0.085, 3.2, 245.0, 11520.0)]
    [0.085, 3.2, 245.0, 11520.0]
    """
    words = text.split()
    if not words or len(words) % 2 or not set(words[1::2]) <= set(_UNITS):
        raise ValueError(f"{text!r} is not a duration such as 4 min 5 s")
    return sum(float(number) * _UNITS[unit] for number, unit in zip(words[::2], words[1::2], strict=True))


def age_in(sentence: str) -> tuple[str, float, str] | None:
    """Split a sentence such as ``A has waited 3.2 s for B`` into the text before the age, the age in seconds, and the rest."""
    match = _WAITED.fullmatch(sentence)
    return None if match is None else (match[1], seconds_of(match[2]), match[3])


def aged(sentence: str, seconds: float) -> str:
    """``sentence`` with its age (see :func:`age_in`) increased by ``seconds``."""
    parts = age_in(sentence)
    return sentence if parts is None else f"{parts[0]}{duration(parts[1] + seconds)}{parts[2]}"
