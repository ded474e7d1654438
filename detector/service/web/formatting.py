"""Formats values for pages: times, ages, sentences that contain ages, and untrusted text."""

from __future__ import annotations

import re
import time

from markupsafe import Markup, escape

from detector.core.times import age_in, duration, read_time, write_time
from detector.ops.printable_text import printable

_HYPHENATED = re.compile(r"\S+-\S+")
_CLOCK = re.compile(r"(?<=as of )((?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d)\b")


def printable_value(value: object) -> object:
    """Remove control and bidirectional characters from text."""
    if isinstance(value, Markup):
        return Markup(printable(str(value)))
    return printable(value) if isinstance(value, str) else value


def whole(text: str) -> Markup:
    """Text in which a name with hyphens, such as a pod's, is not broken at one of them if it fits on a line."""
    return Markup(_HYPHENATED.sub(lambda name: f"<span class=name>{name[0]}</span>", str(escape(text))))


def moment(at: str | None) -> Markup | str:
    """A UTC time with seconds; ``at``: in the API's format."""
    return "-" if at is None else _moment(read_time(at))


def since(at: str | None) -> Markup | str:
    """The time since ``at``, which counts up in the browser."""
    if at is None:
        return ""
    seconds = read_time(at)
    return Markup("<span data-since={}>{}</span>").format(Markup(f'"{seconds}"'), age(seconds, time.time()))


def age(moment: float, now: float) -> str:
    """The time since ``moment`` in words."""
    return duration(max(0.0, now - moment))


def between(begun: str, ended: str) -> str:
    """The time from ``begun`` to ``ended``, in words."""
    return duration(read_time(ended) - read_time(begun))


def counting(sentence: str, at: str | None) -> Markup:
    """A sentence about a wait as of ``at``, whose age counts up in the browser."""
    found = age_in(sentence)
    if found is None or at is None:
        return whole(sentence)
    before, waited, after = found
    ages = Markup('<span data-since="{}">{}</span>').format(read_time(at) - waited, duration(waited))
    return whole(before) + ages + whole(after)


def timed(sentence: str, about: str | None) -> Markup:
    """A sentence whose times of day the browser localizes; ``about``: a moment within half a day of them."""
    parts = _CLOCK.split(sentence)
    if about is None or len(parts) == 1:
        return whole(sentence)
    text = Markup()
    for at, part in enumerate(parts):
        text += _moment(_nearest(part, read_time(about))) if at % 2 else whole(part)
    return text


def _moment(seconds: float) -> Markup:
    text = write_time(float(int(seconds)))
    short = text[11:19] if time.time() - seconds < 43200 else text
    return Markup("<time datetime={}>{}</time>").format(text, short)


def _nearest(clock: str, about: float) -> float:
    """The moment nearest to ``about`` with the UTC time of day ``clock``."""
    hours, minutes, seconds = map(int, clock.split(":"))
    same_day = about - about % 86400 + 3600 * hours + 60 * minutes + seconds
    return min((same_day - 86400, same_day, same_day + 86400), key=lambda moment: abs(moment - about))
