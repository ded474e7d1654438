"""Ordinary programs with known truth, against a real detector: each must print PASS (``make truth``).

The programs are not ours to copy: they stay in ../shared/cases/truth. Each runs in a process of its own, for about 15 s.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "shared" / "cases" / "truth"
SECONDS_MAX = 120
ATTEMPTS = 2
"""Cases that race are run so often, and must pass each time."""
RACES = ("g07_doubts", "g28_worker_thread_own")
MODES: dict[str, tuple[str, ...]] = {
    "f02_loser_cancelled": ("wait", "sleep", "watchdog", "gather"),
    "f03_limiter": ("threads", "aio", "lock"),
    "f04_stranger_replica": ("plain", "late"),
    "f13_hidden_deadline": ("wrap_last", "aio", "service_config", "aio_mixed"),
    "f18_crash_restart": ("restart", "stop", "detector_stop"),
    "f26_forwarded_metadata": ("missed", "bounded", "bounded_once"),
    "g01_request_iterator": ("unary", "stream", "aio"),
    "g02_generator_cleanup": ("term", "lock", "lock control"),
    "g05_prefork": ("lock", "lock alone", "pool"),
    "g06_sidecar_trace": ("background", "zombie"),
    "g07_doubts": ("", "control"),
    "g11_slots_timeouts": ("anyio", "async_timeout"),
    "g14_token_refused": ("limit", "abort", "cancelled"),
    "g17_hedge_flag": ("noflag", "flag", "retry", "retry_other"),
    "m01_missed": (
        "stream_item", "stream_unary", "retry", "future", "client_deadline_outer", "migration_pool", "blocked_loop",
        "max_streams", "max_streams_full", "executor", "bidi_flow", "interceptor", "aio_gather_all", "aio_stream",
    ),
    "t02_callback_sends": ("future", "rpc_end", "task"),
    "t07_partial": ("a_server", "b_server", "a_client", "b_client"),
}  # fmt: skip


STILL_MISSED = {"m01_missed bidi_flow"}
"""Deadlocks that are not called: another call on the connection, here by the main thread, could enlarge the stream's window.

docs/proofs.md, limit 6, has the reasons. The answer says that a call has not moved for a while.
"""


NOT_IN_CI = {"c01_churn_leaks", "g05_prefork lock", "g05_prefork lock alone"}
"""Left to ``make truth``: they take minutes on a crowded machine."""


def _cases() -> list[str]:
    found = sorted(path.stem for path in FOLDER.glob("[a-z][0-9]*_*.py"))
    return [f"{case} {mode}".strip() for case in found for mode in MODES.get(case, ("",))]


def _as_parameter(case: str) -> object:
    marks = [pytest.mark.xfail(reason="not called", strict=True)] if case in STILL_MISSED else []
    marks += [pytest.mark.not_in_ci] if case in NOT_IN_CI else []
    return pytest.param(case, marks=marks)


def test_the_cases_exist() -> None:
    if not FOLDER.is_dir():
        if os.environ.get("STILLTRUE_REQUIRE_SHARED") == "1":
            pytest.fail(f"{FOLDER} is absent")
        pytest.skip(f"{FOLDER} is absent")
    assert len(_cases()) > len(MODES)


@pytest.mark.truth
@pytest.mark.parametrize("case", [_as_parameter(case) for case in _cases()])
def test_the_answer_matches_the_truth(case: str, tmp_path: Path) -> None:
    name, *mode = case.split()
    own = {"TMPDIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parent), "PYTHONDONTWRITEBYTECODE": "1"}
    # Unbuffered, children that share a pipe write into each other's lines, and g05 waits for ever for the line that it knows.
    own["PYTHONUNBUFFERED"] = ""
    for _ in range(ATTEMPTS if name in RACES else 1):
        output, errors = _run([sys.executable, str(FOLDER / f"{name}.py"), *mode], tmp_path, {**os.environ, **own})
        verdicts = re.findall(r"^(PASS|FAIL) .*$", output, re.MULTILINE)
        assert verdicts == ["PASS"], f"{output[-3000:]}\n{errors[-2000:]}"


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> tuple[str, str]:
    """A case's output, on both streams. All that it has started is ended, even after a timeout."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, env=environment, start_new_session=True
    ) as process:
        try:
            return process.communicate(timeout=SECONDS_MAX)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
