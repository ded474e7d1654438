"""One event per line on standard error, as logfmt or JSON: time, level, event, values."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Mapping

from detector.ops.clock import utc_milliseconds
from detector.ops.printable_text import cut, printable

TEXT_CHARACTERS_MAX = 4000
"""Longer values are cut, so that clients that send megabytes of names cannot fill the disk."""
_PLAIN = re.compile(r"[^\s\"=]+")
_FIELDS = "stilltrue_fields"


class Log:
    """Writes events: ``log.info("snapshot ended", snapshot=7, outcome="complete")``."""

    def __init__(self, name: str) -> None:
        """``name``: the logger's name."""
        self._logger = logging.getLogger(name)

    def info(self, event: str, **values: object) -> None:
        """Log a normal event."""
        self._logger.info(event, extra={_FIELDS: values})

    def warning(self, event: str, **values: object) -> None:
        """Log an event that needs attention; the service goes on."""
        self._logger.warning(event, extra={_FIELDS: values})

    def failure(self, event: str, cause: BaseException | None = None, **values: object) -> None:
        """Log an error; ``cause`` is added with its traceback, on the same line."""
        self._logger.error(event, exc_info=cause, extra={_FIELDS: values})


def fields_of(values: Mapping[str, object]) -> dict[str, object]:
    """The attributes of a log record with which ``values`` are logged."""
    return {_FIELDS: dict(values)}


class LineFormatter(logging.Formatter):
    """Formats a record as one line of logfmt or JSON."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """Format ``record`` on one line, whatever the values contain."""
        values: dict[str, object] = {
            "time": utc_milliseconds(record.created),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        values.update(getattr(record, _FIELDS, {}))
        if record.name != "stilltrue":
            values["logger"] = record.name
        if record.exc_info:
            values["traceback"] = self.formatException(record.exc_info)
        values = {name: _cut(value) for name, value in values.items()}
        return json.dumps(values, default=str) if self._as_json else _logfmt(values)


def _logfmt(values: Mapping[str, object]) -> str:
    return " ".join(f"{name}={_quoted(value)}" for name, value in values.items() if value is not None)


def _cut(value: object) -> object:
    if value is None or isinstance(value, int | float):
        return value
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= TEXT_CHARACTERS_MAX else cut(text, TEXT_CHARACTERS_MAX)


def _quoted(value: object) -> str:
    text = printable(f"{value:.6g}" if isinstance(value, float) else str(value))
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def configure(log_format: str) -> None:
    """Send every event of this process to standard error in ``log_format`` ("logfmt" or "json")."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(as_json=log_format == "json"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
