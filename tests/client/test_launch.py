"""`stilltrue run`: programs without agent code, their children and helpers, run with and without the agent."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from stilltrue import launch
from stilltrue.__main__ import main as agent_command
from stilltrue.runtime.introspection.linux.child_processes import STARTED

pytestmark = pytest.mark.slow  # each starts a process

PROGRAM = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
import grpc
from grpc import insecure_channel

def main():
    handler = grpc.unary_unary_rpc_method_handler(lambda request, context: request + b"!")
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.T", {"Do": handler}),))
    address = "127.0.0.1:%d" % server.add_insecure_port("127.0.0.1:0")
    server.start()
    with insecure_channel(address) as channel:
        print(channel.unary_unary("/t.T/Do")(b"done"), grpc.insecure_channel.__module__)
    server.stop(None).wait()

if __name__ == "__main__":
    main()
"""


def started(
    command: Sequence[str], *, detector: str = "127.0.0.1:1", cwd: Path | None = None, more: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("STILLTRUE", "OTEL", "PYTHONPATH"))
    }
    environment |= {"STILLTRUE_DETECTOR": detector, **(more or {})}
    return subprocess.run(
        [sys.executable, "-m", "stilltrue", "run", "--", *command],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        env=environment,
    )


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "orders.py"
    path.write_text(PROGRAM)
    return path


def joined(detector: Any) -> list[str]:
    """The services that have joined, in order."""
    return [heard.hello.process.service for _, heard in detector.heard if heard.HasField("hello")]


def stay(program: str) -> str:
    """``program``, extended to run until its agent has been welcomed."""
    return f"{program}\n    import stilltrue\n    assert stilltrue.instrument().wait_until_joined(10)\n"


def own_lines(text: str) -> list[str]:
    """The program's own output, without gRPC core's occasional lines about lost connections."""
    return [line for line in text.splitlines() if "chttp2_transport" not in line]


def test_an_unmodified_program_does_the_same_and_joins_under_its_name(detector: Any, program: Path) -> None:
    plain = subprocess.run([sys.executable, str(program)], check=True, capture_output=True, text=True, timeout=60)
    program.write_text(stay(PROGRAM))
    attached = started([sys.executable, str(program)], detector=detector.address)
    assert (attached.returncode, attached.stdout) == (0, plain.stdout)
    assert own_lines(attached.stderr) == own_lines(plain.stderr)
    assert joined(detector) == ["orders"]


def test_settings_come_from_the_environment_and_from_the_program_first(detector: Any, program: Path) -> None:
    program.write_text(stay(PROGRAM))
    settings = {"STILLTRUE_SERVICE": "named", "STILLTRUE_EXCLUDED_METHODS": "/t.T/*", "STILLTRUE_REPORTS_MAX": "many"}
    attached = started([sys.executable, str(program)], detector=detector.address, more=settings)
    assert attached.returncode == 0
    assert "STILLTRUE_REPORTS_MAX" in attached.stderr
    detector.wait_for(lambda: joined(detector) == ["named"])
    program.write_text(f'import stilltrue\nstilltrue.instrument(service="by itself")\n{stay(PROGRAM)}')
    assert started([sys.executable, str(program)], detector=detector.address).returncode == 0
    assert joined(detector)[1:] == ["by itself"]


def test_the_agent_is_not_loaded_without_a_channel(tmp_path: Path) -> None:
    script = tmp_path / "quiet.py"
    script.write_text("import sys, grpc, grpc.aio\nprint(sorted(n for n in sys.modules if n.startswith('stilltrue.')))")
    attached = started([sys.executable, str(script)])
    assert attached.returncode == 0, attached.stderr
    assert "stilltrue.agent" not in attached.stdout
    assert "stilltrue.launch" in attached.stdout
    assert "google.protobuf" not in attached.stdout


THREAD = """
import threading
own = threading.Thread.start
def work():
    import stilltrue
    assert threading.Thread.start is not own and not hasattr(threading.Thread.start, "__wrapped__")
    assert stilltrue.instrument().wait_until_joined(10)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""
LOOP = """
import asyncio
async def main():
    import stilltrue
    assert await asyncio.to_thread(stilltrue.instrument().wait_until_joined, 10)
