"""Makes untrusted text safe to print: it cannot control a terminal or reverse the direction of a line."""

from __future__ import annotations

import re

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def printable(text: str) -> str:
    r"""Escape control characters (C0 except tab and newline, C1), bidi marks and lone surrogates.

    Examples
    --------
    >>> printable("a\x1b[31mb\u202ec")
    'a\\x1b[31mb\\u202ec'
    """
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


def cut(text: str, characters_max: int) -> str:
    """Shorten a long text to its beginning and end, with the number of characters left out.

    Examples
    --------
    >>> cut("abcdefghij", 4)
    'ab... (6 characters) ...ij'
    """
    left_out = len(text) - characters_max
    if left_out <= 0:
        return text
    half = characters_max // 2
    return f"{text[: characters_max - half]}... ({left_out} characters) ...{text[-half:]}"


def printable_json(written: str) -> str:
    """Escape in JSON what :func:`printable` escapes, as JSON escapes, which keeps its meaning."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", written)
