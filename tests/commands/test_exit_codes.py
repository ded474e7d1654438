"""No failure of a command exits with 1, which is an answer: ``ask`` exits with 1 if the predicate does not hold."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import click
import pytest

from detector.commands.shared.render import console
from detector.commands.shared.run import CommandError, run_command

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")


@click.command
def answering() -> None:
    """Print an answer, and exit with its code, as ``ask`` does."""
    click.echo("deadlock: TRUE")
    sys.exit(0)


@click.command
def buffered() -> None:
    """Exit before the answer has left the buffer."""
    sys.stdout.write("deadlock: TRUE\n")
    sys.exit(0)


@needs_full
@pytest.mark.parametrize("command", [answering, buffered], ids=["flushed", "buffered"])
def test_an_answer_that_cannot_be_written_is_an_error(command: click.Command, capsys: pytest.CaptureFixture[str]) -> None:
    with FULL.open("w") as full, contextlib.redirect_stdout(full):
        assert run_command(command, []) == 2
    assert capsys.readouterr().err == "stilltrue: cannot write the output: No space left on device\n"


def test_a_file_that_cannot_be_opened_is_an_error_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for named, reason in ((tmp_path, "Is a directory"), (tmp_path / "absent" / "out.svg", "No such file or directory")):

        @click.command
        def drawing(named: Path = named) -> None:
            named.write_text("<svg/>")

        assert run_command(drawing, []) == 2
        assert capsys.readouterr().err == f"stilltrue: {named}: {reason}\n"


def test_an_error_does_not_show_the_systems_number(capsys: pytest.CaptureFixture[str]) -> None:
    @click.command
    def failing() -> None:
        raise CommandError("[Errno 13] Permission denied: 'out'")

    assert run_command(failing, []) == 2
    assert capsys.readouterr().err == "stilltrue: Permission denied: 'out'\n"


def test_an_unexpected_exception_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    @click.command
    def failing() -> None:
        raise KeyError("a defect")

    assert run_command(failing, []) == 2
    assert "KeyError: 'a defect'" in capsys.readouterr().err


def test_text_for_a_closed_pipe_ends_the_command_as_any_output_does() -> None:
    @click.command
    def printing() -> None:
        console().print("all 3 members")

    program = subprocess.Popen(["true"], stdin=subprocess.PIPE, text=True)
    program.wait(10)
    assert program.stdin is not None
    with contextlib.suppress(BrokenPipeError), program.stdin as pipe, contextlib.redirect_stdout(pipe):
        assert run_command(printing, []) == 141


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_standard_stream_is_the_null_device(closed: str) -> None:
    command = f"'{sys.executable}' -m detector completion bash {closed}"
    done = subprocess.run(["sh", "-c", command], check=False, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("command", ["serve --port 0 --http-port 0", "check-predicate m:C"])
def test_a_current_directory_that_was_removed_is_an_error_in_one_line(command: str, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f"cd '{gone}' && rmdir '{gone}' && PYTHONPATH='{Path.cwd()}' exec '{sys.executable}' -m detector {command}"
    done = subprocess.run(["sh", "-c", script], check=False, capture_output=True, timeout=60, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "stilltrue: the current directory no longer exists: change to another one (cd)\n"
