"""Untrusted text cannot control a terminal, in tables, log lines or JSON."""

from __future__ import annotations

import json
import logging

import pytest

from detector.commands.shared.render import escape
from detector.ops.logs import LineFormatter
from detector.ops.printable_text import printable, printable_json

UNSAFE = ["\x1b[2J", "\x9b31m", "\u202egnp", "\u2066x", "\x00", "\x07", "\r", "\u2028", "\ud800"]


@pytest.mark.parametrize("text", UNSAFE)
def test_control_characters_are_removed(text: str) -> None:
    assert printable(text).isprintable()
    assert escape(f"[red]{text}").isprintable()
    written = printable_json(json.dumps(text, ensure_ascii=False))
    assert (written.isprintable(), json.loads(written)) == (True, text)


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("text", UNSAFE)
def test_log_lines_have_no_control_characters(text: str, as_json: bool) -> None:
    record = logging.makeLogRecord({"msg": "member joined", "stilltrue_fields": {"process": text}, "name": "stilltrue"})
    assert LineFormatter(as_json=as_json).format(record).isprintable()


def test_ordinary_text_is_unchanged() -> None:
    for text in ("orders/Place#7", "größe", "\u65e5\u672c", "a\tb"):
        assert printable(text) == text
