"""Names about files and processes on which the waits and the second look agree."""

from __future__ import annotations

DELETES_FILES = "deletes files"
"""Among the names of code: it may take a file away from its path. No identifier contains a space."""
SIGNALS_PROCESSES = "signals processes"
"""Likewise: it may send a signal to a process by its id."""
