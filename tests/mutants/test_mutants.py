"""Each mutant of the shipped code is noticed by the test that the table names, run in its own process.

A test that fails for another reason is not a catch: the mutant must fit the code, and the test must exist.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.table import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
FAILED = 1
"""What pytest ends with when tests have failed; anything else is an error of ours."""
SECONDS_MAX = 240
PLUGINS = ("pytest_asyncio.plugin", "pytest_timeout", "xdist.plugin", "no:cacheprovider", "tests.mutants.injection")
"""Those that the named tests need. To import all that are installed takes half of the time of a quick one."""


def _as_parameter(mutant: Mutant) -> object:
    return pytest.param(mutant, id=mutant.name, marks=[] if mutant.quick else [pytest.mark.mutants])


@pytest.mark.parametrize("mutant", [_as_parameter(one) for one in sorted(MUTANTS, key=lambda one: not one.waits)])
def test_the_mutant_is_noticed_by_its_test(mutant: Mutant, tmp_path: Path) -> None:
    options = ["-q", "-x", "-n", "0", "--tb=short", *(option for one in PLUGINS for option in ("-p", one))]
    own = {
        "STILLTRUE_MUTANT": mutant.name,
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(tmp_path),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, mutant.test],
        cwd=ROOT,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    said = f"{mutant.test}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    assert done.returncode == FAILED, f"not noticed, or misfit: {said}"
    assert f"FAILED {mutant.test}" in done.stdout, said


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_mutant_fits_the_code_and_its_test_exists(mutant: Mutant) -> None:
    found = importlib.util.find_spec(mutant.module)
    assert found is not None
    assert found.origin is not None
    assert Path(found.origin).read_text(encoding="utf-8").count(mutant.old) == 1
    file, _, test = mutant.test.partition("::")
    assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8")


def test_mutant_names_are_unique() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
