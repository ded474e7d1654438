"""An archive and its results in an object store: a real server with the S3 protocol, on loopback."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import fs

from detector.analysis.analyze import analyze
from detector.analysis.engine import LocalEngine
from detector.analysis.result_folder import Results
from detector.archive.compact import compact
from detector.archive.files import ArchiveFiles
from detector.archive.units import open_archive
from detector.archive.writer import ArchiveWriter
from detector.commands.archives.analyze import analyze as command
from tests.synthetic.hostile_archives import HARMLESS, NAMES, doubted_run, wanted, written
from tests.synthetic.object_storage import object_storage

pytestmark = pytest.mark.slow  # a server of object storage

ARCHIVE, OUT = "s3://stilltrue-tests/archive", "s3://stilltrue-tests/out"
KEYS = pa.schema([("archive", pa.string()), ("snapshot", pa.int64()), ("predicate", pa.string()), ("holds", pa.string())])


@pytest.fixture(scope="module")
def storage() -> Iterator[fs.FileSystem]:
    with object_storage() as made:
        yield made


def _told(results: Results) -> dict[tuple[str | None, int, str], str]:
    rows = results.read(results.last().tables["verdicts"], KEYS).to_pylist()
    return {(row["archive"], row["snapshot"], row["predicate"]): row["holds"] for row in rows}


@pytest.mark.longer
def test_an_archive_is_written_compacted_and_analysed_in_an_object_store(storage: fs.FileSystem, tmp_path: Path) -> None:
    """The same verdicts as from a disk; a second analysis reads no snapshot again, and the bucket holds nothing left over."""
    folder = written(tmp_path / "archive")
    HARMLESS["doubled"](folder)
    fs.copy_files(str(folder), ARCHIVE.removeprefix("s3://"), destination_filesystem=storage)
    compact(ArchiveFiles(ARCHIVE))
    said: list[str] = []
    first = analyze(LocalEngine(), open_archive(ARCHIVE), OUT, NAMES, progress=said.append)
    results = Results(location=OUT)
    truth = {key: verdict.holds.value for key, verdict in wanted().items()}
    assert _told(results) == truth
    again = analyze(LocalEngine(), open_archive(ARCHIVE), OUT, NAMES, progress=said.append)
    assert again == first
    assert "keeping the results of 1 day whose files have not changed" in said
    assert _told(results) == truth
    named = {f"out/{file.path}" for files in results.last().tables.values() for file in files}
    there = storage.get_file_info(fs.FileSelector("stilltrue-tests/out", recursive=True))
    found = {entry.path.removeprefix("stilltrue-tests/") for entry in there if entry.type == fs.FileType.File}
    assert found == named | {"out/_manifest/000000000002.json", "out/summary.json", "out/report.html"}


def test_a_detector_writes_to_an_object_store_and_the_command_reads_it(
    storage: fs.FileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = ArchiveWriter(ArchiveFiles(f"{ARCHIVE}-2"), archive="one", reports_max=40)
    for made in doubted_run().made[:9]:
        writer.add(made.assembled, members=made.members)
    writer.flush()
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(command, [f"{ARCHIVE}-2", "--out", f"{OUT}-2"])
    assert done.exit_code == 0, done.stderr
    assert done.stdout.endswith(f"report: {OUT}-2/report.html\n")
    assert storage.get_file_info("stilltrue-tests/out-2/report.html").size > 1000
    assert list(tmp_path.iterdir()) == [], "nothing on the disk"
    refused = CliRunner().invoke(command, ["s3://stilltrue-tests/none", "--out", f"{OUT}-2"])
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert "no archive here" in refused.stderr


def test_an_archive_that_cannot_be_reached_is_named(
    storage: fs.FileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It, and not the folder of the results."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
    result = CliRunner().invoke(command, [ARCHIVE, "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"stilltrue: {ARCHIVE}: ")
    assert "NETWORK_CONNECTION" in line
