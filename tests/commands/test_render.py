"""Text for people: times that local time cannot show, names that cannot be encoded, victims named once."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from detector.cli import cli
from detector.commands.live.ask import HOW_TO_FIX, LOOK_GOES_ON, hint_for
from detector.commands.shared.render import PIPE_WIDTH, START_ONE, console, print_verdict, table
from detector.commands.shared.run import run_command
from detector.core.sentences import NO_MEMBERS, remarks_of
from detector.core.times import local_time, read_time
from stilltrue.model import Holds, PartyName, ProcessName, Verdict, Witness


@pytest.mark.parametrize(
    ("zone", "text"), [("Asia/Tokyo", "9999-12-31T23:59:59Z"), ("America/New_York", "0001-01-01T00:00:00Z")]
)
def test_a_time_that_local_time_cannot_show_is_in_utc(monkeypatch: pytest.MonkeyPatch, zone: str, text: str) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert local_time(read_time(text)) == text
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_name_that_cannot_be_encoded_is_escaped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "odd.json"
    file.write_text(json.dumps({"waits": [{"waiter": "a\ud800/\u2717", "among": ["a\ud800/\u2717"]}]}))
    for encoding, name in (("utf-8", "a\\ud800/\u2717"), ("latin-1", "a\\ud800/\\u2717")):
        out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        monkeypatch.setattr(sys, "stdout", out)
        assert run_command(cli, ["evaluate", "deadlock", str(file)]) == 0
        assert f"{name} waits for itself" in out.buffer.getvalue().decode(encoding)


def test_a_name_between_colons_is_no_emoji(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wait "for orders/lock:key: orders/Place#1" read "for orders/lock" and a picture of a key."""
    file = tmp_path / "locks.json"
    wait = {"waiter": "a/X#1", "among": ["a/Y#1"], "what": "a/lock:key"}
    file.write_text(json.dumps({"waits": [wait, {"waiter": "a/Y#1", "among": ["a/X#1"], "what": "a/lock:b"}]}))
    assert run_command(cli, ["evaluate", "deadlock", str(file)]) == 0
    out = capsys.readouterr().out
    assert "waits for a/lock:key: a/Y#1" in out
    assert "waits for a/lock:b: a/X#1" in out
    for width in (PIPE_WIDTH, 40, 18):  # in a pipe, on a terminal, on a narrow one
        shown = console()
        shown.width = width
        shown.print(table(["party", "state", "what"], [["lock:key:", "free", "a long wait"]]))
        assert "lock:key:" in capsys.readouterr().out


@pytest.mark.parametrize("told", [True, False])
def test_the_victims_are_named_once(capsys: pytest.CaptureFixture[str], told: bool) -> None:
    parties = (PartyName("a/X#1"), PartyName("b/Y#1"))
    suggestion = ("aborting 1 party would free both (the fewest possible): b/Y#1",) if told else ()
    verdict = Verdict(
        predicate="deadlock",
        holds=Holds.TRUE,
        witness=Witness(kind="cycle", parties=parties, text="cycle: a/X#1 -> b/Y#1 -> a/X#1"),
        remainder=parties,
        core=parties,
        victims=parties[1:],
        explanation=(*suggestion, "b/Y#1 is at app.py:7 in reserve"),
    )
    print_verdict(verdict)
    assert capsys.readouterr().out.count("aborting") == 1


def remarked() -> Verdict:
    """A FALSE with two remarks, one of which has a semicolon in parentheses."""
    text = (
        "no party was waiting as of 14:02:11; but 2 calls have not moved, at orders-0 (stilltrue stacks); 1 party waits for a "
        "call that no member has received (orders-0/Place#7 for /shop.Stock/Reserve; at stock:50051): see stilltrue doctor"
    )
    return Verdict(predicate="deadlock", holds=Holds.FALSE, witness=Witness(kind="none", parties=(), text=text))


def test_in_a_pipe_each_part_of_a_verdict_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_verdict(remarked())
    assert capsys.readouterr().out == f"deadlock: not when the snapshot began\n  {remarked().witness.text}\n"


@pytest.mark.parametrize("width", [40, 60, 100])
def test_on_a_terminal_each_remark_begins_a_line_and_none_is_too_long(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    print_verdict(remarked())
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.startswith("deadlock: not when")
    assert max(map(len, lines)) <= width
    begun = [line.split()[0] for line in lines if not line.startswith("    ")]
    assert begun == ["no", "but", "1"]
    assert " ".join(" ".join(lines).split()) == remarked().witness.text.replace("; but", " but").replace(
        "; 1 party", " 1 party"
    )


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("and so on", ["and so on"]),
        ("a (b; c", ["a (b; c"]),
        ("gathering, 0 of 1 back; not yet: b; and 1 more", ["gathering, 0 of 1 back; not yet: b; and 1 more"]),
        ("nobody waits; but 2 calls have not moved", ["nobody waits", "but 2 calls have not moved"]),
    ],
)
def test_an_enumeration_stays_with_its_remark_and_no_text_is_lost(text: str, parts: list[str]) -> None:
    assert remarks_of(text) == parts


