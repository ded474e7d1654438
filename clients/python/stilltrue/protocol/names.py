"""Valid process names: the check that agents and the detector share."""

from __future__ import annotations

from stilltrue.model import ProcessName
from stilltrue.protocol.stamp import NAME_LENGTH_MAX


class NameRefusedError(ValueError):
    """An invalid process name; the message says why, in one line."""


def check_process_name(name: str) -> ProcessName:
    """Return ``name`` if it is valid: printable ASCII without spaces, ``/`` (used in party names) or ``;`` (used in stamps).

    Raises :class:`NameRefusedError`.
    """
    if not 0 < len(name) <= NAME_LENGTH_MAX:
        raise NameRefusedError(f"a process name must have 1 to {NAME_LENGTH_MAX} characters, not {len(name)}")
    if any(not "!" <= letter <= "~" or letter in "/;" for letter in name):
        raise NameRefusedError(f"a process name must be ASCII without spaces, '/' or ';', not {name!r}")
    return ProcessName(name)


def as_process_name(text: str) -> ProcessName:
    """Make a valid process name from any text: invalid characters become ``-``, and it is truncated if too long."""
    letters = (letter if "!" <= letter <= "~" and letter not in "/;" else "-" for letter in text)
    return check_process_name("".join(letters)[:NAME_LENGTH_MAX] or "-")
