"""A thread that waits for the lock of a file waits for the party that holds it, as far as that is certain."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import pytest

from stilltrue.model import PartyName
from stilltrue.protocol.report import Hold, LocalWait, Report, ResourceTarget
from stilltrue.protocol.requests.look import LookRequest, PartyLook, Suspect
from stilltrue.runtime.waits.files import kernel
from tests.client.look.worlds import PATIENCE_SECONDS, look_at, of, report_when
from tests.client.waits.conftest import Front

pytestmark = pytest.mark.skipif(not Path("/proc/self/fdinfo").exists(), reason="the system does not show locks")
Holder = Callable[[Path, Callable[[bytes], Any]], object]


def by_file_object(path: Path, call: Callable[[bytes], Any]) -> None:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        call(b"")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def by_generator(path: Path, call: Callable[[bytes], Any]) -> None:
    with locked(path):
        call(b"")


class Locked:
    """A class of an application that locks a file on entry."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        self.file = self.path.open("w")
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.file.close()


def by_object(path: Path, call: Callable[[bytes], Any]) -> None:
    with Locked(path):
        call(b"")


def by_library(path: Path, call: Callable[[bytes], Any]) -> None:
    with filelock().FileLock(path):
        call(b"")


def by_library_without_block(path: Path, call: Callable[[bytes], Any]) -> None:
    lock = filelock().FileLock(path)
    lock.acquire()
    try:
        call(b"")
    finally:
        lock.release()


def shared(path: Path, call: Callable[[bytes], Any]) -> None:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        call(b"")


def by_number(path: Path, call: Callable[[bytes], Any]) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    call(b"")
    os.close(descriptor)


def of_all_threads(path: Path, call: Callable[[bytes], Any]) -> None:
    with filelock().FileLock(path, thread_local=False):
        call(b"")


def released(path: Path, call: Callable[[bytes], Any]) -> None:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        fcntl.flock(file, fcntl.LOCK_UN)
        call(b"")


def filelock() -> Any:
    return pytest.importorskip("filelock")


def wait_in_kernel(path: Path) -> None:
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


def poll(path: Path, **limits: Any) -> None:
    with filelock().FileLock(path, poll_interval=0.01, **limits):
        pass


def wait_of(report: Report) -> LocalWait | None:
    """The waiter's wait for a resource."""
    found = [one for one in report.waits if one.waiter == "front/thread:waiter" and isinstance(one.among[0], ResourceTarget)]
    return found[0] if found else None


def holds_of(report: Report) -> list[Hold]:
    return [one for one in report.holds if one.resource.startswith("file lock ")]


def waits_for_holder(report: Report) -> bool:
    wait = wait_of(report)
    return wait is not None and [Hold(party="front/thread:holder", resource=wait.among[0].resource)] == holds_of(report)  # type: ignore[union-attr,arg-type]


def report_that(front: Front, found: Callable[[Report], bool]) -> Report:
    """A report for which this is true; the agent's own thread is at work meanwhile."""

    def after_search(report: Report) -> bool:
        front.agent._observer.searchers.search(time.time())
        return found(report)

    return report_when(front.agent, after_search)


def settled(front: Front) -> Report:
    """The report once everything is known that may be known of waits and locks."""
    end = time.monotonic() + 1.0
    return report_that(front, lambda _: time.monotonic() > end)


@pytest.mark.parametrize("wait", [wait_in_kernel, poll])
@pytest.mark.parametrize("hold", [by_file_object, by_generator, by_object, by_library, by_library_without_block])
def test_a_waiter_for_a_file_lock_waits_for_its_holder(front: Front, tmp_path: Path, hold: Holder, wait: Any) -> None:
    front.hold(hold, tmp_path / "lock", front.get)
    front.start("waiter", wait, tmp_path / "lock")
    report = report_that(front, waits_for_holder)
    look = look_at(front.agent, report)
    for party in ("front/thread:holder", "front/thread:waiter"):
        assert of(look, party).unchanged
        assert (of(look, party).doubt, of(look, party).ways_out) == ("", ())
    front.let_go()


@pytest.mark.parametrize("hold", [shared, by_number, of_all_threads, released])
def test_a_lock_that_others_may_release_has_no_known_holder(front: Front, tmp_path: Path, hold: Holder) -> None:
    front.hold(hold, tmp_path / "lock", front.get)
    front.start("waiter", wait_in_kernel, tmp_path / "lock")
    assert holds_of(settled(front)) == []
    front.let_go()