asyncio.run(main())
"""
UVLOOP = LOOP.replace("asyncio.run", "__import__('uvloop').run")
COMMAND = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
import stilltrue
assert stilltrue.instrument().wait_until_joined(10)
child.communicate(b"end")
"""
WORKER = """
import multiprocessing
def work(end):
    import sys
    assert "stilltrue.agent" not in sys.modules
    end.wait()
if __name__ == "__main__":
    of_fork = multiprocessing.get_context("fork")
    end = of_fork.Event()
    worker = of_fork.Process(target=work, args=(end,))
    worker.start()
    import stilltrue
    assert stilltrue.instrument().wait_until_joined(10)
    end.set()
    worker.join()
    assert worker.exitcode == 0
"""
CONCURRENT = {"thread": THREAD, "loop": LOOP, "uvloop": UVLOOP, "command": COMMAND, "worker": WORKER}


@pytest.mark.parametrize("code", CONCURRENT.values(), ids=CONCURRENT)
def test_a_program_without_grpc_and_http_joins_once_it_is_concurrent(detector: Any, tmp_path: Path, code: str) -> None:
    script = tmp_path / "batch.py"
    script.write_text(code)
    attached = started([sys.executable, str(script)], detector=detector.address)
    assert (attached.returncode, attached.stderr) == (0, "")
    assert joined(detector) == ["batch"]


def test_a_program_that_joins_all_threads_ends(detector: Any, tmp_path: Path) -> None:
    """The agent's threads end only with the process."""
    script = tmp_path / "batch.py"
    script.write_text(
        textwrap.dedent(
            """
            import threading, time
            from threading import active_count
            def work():
                import stilltrue
                assert stilltrue.instrument().wait_until_joined(10)
            for _ in range(3):
                threading.Thread(target=work).start()
            assert threading.active_count() == active_count() == 4
            for thread in threading.enumerate():
                if thread is not threading.current_thread():
                    thread.join()
            while active_count() > 1:
                time.sleep(0.1)
            print("done")
            """
        )
    )
    attached = started([sys.executable, str(script)], detector=detector.address)
    assert (attached.stdout, attached.stderr) == ("done\n", "")
    assert joined(detector) == ["batch"]


def test_children_that_start_a_thread_do_not_join_for_it(detector: Any, tmp_path: Path) -> None:
    """Neither a program that the named one runs nor its fork: they may be helpers, or one of many short-lived processes."""
    thread = "import threading, sys; t = threading.Thread(target=int); t.start(); t.join()\n"
    loaded = "print(sorted(name for name in sys.modules if name == 'stilltrue.agent'))\n"
    (tmp_path / "child.py").write_text(thread + loaded)
    (tmp_path / "parent.py").write_text(
        "import os, subprocess, sys\n"
        "if (child := os.fork()) == 0:\n"
        f"    exec({thread + loaded!r})\n"
        "    sys.stdout.flush(); os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "subprocess.run([sys.executable, 'child.py'], check=True)\n" + thread + loaded
    )
    attached = started([sys.executable, "parent.py"], detector=detector.address, cwd=tmp_path)
    assert attached.stdout.splitlines() == ["[]", "[]", "['stilltrue.agent']"], attached.stderr


@pytest.mark.parametrize(
    ("arguments", "own", "the_program"),
    [
        (["python", "batch.py"], True, True),
        (["python", "/env/bin/celery", "-A", "shop", "worker"], True, True),
        (["python", "batch.py"], False, False),
        (["python", "/env/bin/gunicorn", "shop:app"], True, False),
        (["python", "-m", "uvicorn", "shop:app", "--workers", "4"], True, False),
    ],
)
def test_web_servers_join_by_their_requests(arguments: list[str], own: bool, the_program: bool) -> None:
    assert launch.is_the_program(arguments, {STARTED: str(os.getpid() if own else os.getppid())}) is the_program


def test_an_instrument_that_comes_too_late_is_logged(detector: Any, tmp_path: Path) -> None:
    script = tmp_path / "batch.py"
    script.write_text(
        THREAD + "stilltrue = __import__('stilltrue')\nstilltrue.instrument('batch')\nstilltrue.instrument('orders')\n"
    )
    attached = started([sys.executable, str(script)], detector=detector.address)
    assert attached.stderr.splitlines() == ["already joined as batch: instrument('orders') comes too late and changes nothing"]


