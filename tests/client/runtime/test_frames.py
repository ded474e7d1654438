"""Reads of all threads' frames: no garbage collection happens in between, and the read keeps nothing alive."""

from __future__ import annotations

import ast
import gc
import logging
import os
import sys
import threading
import weakref
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import stilltrue
from stilltrue.runtime.introspection import frames

PATIENCE_SECONDS = 10.0


class Frame:
    """A frame that records whether a collection could begin while it was read."""

    def __init__(self) -> None:
        self.collected: list[bool] = []
        self.f_code = stuck.__code__
        self.f_trace, self.f_lasti = None, -1

    @property
    def f_locals(self) -> dict[str, Any]:
        self.collected.append(gc.isenabled())
        return {"name": 1}

    @property
    def f_back(self) -> None:
        self.collected.append(gc.isenabled())


class Thing:
    pass


def stuck(held: Any, go: threading.Event) -> None:
    mine = held.pop()
    go.wait(PATIENCE_SECONDS)
    del mine
    held.append("let go")
    go.clear()
    go.wait(PATIENCE_SECONDS)


def frame_of(thread: threading.Thread) -> FrameType:
    while True:
        for frame in frames.frames_of_threads().get(thread.ident or 0, ()):
            if frame.f_code is stuck.__code__ and "mine" in frame.f_code.co_varnames and _waits(thread):
                return frame


def _waits(thread: threading.Thread) -> bool:
    frame = frames.innermost_frames().get(thread.ident or 0)
    return frame is not None and frame.f_code.co_name == "wait"


@pytest.fixture(params=[True, False])
def collects(request: pytest.FixtureRequest) -> Any:
    before = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if before else gc.disable)()


def test_no_collection_runs_while_the_frames_are_read_and_the_setting_stays(
    monkeypatch: pytest.MonkeyPatch, collects: bool
) -> None:
    while_reading: list[bool] = []

    def current_frames() -> dict[int, FrameType]:
        while_reading.append(gc.isenabled())
        return {threading.get_ident(): sys._getframe()}

    monkeypatch.setattr(sys, "_current_frames", current_frames)
    assert threading.get_ident() in frames.innermost_frames()
    assert threading.get_ident() in frames.frames_of_threads()
    assert gc.isenabled() is collects
    assert set(while_reading) == {False}


def test_no_collection_runs_while_variables_and_callers_are_read(collects: bool) -> None:
    frame: Any = Frame()
    assert frames.variables_of(frame) == {"name": 1}
    assert frames.caller_of(frame) is None
    assert frame.collected == [False, False]
    assert gc.isenabled() is collects


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_forked_while_frames_are_read_collects_again() -> None:
    gc.enable()
    with frames.no_collection:
        child = os.fork()
        if not child:
            os._exit(0 if gc.isenabled() and frames.innermost_frames() else 1)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert gc.isenabled()


def test_reading_frames_keeps_nothing_alive() -> None:
    go, held = threading.Event(), [Thing()]
    last = weakref.ref(held[0])
    thread = threading.Thread(target=stuck, args=(held, go))
    thread.start()
    frame = frame_of(thread)
    assert frames.variables_of(frame)["mine"] is last()
    go.set()
    while not held:
        assert thread.is_alive()
    assert last() is None
    go.set()
    thread.join()


@pytest.mark.parametrize("read", ["frames_of_threads", "innermost_frames", "innermost_frames_of_others", "frames_of_thread"])
def test_a_read_that_is_over_keeps_no_frame_until_a_collection(read: str, collects: bool) -> None:
    """The reader's own frame does not lead to what it has read."""

    def waits(own: Thing) -> None:
        waiting.set()
        go.wait(PATIENCE_SECONDS)
        assert own

    waiting, go, things = threading.Event(), threading.Event(), [Thing()]
    last = weakref.ref(things[0])
    thread = threading.Thread(target=waits, args=(things.pop(),))
    thread.start()
    assert waiting.wait(PATIENCE_SECONDS)
    gc.disable()
    getattr(frames, read)(*((thread.ident,) if read == "frames_of_thread" else ()))
    go.set()
    thread.join()
    assert last() is None


@pytest.mark.parametrize("read", ["frames_of_threads", "innermost_frames_of_others"])
def test_two_that_read_each_other_keep_no_frame_until_a_collection(read: str, collects: bool) -> None:
    """One may cut while another finds the threads that have not moved."""
    source = "def reads(read, both):\n both.wait()\n found = read()\n both.wait()\n found = found, read()\n both.wait()"
    found: dict[str, Any] = {}
    exec(compile(source, str(Path(frames.__file__).with_name("reader.py")), "exec"), found)
    both, things = threading.Barrier(2), [Thing(), Thing()]
    last = [weakref.ref(one) for one in things]

    def reader(own: Thing) -> None:
        found["reads"](getattr(frames, read), both)
        assert own

    threads = [threading.Thread(target=reader, args=(things.pop(),)) for _ in range(2)]
    gc.disable()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one() for one in last] == [None, None]


