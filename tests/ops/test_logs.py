"""Logs: one event per line, whatever its values contain."""

from __future__ import annotations

import json
import logging
from typing import Any

from detector.ops.logs import LineFormatter, Log


def lines(as_json: bool, tell: Any) -> list[str]:
    told: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(self.format(record))

    ear = Ear()
    ear.setFormatter(LineFormatter(as_json=as_json))
    logger = logging.getLogger("stilltrue-test-logs")
    logger.addHandler(ear)
    logger.setLevel(logging.INFO)
    try:
        tell(Log("stilltrue-test-logs"))
    finally:
        logger.removeHandler(ear)
    return told


def test_logfmt_quotes_values_if_needed_and_omits_unknown_ones() -> None:
    (line,) = lines(False, lambda log: log.info("member joined", process="a b", count=3, quote='say "x"\nnext', gone=None))
    assert ' level=info event="member joined" process="a b" count=3 quote="say \\"x\\"\\nnext"' in line
    assert "gone" not in line


def test_an_error_with_its_traceback_is_one_line() -> None:
    def tell(log: Log) -> None:
        try:
            int("first\nsecond")
        except ValueError as error:
            log.failure("snapshot failed", error, snapshot=7)

    for as_json in (True, False):
        (line,) = lines(as_json, tell)
        assert "\n" not in line
        assert "ValueError: invalid literal" in line
    told = json.loads(lines(True, tell)[0])
    assert (told["event"], told["level"], told["snapshot"]) == ("snapshot failed", "error", 7)