def test_a_hidden_sitecustomize_still_runs_under_its_own_name(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("WORD = 'the other'\nimport os\nos.environ['SEEN'] = __file__")
    script = tmp_path / "asks.py"
    script.write_text("import os, sitecustomize\nprint(sitecustomize.WORD, os.environ['SEEN'])")
    attached = started([sys.executable, str(script)], more={"PYTHONPATH": str(own)})
    assert attached.stdout.split() == ["the", "other", str(own / "sitecustomize.py")], attached.stderr


def test_what_opentelemetry_makes_before_the_program_runs_is_recorded(detector: Any, tmp_path: Path) -> None:
    """Its launcher puts its ``sitecustomize`` first, which makes the exporters' channels and runs no other one."""
    own = tmp_path / "own"
    own.mkdir()
    first = f"os.environ['PYTHONPATH'] = os.pathsep.join([{str(own)!r}, *os.environ['PYTHONPATH'].split(os.pathsep)])"
    makes = "import grpc, os\nexports = grpc.insecure_channel('127.0.0.1:1')"
    (own / "sitecustomize.py").write_text(f"{makes}\n{first}  # again: it is taken out meanwhile")
    launcher = tmp_path / "opentelemetry-instrument"
    launcher.write_text(f"import os, sys\n{first}\nos.execl(sys.executable, sys.executable, *sys.argv[1:])")
    script = tmp_path / "orders.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, sitecustomize, subprocess, sys, stilltrue
            agent = stilltrue.instrument()
            print(type(sitecustomize.exports).__module__, agent.sight.counts()["channels_unseen"])
            if not sys.argv[1:]:
                subprocess.run([sys.executable, __file__, "as a child"], check=True)
            assert agent.wait_until_joined(10)
            """
        )
    )
    command = [sys.executable, str(launcher), "-m", "orders"]
    attached = started(command, detector=detector.address, cwd=tmp_path, more={"PYTHONPATH": str(tmp_path)})
    assert attached.stdout.splitlines() == ["stilltrue.sync.channel 0"] * 2, attached.stderr
    assert joined(detector) == ["orders", "orders"]


def test_children_inherit_the_agent_and_helpers_do_not_join(detector: Any, tmp_path: Path, program: Path) -> None:
    """A worker spawned by multiprocessing and a program started by ``subprocess`` join; a tool's ``-c`` code does not."""
    program.write_text(stay(PROGRAM))
    line = "import orders, stilltrue.runtime.joining.deferral as d; orders.main(); print('line', d._STATE.prepared)"
    (tmp_path / "parent.py").write_text(
        textwrap.dedent(
            f"""
            import multiprocessing, subprocess, sys
            def work():
                import orders, stilltrue
                orders.main()
                assert stilltrue.instrument().wait_until_joined(10)
            if __name__ == "__main__":
                child = multiprocessing.get_context("spawn").Process(target=work)
                child.start()
                import stilltrue
                assert stilltrue.instrument().wait_until_joined(10)
                child.join()
                assert child.exitcode == 0
                subprocess.run([sys.executable, "orders.py"], check=True)
                subprocess.run([sys.executable, "-c", {line!r}], check=True)
            """
        )
    )
    attached = started([sys.executable, "parent.py"], detector=detector.address, cwd=tmp_path)
    assert attached.returncode == 0, attached.stderr
    assert "line False" in attached.stdout
    assert sorted(joined(detector)) == ["orders", "parent", "parent"]


def test_code_passed_by_the_user_joins(detector: Any) -> None:
    code = "import grpc, stilltrue; grpc.insecure_channel('x'); assert stilltrue.instrument().wait_until_joined(10)"
    assert started([sys.executable, "-c", code], detector=detector.address).returncode == 0
    assert joined(detector) == ["python"]


def test_a_wrapper_around_our_wrapper_is_called_once(detector: Any, tmp_path: Path) -> None:
    """As by instrumentations that replace ``grpc.insecure_channel`` before the first channel is made."""
    script = tmp_path / "wrapping.py"
    script.write_text(
        textwrap.dedent(
            """
            import grpc
            seen, before = [], grpc.insecure_channel
            def wrapper(*args, **kwargs):
                seen.append(args)
                return before(*args, **kwargs)
            grpc.insecure_channel = wrapper
            for _ in range(2):
                channel = grpc.insecure_channel("127.0.0.1:1")
                print(type(channel).__name__)
            import stilltrue
            stilltrue.uninstrument()
            print(len(seen), type(grpc.insecure_channel("127.0.0.1:1")).__name__, grpc.insecure_channel is wrapper)
            """
        )
    )
    attached = started([sys.executable, str(script)], detector=detector.address)
    assert attached.stdout.split() == ["RecordedChannel", "RecordedChannel", "2", "Channel", "True"], attached.stderr


@pytest.mark.parametrize("name", ["sched", "secrets", "socketserver", "tempfile", "random"])
def test_a_module_of_the_program_with_a_name_of_the_standard_library_stays_the_programs(
    detector: Any, tmp_path: Path, name: str
) -> None:
    """gRPC imports none of these names, so without the agent the program runs."""
    (tmp_path / f"{name}.py").write_text(f"print('{name} is imported')\nOWN = 1\n")
    (tmp_path / "orders.py").write_text(stay(PROGRAM) + f"    import {name}\n    print({name}.OWN)\n")
    attached = started([sys.executable, "orders.py"], detector=detector.address, cwd=tmp_path)
    assert attached.stdout.splitlines() == ["b'done!' grpc", f"{name} is imported", "1"], attached.stderr
    assert joined(detector) == ["orders"]


def test_a_program_with_a_name_of_the_standard_library_runs_once(detector: Any, tmp_path: Path) -> None:
    (tmp_path / "sched.py").write_text(stay(PROGRAM.replace('if __name__ == "__main__":', "if True:")))
    attached = started([sys.executable, "sched.py"], detector=detector.address, cwd=tmp_path)
    assert attached.stdout.count("done!") == 1, attached.stderr
    assert joined(detector) == ["sched"]


def test_an_agent_that_cannot_start_leaves_the_program_alone(tmp_path: Path, program: Path) -> None:
    broken = tmp_path / "broken"
    (broken / "google").mkdir(parents=True)
    (broken / "google" / "__init__.py").write_text("raise ImportError('no protobuf here')")
    attached = started([sys.executable, str(program)], more={"PYTHONPATH": str(broken)})
    assert attached.returncode == 0
    assert "done!" in attached.stdout
    assert "not joined" in attached.stderr


def test_a_missing_program_is_reported_as_by_a_shell(tmp_path: Path) -> None:
    missing = started(["no-such-command"])
    assert (missing.returncode, missing.stderr) == (127, "stilltrue run: no such command: no-such-command\n")
    assert started([str(tmp_path)]).returncode == 126
    (tmp_path / "app.py").write_text("")
    script = subprocess.run(
        [sys.executable, "-m", "stilltrue", "run", "app.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    hint = "stilltrue run: no such command: app.py (to run a script: python app.py)\n"
    assert (script.returncode, script.stderr) == (127, hint)
    assert started([]).returncode == 2
    assert started([sys.executable, "-c", "raise SystemExit(7)"]).returncode == 7


def test_a_folder_of_the_path_that_may_not_be_read_does_not_make_a_missing_program_a_forbidden_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")  # as execvp does if it could not look into one of the folders

    monkeypatch.setattr(os, "execvpe", refused)
    assert launch.run(["no-such-command"], {}) == 127
    assert capsys.readouterr().err == "stilltrue run: no such command: no-such-command\n"
    assert launch.run([str(tmp_path / "app")], {}) == 126
    assert capsys.readouterr().err.endswith("app: Permission denied\n")
    script = tmp_path / "app.py"
    script.touch()
    assert launch.run([str(script)], {}) == 126
    assert capsys.readouterr().err.endswith(f"app.py: Permission denied (to run a script: python {script})\n")


def test_a_django_project_is_named_by_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "shop.settings")
    assert launch.program_name(["/srv/manage.py", "runserver"], "/srv/manage.py") == "shop"
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE")
    assert launch.program_name(["/srv/manage.py", "runserver"], "/srv/manage.py") == "manage"


@pytest.mark.parametrize(
    ("arguments", "main_file", "name"),
    [
        (["/srv/orders.py", "--port", "1"], None, "orders"),
        (["/srv/orders/__main__.py"], None, "orders"),
        (["/venv/bin/orders-service"], None, "orders-service"),
        (["/venv/bin/uvicorn", "--workers", "2", "shop.main:app"], None, "shop.main"),
        (["/venv/bin/gunicorn", "-b", "127.0.0.1:8000", "shop.wsgi:make_app()"], None, "shop.wsgi"),
        (["/venv/lib/uvicorn/__main__.py", "shop:app"], None, "shop"),
        (["/venv/bin/gunicorn"], None, "gunicorn"),
        (["/venv/bin/flask", "--app", "shop.web", "run"], None, "shop.web"),
        (["/venv/lib/flask/__main__.py", "--app=shop.py", "run"], None, "shop"),
        (["/venv/bin/flask", "--app", "../shop.py", "run"], None, "flask"),
        (["/venv/bin/celery", "-A", "shop.jobs", "worker", "-c", "2"], None, "shop.jobs"),
        (["/venv/bin/celery", "-Ashop.jobs", "worker"], None, "shop.jobs"),
        (["/venv/bin/celery", "-A"], None, "celery"),
        (["-c"], None, "python"),
        (["-c"], "/srv/orders.py", "orders"),
        ([], None, "python"),
    ],
)
def test_a_service_is_named_from_its_program(arguments: list[str], main_file: str | None, name: str) -> None:
    assert launch.program_name(arguments, main_file) == name


WORKER = "from multiprocessing.spawn import spawn_main; from stilltrue import launch; print(launch.program_of_parent())"
"""A worker of multiprocessing that joins before it has been told its program: OpenTelemetry makes channels that early."""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["-W", "ignore", "orders.py", "-m", "x"], "orders"),
        (["uvicorn", "shop.main:app", "--workers", "2"], "shop.main"),
        (["-um", "shop.orders", "x"], "orders"),
        (["-c", "import runpy; runpy.run_path('orders.py')"], "None"),
    ],
)
def test_a_worker_that_joins_early_has_its_parents_name(command: list[str], name: str, tmp_path: Path) -> None:
    program = (
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {WORKER!r}, '--multiprocessing-fork'], check=True)\n"
    )
    (tmp_path / "shop").mkdir()
    for file in ("orders.py", "uvicorn", "shop/orders.py"):
        (tmp_path / file).write_text(program)
    assert subprocess.check_output([sys.executable, *command], cwd=tmp_path, text=True) == f"{name}\n"