@pytest.mark.parametrize("limits", [{"timeout": 15}, {"cancel_check": bool}])
def test_a_poll_with_a_limit_is_not_a_wait(front: Front, tmp_path: Path, limits: dict[str, Any]) -> None:
    front.hold(by_library, tmp_path / "lock", front.get)
    lock = filelock().FileLock(tmp_path / "lock")
    front.start("waiter", lambda: lock.acquire(poll_interval=0.01, **limits))
    assert wait_of(settled(front)) is None
    front.let_go()


def test_the_same_poll_is_the_same_wait(front: Front, tmp_path: Path) -> None:
    front.hold(by_library, tmp_path / "lock", front.get)
    front.start("waiter", poll, tmp_path / "lock")
    numbers = [wait.number for _ in range(2) if (wait := wait_of(report_that(front, waits_for_holder))) is not None]
    assert len(numbers) == 2
    assert numbers[0] == numbers[1]
    front.let_go()


def test_a_file_that_is_not_at_its_path_any_more_is_not_waited_for(front: Front, tmp_path: Path) -> None:
    front.hold(by_library, tmp_path / "lock", front.get)
    go = threading.Event()

    def slow_poll() -> None:
        with filelock().FileLock(tmp_path / "lock", poll_interval=2.0):
            go.set()

    front.start("waiter", slow_poll)
    report = report_that(front, waits_for_holder)
    (tmp_path / "lock").unlink()
    assert not of(look_at(front.agent, report), "front/thread:waiter").unchanged
    assert go.wait(PATIENCE_SECONDS)
    front.let_go()


def test_another_party_that_deletes_files_may_end_a_poll(front: Front, tmp_path: Path) -> None:
    go = threading.Event()

    def clean() -> None:
        go.wait(PATIENCE_SECONDS)
        os.remove(tmp_path / "lock")  # noqa: PTH107 - one of the ways to do it

    front.hold(by_library, tmp_path / "lock", front.get)
    front.start("waiter", poll, tmp_path / "lock")
    front.start("cleaner", clean)
    report = report_that(front, waits_for_holder)
    assert of(look_at(front.agent, report), "front/thread:waiter").ways_out
    go.set()
    front.let_go()


@pytest.mark.parametrize(
    ("command", "may"),
    [
        (["sh", "-c", "sleep 60; rm -f app.lock"], True),
        (["sh", "-c", "sleep 60; find . -name '*.lock' -delete"], True),
        ([sys.executable, "-ISc", "import pathlib, time; time.sleep(60); pathlib.Path('app.lock').unlink()"], True),
        (["sh", "-c", "sleep 60; echo rmdir-like"], False),
    ],
)
def test_a_child_process_that_deletes_files_may_end_a_poll(front: Front, tmp_path: Path, command: list[str], may: bool) -> None:
    front.hold(by_library, tmp_path / "lock", front.get)
    front.start("waiter", poll, tmp_path / "lock")
    report = report_that(front, waits_for_holder)
    with subprocess.Popen(command, cwd=tmp_path, start_new_session=True) as child:
        seen = of(look_at(front.agent, report), "front/thread:waiter")
        os.killpg(child.pid, signal.SIGKILL)
    assert seen.unchanged is not may
    front.let_go()


def test_a_temporary_directory_that_is_cleaned_up_may_end_a_poll(front: Front, tmp_path: Path) -> None:
    go, folder = threading.Event(), tempfile.TemporaryDirectory(dir=tmp_path)

    def clean() -> None:
        go.wait(PATIENCE_SECONDS)
        folder.cleanup()

    front.hold(by_library, Path(folder.name) / "lock", front.get)
    front.start("waiter", poll, Path(folder.name) / "lock")
    cleaner = threading.Thread(target=clean)
    cleaner.start()
    report = report_that(front, waits_for_holder)
    assert of(look_at(front.agent, report), "front/thread:waiter").ways_out
    front.let_go()
    go.set()
    cleaner.join()


