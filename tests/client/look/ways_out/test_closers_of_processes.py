"""Code that may end the process ends all its waits: a watchdog that sees no progress, an alarm without a handler."""

from __future__ import annotations

import _thread
import ctypes
import dis
import functools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stilltrue import Agent
from stilltrue.runtime.look.code.instructions_ahead import ahead_of
from tests.client.look.ways_out.closing import FAR_SECONDS, Holder, interrupted, may_close_the_channel
from tests.client.look.worlds import Stuck


class Watchdog:
    """Ends the process when nothing progresses, so that it is restarted."""

    def __init__(self, go: threading.Event) -> None:
        self.go = go
        self.beats = 0

    def watch(self) -> None:
        """Check now and then."""
        while not self.go.wait(FAR_SECONDS):
            if not self.beats:
                self.bark()

    def bark(self) -> None:
        """End the process."""
        os._exit(1)


def exits(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        os._exit(1)


def watches(_: Any, go: threading.Event) -> None:
    Watchdog(go).watch()


def kills_itself(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        os.kill(os.getpid(), signal.SIGTERM)


def becomes_another(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        os.execv(sys.executable, [sys.executable, "-c", ""])


def aborts(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        os.abort()


ITS_NUMBER = os.getpid()


def kills_its_number(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        os.kill(ITS_NUMBER, signal.SIGCONT)


class Supervisor:
    """Stores the id of its own process, or of another one."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def act(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


def kills_by_a_supervisor(_: Any, go: threading.Event) -> None:
    supervisor = Supervisor(os.getpid())
    if not go.wait(FAR_SECONDS):
        supervisor.act()


def supervises_another(_: Any, go: threading.Event) -> None:
    supervisor = Supervisor(2**22 + 1)
    if not go.wait(FAR_SECONDS):
        supervisor.act()


def kills_whom_it_has_asked_before(_: Any, go: threading.Event) -> None:
    own = os.getpid()
    if not go.wait(FAR_SECONDS):
        os.kill(own, signal.SIGCONT)


def kills_its_group(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        os.killpg(os.getpgrp(), signal.SIGCONT)


def kills_all_about_it(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        os.kill(0, signal.SIGCONT)


def runs_a_command(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        subprocess.run(["kill", "-CONT", str(os.getpid())], check=False)


def runs_a_shell(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        os.system(f"sleep 1; kill -CONT {os.getpid()}")


def kills_the_number_in_a_file(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        os.kill(int(Path("shop.pid").read_text()), signal.SIGCONT)


def kills_its_shells_parent(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        os.system("kill -CONT $PPID")


def runs_pkill(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        os.system("pkill -CONT -f nobody-has-this-name")


def restarts_the_machine(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        subprocess.run(["sudo", "reboot"], check=False)


def has_systemd_restart_it(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        subprocess.run(["systemctl", "restart", "shop"], check=False)


def asks_systemd(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        subprocess.run(["systemctl", "is-active", "shop"], check=False)


def says_reboot(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        print("reboot", "pkill")


ENDINGS: dict[str, Callable[[int], object]] = {"none": hash, "exit": os._exit}
NO_ENDINGS: dict[str, Callable[[int], object]] = {"none": hash, "number": os.getpgid}


class Keeper:
    """Calls what it was given when nothing progresses."""

    def __init__(self, on_death: Callable[..., object]) -> None:
        self.on_death = on_death

    def act(self) -> None:
        self.on_death(1)


def calls_what_a_table_has(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        ENDINGS["exit"](1)


def calls_what_a_variable_has(_: Any, go: threading.Event) -> None:
    end = os._exit
    if not go.wait(FAR_SECONDS):
        end(1)


def calls_what_it_was_given(_: Any, go: threading.Event, on_death: Callable[[int], object] = os._exit) -> None:
    if not go.wait(FAR_SECONDS):
        on_death(1)


def calls_what_a_keeper_has(_: Any, go: threading.Event) -> None:
    keeper = Keeper(os._exit)
    if not go.wait(FAR_SECONDS):
        keeper.act()


def calls_a_partial_of_a_keeper(_: Any, go: threading.Event) -> None:
    keeper = Keeper(functools.partial(os.kill, os.getpid()))
    if not go.wait(FAR_SECONDS):
        keeper.act()


def calls_what_it_looks_up(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        getattr(os, "_exit")(1)  # noqa: B009 - looked up by its text


def calls_a_closure(_: Any, go: threading.Event) -> None:
    end = os._exit

    def act() -> None:
        end(1)

    if not go.wait(FAR_SECONDS):
        act()


def calls_a_function_made_later(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        threading.Thread(target=lambda: os._exit(1)).start()


def calls_what_another_table_has(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        NO_ENDINGS["number"](1)


def calls_what_another_keeper_has(_: Any, go: threading.Event) -> None:
    keeper = Keeper(functools.partial(os.kill, 2**22 + 1))
    if not go.wait(FAR_SECONDS):
        keeper.act()


def has_called_it_before(_: Any, go: threading.Event) -> None:
    keeper = Keeper(os._exit)
    assert keeper.on_death is not None
    if not go.wait(FAR_SECONDS):
        print(1)


def reads_a_number(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        print(int(Path("shop.pid").read_text()))


def bites_behind_closures(_: Any, go: threading.Event) -> None:
    def bite() -> None:
        os._exit(1)

    def bark(loud: bool) -> None:
        if loud:
            bite()

    def watch() -> None:
        bark(not go.wait(FAR_SECONDS))

    watch()


def status_of(go: threading.Event) -> int:
    interrupted(go)
    return 1


def ends_as_its_child(_: Any, go: threading.Event) -> None:
    os._exit(status_of(go))


def counts_behind_closures(_: Any, go: threading.Event) -> None:
    def count() -> None:
        print(1)

    def watch() -> None:
        if not go.wait(FAR_SECONDS):
            count()

    watch()


def interrupts_the_main_thread(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        _thread.interrupt_main()


def signals_the_main_thread(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


def raises_in_a_thread(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(1), ctypes.py_object(TimeoutError))


def aborts_a_call(_: Any, go: threading.Event) -> None:
    context: Any = None
    if not go.wait(FAR_SECONDS) and os.environ:
        context.abort(1, "no")


def asks_whether_another_is_there(_: Any, go: threading.Event) -> None:
    child = 1
    if not go.wait(FAR_SECONDS):
        os.kill(child, 0)


def says_its_number(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        subprocess.run(["echo", "nobody is killed by", str(os.getpid())], check=False)


def kills_another(_: Any, go: threading.Event) -> None:
    child = 0
    if not go.wait(FAR_SECONDS):
        os.kill(child, signal.SIGTERM)


def exits_when_interrupted(_: Any, go: threading.Event) -> None:
    while not go.is_set():
        try:
            interrupted(go)
        except KeyboardInterrupt:
            os._exit(1)


def exits_without_its_parent(_: Any, go: threading.Event) -> None:
    parent = os.getppid()
    while not go.wait(FAR_SECONDS):
        if os.getppid() != parent:
            os._exit(1)


ENDING = [
    *(exits, watches, kills_itself, becomes_another, aborts, bites_behind_closures, ends_as_its_child),
    *(interrupts_the_main_thread, signals_the_main_thread, raises_in_a_thread),
    *(
        kills_by_a_supervisor,
        kills_its_number,
        kills_whom_it_has_asked_before,
        kills_its_group,
        kills_all_about_it,
        runs_a_command,
        runs_a_shell,
        kills_the_number_in_a_file,
        runs_pkill,
        kills_its_shells_parent,
        restarts_the_machine,
        has_systemd_restart_it,
    ),
    *(calls_what_a_table_has, calls_what_a_variable_has, calls_what_it_was_given, calls_what_a_keeper_has),
    *(calls_a_partial_of_a_keeper, calls_what_it_looks_up, calls_a_closure, calls_a_function_made_later),
]


@pytest.mark.parametrize("holder", ENDING, ids=lambda one: one.__name__)
def test_code_that_may_end_the_process_is_a_way_out(alone: Callable[..., Agent], stuck: Stuck, holder: Holder) -> None:
    assert may_close_the_channel(alone, stuck, holder)


@pytest.mark.parametrize(
    "holder",
    [
        *(
            kills_another,
            supervises_another,
            asks_whether_another_is_there,
            says_its_number,
            aborts_a_call,
            exits_when_interrupted,
        ),
        *(exits_without_its_parent, counts_behind_closures, asks_systemd, says_reboot, reads_a_number),
        *(calls_what_another_table_has, calls_what_another_keeper_has, has_called_it_before),
    ],
    ids=lambda one: one.__name__,
)
def test_code_that_ends_another_process_is_not_a_way_out(alone: Callable[..., Agent], stuck: Stuck, holder: Holder) -> None:
    assert not may_close_the_channel(alone, stuck, holder)


@pytest.mark.parametrize(
    ("called", "arguments", "expected"),
    [
        (os._exit, (1,), True),
        (os.kill, (os.getpid(), signal.SIGTERM), True),
        (functools.partial(os.kill, os.getpid()), (signal.SIGTERM,), True),
        (os.kill, (2**22 + 1, signal.SIGTERM), False),
        (os.killpg, (os.getpid(), signal.SIGCONT), True),
        (_thread.interrupt_main, (), True),
    ],
)
def test_a_timer_that_ends_the_process_is_a_way_out(
    alone: Callable[..., Agent], stuck: Stuck, called: Callable[..., object], arguments: tuple[Any, ...], expected: bool
) -> None:
    timer = threading.Timer(FAR_SECONDS, called, arguments)
    timer.daemon = True
    timer.start()
    try:
        assert may_close_the_channel(alone, stuck, lambda _, go: interrupted(go)) is expected
    finally:
        timer.cancel()


def watches_in_a_loop(beats: list[int]) -> None:
    while True:
        time.sleep(1)
        if not beats:
            os._exit(1)


def exits_in_the_end(beats: list[int]) -> None:
    while beats:
        time.sleep(1)
    os._exit(0)


def serves_in_a_child(beats: list[int]) -> None:
    for beat in beats:
        if os.fork() == 0:
            try:
                time.sleep(beat)
            finally:
                os._exit(0)


@pytest.mark.parametrize(
    ("body", "expected"), [(watches_in_a_loop, True), (exits_in_the_end, False), (serves_in_a_child, False)]
)
def test_the_main_thread_ends_its_program_when_it_is_done_but_not_in_a_loop(body: Any, expected: bool) -> None:
    every = list(dis.get_instructions(body))
    named = next(index for index, one in enumerate(every) if one.argval == "sleep")
    sleeping = next(one.offset for one in every[named:] if one.opname.startswith("CALL"))
    assert ("_exit" in ahead_of(body.__code__, sleeping).in_loop().names) is expected


def test_an_unhandled_alarm_is_a_way_out(alone: Callable[..., Agent], stuck: Stuck) -> None:
    before = signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(int(FAR_SECONDS))
    try:
        assert may_close_the_channel(alone, stuck, lambda _, go: interrupted(go))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


DUMPS = """
import faulthandler
from faulthandler import dump_traceback_later

import stilltrue
from stilltrue.runtime.look.ways_out.kinds.closing.closers import signal_closers

stilltrue.instrument("a", detector="127.0.0.1:9")


def seen():
    return [one.process for one in signal_closers(())]


found = [seen()]
dump_traceback_later(600, exit=True)
found.append(seen())
faulthandler.dump_traceback_later(600, True)
found.append(seen())
faulthandler.dump_traceback_later(600, exit=True)
found.append(seen())
faulthandler.cancel_dump_traceback_later()
found.append(seen())
print(found)
"""


def test_a_dump_of_tracebacks_that_ends_the_process_is_a_way_out_until_it_is_cancelled() -> None:
    done = subprocess.run([sys.executable, "-c", DUMPS], capture_output=True, text=True, timeout=FAR_SECONDS, check=False)
    assert done.stdout == "[[], [True], [], [True], []]\n", done.stderr
