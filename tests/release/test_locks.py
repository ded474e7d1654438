"""The images' requirements: everything the detector needs with these extras, as constrained, each with hashes."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence

import pytest

from detector.release.lock_files import FOLDER, LOCKS, ROOT


def pins(text: str) -> set[str]:
    return set(re.findall(r"^([A-Za-z0-9._-]+==[^ ;\\\n]+)", text, flags=re.MULTILINE))


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize(("name", "extras"), LOCKS.items())
def test_every_requirement_is_locked_at_its_constraint(name: str, extras: Sequence[str]) -> None:
    locked = pins((FOLDER / name).read_text())
    assert locked <= pins((ROOT / "constraints.txt").read_text()), "make locks"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    agent = tomllib.loads((ROOT / "clients" / "python" / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *agent["dependencies"]]
    needed += [one for extra in extras for one in project["optional-dependencies"][extra]]
    names = {normal(re.split(r"[<>=!~\[; ]", one)[0]) for one in needed} - {"stilltrue"}
    assert names <= {normal(pin.split("==")[0]) for pin in locked}, "make locks"


@pytest.mark.parametrize("name", LOCKS)
def test_every_requirement_has_hashes(name: str) -> None:
    blocks = re.split(r"^(?=[A-Za-z0-9])", (FOLDER / name).read_text(), flags=re.MULTILINE)[1:]
    assert blocks
    assert [block.splitlines()[0] for block in blocks if "--hash=sha256:" not in block] == []