def test_another_party_that_has_the_file_may_release_it(front: Front, tmp_path: Path) -> None:
    go, files = threading.Event(), list[IO[str]]()

    def hold() -> None:
        with (tmp_path / "lock").open("w") as file:
            files.append(file)
            fcntl.flock(file, fcntl.LOCK_EX)
            front.get(b"")

    def close() -> None:
        go.wait(PATIENCE_SECONDS)
        fcntl.flock(files.pop(), fcntl.LOCK_UN)

    front.hold(hold)
    front.start("waiter", wait_in_kernel, tmp_path / "lock")
    front.start("closer", close)
    report = report_that(front, waits_for_holder)
    assert of(look_at(front.agent, report), "front/thread:holder").ways_out
    go.set()
    front.let_go()


def test_a_second_descriptor_of_the_open_file_is_doubt(front: Front, tmp_path: Path) -> None:
    descriptors: list[int] = []

    def hold() -> None:
        with (tmp_path / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            descriptors.append(os.dup(file.fileno()))
            front.get(b"")

    front.hold(hold)
    front.start("waiter", wait_in_kernel, tmp_path / "lock")
    report = report_that(front, waits_for_holder)
    assert "another descriptor" in of(look_at(front.agent, report), "front/thread:holder").doubt
    os.close(descriptors[0])
    front.let_go()


def test_a_locked_descriptor_is_counted_in_this_process_and_its_children(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        locked = kernel.locked_through(file.fileno())
        assert locked is not None
        assert locked == kernel.file_at(file.fileno())
        assert kernel.may_have_locks()
        assert kernel.locking_descriptors(locked) == (1, 0, "")
        other = os.dup(file.fileno())
        assert kernel.locking_descriptors(locked) == (2, 0, "")
        os.close(other)
        fcntl.flock(file, fcntl.LOCK_UN)
        assert kernel.locked_through(file.fileno()) is None
        fcntl.flock(file, fcntl.LOCK_SH)
        assert kernel.locked_through(file.fileno()) is None


_HOLDS = (
    "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
)


@contextmanager
def locked_by_another_process(path: Path) -> Iterator[None]:
    """A lock by ``lockf()`` excludes only other processes."""
    command = [sys.executable, "-c", _HOLDS, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield


def wait_in_fcntl(path: Path) -> None:
    with path.open("a") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)


needs_fasteners = pytest.mark.skipif(find_spec("fasteners") is None, reason="fasteners is not installed")


def wait_in_fasteners(path: Path) -> None:
    with import_module("fasteners").InterProcessLock(path):
        pass


@pytest.mark.parametrize("wait", [wait_in_fcntl, pytest.param(wait_in_fasteners, marks=needs_fasteners)])
def test_a_waiter_for_another_process_s_lock_waits_for_its_holder(front: Front, tmp_path: Path, wait: Any) -> None:
    with locked_by_another_process(tmp_path / "lock"):
        front.start("waiter", wait, tmp_path / "lock")
        found = wait_of(report_that(front, lambda report: wait_of(report) is not None))
        with (tmp_path / "lock").open() as file:
            locked = kernel.file_at(file.fileno(), posix=True)
        assert found is not None
        assert locked is not None
        assert found.among == (ResourceTarget(resource=kernel.lock_resource(locked) or ""),)
        assert found.among != (ResourceTarget(resource=kernel.lock_resource(replace(locked, posix=False)) or ""),)
        look = look_at(front.agent, report_that(front, lambda report: wait_of(report) is not None))
        assert of(look, "front/thread:waiter").unchanged
    front.let_go()


def poll_fasteners(path: Path) -> None:
    import_module("fasteners").InterProcessLock(path).acquire(timeout=PATIENCE_SECONDS)


@needs_fasteners
def test_a_poll_of_fasteners_with_a_limit_is_not_a_wait(front: Front, tmp_path: Path) -> None:
    with locked_by_another_process(tmp_path / "lock"):
        front.start("waiter", poll_fasteners, tmp_path / "lock")
        assert wait_of(settled(front)) is None
    front.let_go()


def hold_by_lockf(path: Path, call: Callable[[bytes], Any]) -> None:
    with path.open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        call(b"")


def hold_by_fasteners(path: Path, call: Callable[[bytes], Any]) -> None:
    with import_module("fasteners").InterProcessLock(path):
        call(b"")


def hold_a_part(path: Path, call: Callable[[bytes], Any]) -> None:
    with path.open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX, 10)
        call(b"")


def posix_holds_of(report: Report) -> list[Hold]:
    return [one for one in report.holds if one.resource.startswith("POSIX file lock ")]


@pytest.mark.parametrize("hold", [hold_by_lockf, pytest.param(hold_by_fasteners, marks=needs_fasteners)])
def test_the_party_that_has_the_open_file_holds_its_process_s_lock(front: Front, tmp_path: Path, hold: Holder) -> None:
    front.hold(hold, tmp_path / "lock", front.get)
    report = report_that(front, lambda report: bool(posix_holds_of(report)))
    assert {one.party for one in posix_holds_of(report)} == {"front/thread:holder"}
    assert holder_in(front, report).doubt == ""
    assert holder_in(front, report).ways_out == ()
    front.let_go()


def holder_in(front: Front, report: Report) -> PartyLook:
    """The second look at the holder, as a suspect."""
    number = next(made.wait for made in front.agent.live.recorder.calls_made.values() if made.party == "front/thread:holder")
    suspect = Suspect(party=PartyName("front/thread:holder"), waits=(number,))
    return of(front.agent.looker().look(LookRequest(snapshot=report.snapshot, suspects=(suspect,))), suspect.party)


def test_a_lock_of_a_part_of_a_file_has_no_known_holder(front: Front, tmp_path: Path) -> None:
    front.hold(hold_a_part, tmp_path / "lock", front.get)
    assert posix_holds_of(settled(front)) == []
    front.let_go()


def test_another_descriptor_on_the_file_would_release_the_process_s_lock(front: Front, tmp_path: Path) -> None:
    front.hold(hold_by_lockf, tmp_path / "lock", front.get)
    report = report_that(front, lambda report: bool(posix_holds_of(report)))
    with (tmp_path / "lock").open():
        assert "another descriptor is open" in holder_in(front, report).doubt
    front.let_go()


def read_later(go: threading.Event, path: Path) -> None:
    go.wait(PATIENCE_SECONDS)
    path.read_text()


def copy_later(go: threading.Event, path: Path) -> None:
    go.wait(PATIENCE_SECONDS)
    shutil.copy(path, f"{path}.old")


def archive_later(go: threading.Event, path: Path) -> None:
    go.wait(PATIENCE_SECONDS)
    zipfile.ZipFile(f"{path}.zip", "w").write(path)


def run_later(go: threading.Event, path: Path, function: Callable[[Path], object]) -> None:
    go.wait(PATIENCE_SECONDS)
    function(path)


def read(path: Path) -> object:
    with path.open() as file:
        return file.read()


def read_by_a_function_given(go: threading.Event, path: Path) -> None:
    run_later(go, path, read)


@pytest.mark.parametrize("work", [read_later, copy_later, archive_later, read_by_a_function_given])
def test_another_party_that_will_open_files_may_release_the_process_s_lock(
    front: Front, tmp_path: Path, work: Callable[[threading.Event, Path], None]
) -> None:
    go = threading.Event()
    front.start("reader", work, go, tmp_path / "lock")
    front.hold(hold_by_lockf, tmp_path / "lock", front.get)
    report = report_that(front, lambda report: bool(posix_holds_of(report)))
    assert holder_in(front, report).ways_out
    go.set()
    front.let_go()


def unlock_later(go: threading.Event, number: int) -> None:
    go.wait(PATIENCE_SECONDS)
    fcntl.flock(number, fcntl.LOCK_UN)


def close_later(go: threading.Event, number: int) -> None:
    go.wait(PATIENCE_SECONDS)
    os.close(number)


def lock_another_later(go: threading.Event, number: int) -> None:
    go.wait(PATIENCE_SECONDS)
    fcntl.flock(number, fcntl.LOCK_EX)
    fcntl.flock(number, fcntl.LOCK_UN)


@pytest.mark.parametrize(("work", "may"), [(unlock_later, True), (close_later, True), (lock_another_later, False)])
def test_another_party_may_unlock_the_file_by_its_descriptor(
    front: Front, tmp_path: Path, work: Callable[[threading.Event, int], None], may: bool
) -> None:
    go = threading.Event()
    reader, writer = os.pipe()  # a number: which file is meant is not analysed
    front.start("other", work, go, reader)
    front.hold(by_file_object, tmp_path / "lock", front.get)
    report = report_that(front, lambda report: bool(holds_of(report)))
    assert bool(holder_in(front, report).ways_out) is may
    go.set()
    front.let_go()
    os.close(writer)