@pytest.mark.parametrize(("file", "is_left_out"), [(threading.__file__, True), (__file__, False)])
def test_what_interrupts_a_reader_is_seen(file: str, is_left_out: bool) -> None:
    """A handler of a signal may have what would end a wait; the standard library only reads for the agent."""
    found: dict[str, Any] = {}
    exec(compile("def handles(there, go):\n there.set()\n go.wait()", file, "exec"), found)
    source = "def reads(read, handles, there, go):\n read()\n handles(there, go)"
    exec(compile(source, str(Path(frames.__file__).with_name("reader.py")), "exec"), found)
    there, go = threading.Event(), threading.Event()
    thread = threading.Thread(target=found["reads"], args=(frames.innermost_frames_of_others, found["handles"], there, go))
    thread.start()
    assert there.wait(PATIENCE_SECONDS)
    codes = [frame.f_code for frame in frames.frames_of_threads()[thread.ident or 0]]
    go.set()
    thread.join()
    assert codes
    assert (found["handles"].__code__ not in codes) is is_left_out
    assert (found["reads"].__code__ not in codes) is is_left_out


def test_a_thread_that_goes_on_deciding_whether_to_log_is_read() -> None:
    """A thread that is left out would count as ended."""
    lock = threading.Lock()

    class Blocks:
        """Blocks in compiled code, so the innermost frame is that of ``isEnabledFor``."""

        __getitem__ = staticmethod(lock.acquire)

    # not of getLogger: a level that is set later clears the caches of those, and leaves logging locked where that fails
    logger: Any = logging.Logger("never shown")
    logger._cache = Blocks()
    with lock:
        thread = threading.Thread(target=logger.debug, args=("nothing",))
        thread.start()
        ident = thread.ident or 0
        while not (found := frames.frames_of_thread(ident)) or found[0].f_code is not logging.Logger.isEnabledFor.__code__:
            assert thread.is_alive()
        assert found[-1].f_code.co_name == "_bootstrap"
        assert frames.frames_of_threads()[ident][0].f_code is found[0].f_code
        assert frames.innermost_frames()[ident].f_code is found[0].f_code
    thread.join()


def test_the_dictionary_that_the_application_has_asked_for_stays_its_own() -> None:
    names, other = locals(), 1
    assert frames.variables_of(sys._getframe())["other"] == other
    assert names == {}
    assert frames.variables_of(sys._getframe())["names"] is names


def test_a_modules_variables_are_not_emptied() -> None:
    module: dict[str, Any] = {}
    exec(
        "import sys\nfrom stilltrue.runtime.introspection.frames import variables_of\nfound = variables_of(sys._getframe())",
        module,
    )
    assert module["found"]["sys"] is sys
    assert module["sys"] is sys


def test_a_traced_frame_keeps_the_dictionary_that_its_debugger_writes_back() -> None:
    def trace(frame: FrameType, event: str, arg: object) -> Any:
        frames.variables_of(frame)
        return trace

    def traced() -> int:
        first = 1
        second = first + 1
        return first + second

    before = sys.gettrace()
    threading.settrace(before or trace)
    sys.settrace(trace)
    try:
        found = traced()
    finally:
        sys.settrace(before)
        threading.settrace(before)
    assert found == 3


def test_only_one_module_reads_frames() -> None:
    read = {
        path.name
        for path in Path(stilltrue.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("f_locals", "f_back", "_current_frames", "_getframe")
    }
    assert read == {"frames.py", "frame_dictionary.py", "kept_generators.py"}


def test_a_profilers_call_event_sees_the_arguments() -> None:
    """Other threads do not see a thread's profiler; before Python 3.13 it writes the dictionary back when it returns."""
    called, go_on = threading.Event(), threading.Event()
    seen: list[int] = []

    def hold(frame: FrameType, event: str, _: Any) -> None:
        if frame.f_code is add.__code__ and event == "call":
            called.set()
            assert go_on.wait(PATIENCE_SECONDS)

    def add(number: int) -> None:
        seen.append(number)

    def profiled() -> None:
        sys.setprofile(hold)
        add(1)
        sys.setprofile(None)

    thread = threading.Thread(target=profiled)
    thread.start()
    assert called.wait(PATIENCE_SECONDS)
    for frame in frames.frames_of_threads()[thread.ident or 0]:
        frames.variables_of(frame)
    go_on.set()
    thread.join()
    assert seen == [1]
