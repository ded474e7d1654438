"""`stilltrue stream`: its options are checked before Spark starts, and wrong usage is one line."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from detector.commands.archives.stream import stream
from detector.spark.session import reason
from tests.synthetic.object_storage import object_storage


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "name either an ARCHIVE or a --detector"),
        (["archive", "--detector", "127.0.0.1:7600"], "name either an ARCHIVE or a --detector"),
        (["nothing-here"], "nothing-here: no archive here"),
        (["--detector", "somewhere"], "address: 'somewhere' is not a valid HOST:PORT"),
        (["nothing-here", "--predicate", "nothing"], "nothing"),
    ],
)
def test_wrong_usage_is_an_error_in_one_line(arguments: list[str], words: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(stream, [*arguments, "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_missing_bucket_is_an_error_in_one_line_before_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "archive"
    (archive / "reports").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with object_storage():
        result = CliRunner().invoke(stream, ["archive", "--out", "s3://stilltrue-nowhere/verdicts"])
    assert result.exit_code == 2
    assert result.stderr.startswith("stilltrue: s3://stilltrue-nowhere/verdicts: ")
    assert "not found" in result.stderr
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == [archive], "no folder called s3:"


@pytest.mark.parametrize("occupied", ["reports", "_manifest"])
def test_a_folder_with_an_archive_or_an_analysis_is_refused_unchanged(occupied: str, tmp_path: Path) -> None:
    (tmp_path / "archive" / "reports").mkdir(parents=True)
    (tmp_path / "out" / occupied).mkdir(parents=True)
    result = CliRunner().invoke(stream, [str(tmp_path / "archive"), "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "choose another folder for these results" in result.stderr
    assert result.stderr.count("\n") == 1
    assert [path.name for path in (tmp_path / "out").iterdir()] == [occupied]


def test_an_absent_detector_is_an_error_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        result = CliRunner().invoke(stream, ["--detector", address, "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert result.stderr == f"stilltrue: no detector at {address}: connection refused\n"


def test_our_message_is_found_in_sparks_error() -> None:
    text = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted
Traceback (most recent call last):
  File "/x/remote.py", line 1, in after
    raise _failure(error)
detector.spark.source.detector_client.RowsLostError: the reports from position 1 to 2 are not there
"""
    assert reason(text) == "the reports from position 1 to 2 are not there"
    assert reason("[STREAM_FAILED] it broke\n\tat org.apache") == "[STREAM_FAILED] it broke"