def test_on_a_terminal_a_long_name_is_not_broken(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "30")
    place = "/home/you/a/long/way/down/to/shop.py:35"
    explanation = (f"b/Y#1 is at {place} in call",)
    witness = Witness(kind="none", parties=(), text="")
    print_verdict(Verdict(predicate="deadlock", holds=Holds.TRUE, witness=witness, explanation=explanation))
    assert f"    {place}\n" in capsys.readouterr().out


def test_wide_omits_nothing_even_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    assert (console().width, console(wide=True).width) == (40, PIPE_WIDTH)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    assert console().width == PIPE_WIDTH


@pytest.mark.parametrize("width", [40, 80, 132])
def test_a_column_that_must_not_be_cut_wraps_to_the_next_line(width: int) -> None:
    place, reply = "checkout_reservations.py:1233 in ReservationService.reserve", "the reply to /shop.Orders/Note"
    out = Console(file=io.StringIO(), width=width, color_system=None)
    with out.capture() as text:
        out.print(table(("party", "in", "at"), [("-", reply, place)], flexible={"in"}, whole={"party", "at"}))
    lines = text.get().splitlines()
    assert max(map(len, lines)) <= width
    column = lines[0].index("at")
    assert "".join(line[column:] for line in lines[1:]).replace(" ", "") == place.replace(" ", "")


@pytest.mark.parametrize(
    ("width", "process", "side_by_side"),
    [
        (36, "orders-0", False),
        (60, "orders-0", True),
        (60, "o" * 40, False),
        (80, "o" * 40, True),
        (PIPE_WIDTH, "orders-0", True),
    ],
)
def test_a_row_that_does_not_fit_takes_a_line_for_each_cell(width: int, process: str, side_by_side: bool) -> None:
    row = (process, "live", "12 s ago", "1 server, 2 channels, 7 calls, 5 parties")
    out = Console(file=io.StringIO(), width=width, color_system=None)
    with out.capture() as text:
        out.print(table(("process", "state", "last seen", "sees"), [row, row], flexible={"sees"}))
    lines = [line.rstrip() for line in text.get().splitlines()]
    first = ["process    state  last seen  sees", "process    " + process]
    assert [" ".join(line.split()) for line in lines[:1]] == [" ".join(first[not side_by_side].split())]
    assert max(map(len, lines)) <= width
    assert process in text.get()
    assert "…" not in text.get()


@pytest.mark.parametrize(
    ("width", "head"),
    [
        (100, ["id", "took", "members", "missing"]),
        (52, ["id", "members", "missing"]),
        (44, ["id", "missing"]),
        (30, ["id", "i-1"]),
    ],
)
def test_a_table_leaves_out_its_least_columns_before_it_breaks_a_word(width: int, head: list[str]) -> None:
    pods = ["payment-gateway-service-7c9f8b6d5-x2x", "orders-0"]
    out = Console(file=io.StringIO(), width=width, color_system=None)
    with out.capture() as text:
        row = ("i-1", "12 ms", "2", ", ".join(pods))
        out.print(table(("id", "took", "members", "missing"), [row], flexible={"missing"}, least=("took", "members")))
    lines = text.get().splitlines()
    assert lines[0].split() == head
    assert max(len(line.rstrip()) for line in lines) <= width
    assert "".join(pods) in text.get().replace(",", "").replace("\n", "").replace(" ", "").replace("missing", "")
    assert "…" not in text.get()


@pytest.mark.parametrize("imported", ["click", "traceback"])
def test_ctrl_c_while_the_command_is_being_imported_prints_nothing(tmp_path: Path, imported: str) -> None:
    (tmp_path / f"{imported}.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    path = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-m", "detector", "--help"], env=path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


def test_the_lines_of_a_table_in_a_pipe_have_no_trailing_spaces(capsys: pytest.CaptureFixture[str]) -> None:
    console().print(table(("id", "ended", "x"), [("i-1", "[red]open[/]", ""), ("i-22", "they went on before snapshot 7", "é")]))
    assert capsys.readouterr().out == (
        "id    ended                           x\ni-1   open\ni-22  they went on before snapshot 7  é\n"
    )


@pytest.mark.parametrize(
    ("holds", "text", "missing", "hint"),
    [
        (Holds.UNDETERMINED, NO_MEMBERS, (), START_ONE),
        (Holds.UNDETERMINED, "a/1 may be deadlocked: it depends on b, which did not report", ("b",), HOW_TO_FIX),
        (Holds.UNDETERMINED, "a/1 could not be looked at again (a did not answer within 3 s)", (), LOOK_GOES_ON),
        (Holds.UNDETERMINED, "no process and no message declares the fact 'token'", (), ""),
        (Holds.FALSE, "no party was waiting", ("b",), ""),
    ],
)
def test_an_undetermined_answer_says_what_to_do(holds: Holds, text: str, missing: tuple[str, ...], hint: str) -> None:
    witness = Witness(kind="any", parties=(), text=text)
    silent = tuple(map(ProcessName, missing))
    assert hint_for(Verdict(predicate="deadlock", holds=holds, witness=witness, missing=silent)) == hint