def test_any_other_process_does_not_take_its_parents_name() -> None:
    assert launch.program_of_parent() is None


@pytest.mark.parametrize(
    ("arguments", "original", "name"),
    [
        (["-m", "--port", "1"], ["python", "-m", "shop.orders", "--port", "1"], "orders"),
        (["-m"], ["python", "-X", "dev", "-um", "shop"], "shop"),
        (["-m"], ["python", "-mshop.orders"], "orders"),
        (["/srv/orders.py", "-m"], ["python", "/srv/orders.py", "-m"], None),
    ],
)
def test_a_module_is_known_before_it_runs(arguments: list[str], original: list[str], name: str | None) -> None:
    assert launch.module_to_run(arguments, original) == name


@pytest.mark.parametrize(
    ("arguments", "helper"),
    [
        (["python", "-c", "from multiprocessing.resource_tracker import main;main(5)"], True),
        (["python", "-s", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()", "--multiprocessing-fork"], False),
        (["python", "-X", "dev", "-c", "from multiprocessing.forkserver import main; main(1)"], False),
        (["python", "-Wignore", "-Ic", "import sys"], True),
        (["python", "-m", "orders", "-c", "settings.toml"], False),
        (["python", "-W", "ignore", "orders.py", "-c", "settings.toml"], False),
        (["python", "-u", "orders.py"], False),
        (["python"], False),
    ],
)
def test_helper_processes_are_recognised_by_their_command_line(arguments: list[str], helper: bool) -> None:
    assert launch.is_helper(arguments, {STARTED: "1"}) is helper
    assert not launch.is_helper(arguments, {STARTED: str(os.getpid())})


def test_an_invalid_detector_address_is_refused() -> None:
    """As when its value was forgotten: ``--detector -- python app.py``."""
    command = [sys.executable, "-m", "stilltrue", "run", "--detector", "--", sys.executable, "-c", "print('begun')"]
    told = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (told.returncode, told.stdout) == (2, "")
    assert "--detector" in told.stderr


def test_a_command_of_the_other_package_is_refused_with_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        agent_command(["serve"])
    error = capsys.readouterr().err
    assert "no such command: serve" in error
    assert "another package, stilltrue-detector" in error


def test_a_folder_that_the_agent_cannot_be_copied_into_is_an_error_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match="2"):
        agent_command(["copy", str(tmp_path / "file")])
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"{tmp_path / 'file' / 'stilltrue'}: Not a directory")


def test_a_file_that_the_agent_cannot_be_copied_over_is_named_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "stilltrue").mkdir()
    for name in ("agent.py", "model.py"):
        (tmp_path / "stilltrue" / name).symlink_to(tmp_path / "absent" / name)
    with pytest.raises(SystemExit, match="2"):
        agent_command(["copy", str(tmp_path)])
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"python -m stilltrue copy: error: {tmp_path / 'stilltrue'}{os.sep}")
    assert last.count("No such file or directory") == 1
