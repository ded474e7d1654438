"""Builds the detector's packages with setuptools, but installs the package ``detector`` as ``stilltrue_detector``.

The name ``detector`` is too generic for site-packages. In a checkout, folder and package keep it; in a wheel, every module path
in the code, the entry points and the metadata is renamed. An editable installation has both names, so that plug-ins can always
import ``stilltrue_detector``.

This module imports only setuptools and the standard library: a build has nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import tempfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from setuptools import build_meta

CHECKOUT, INSTALLED = "detector", "stilltrue_detector"
LEFT_OUT = f"{CHECKOUT}/release/"
"""Left out of wheels, since it is needed only in a checkout."""
_REPOSITORY = "https://github.com/stilltrue/stilltrue/blob/main/"
_RAW = "https://raw.githubusercontent.com/stilltrue/stilltrue/main/"
_FIRST_DATE = 315532800  # 1980, the earliest time in a zip file

get_requires_for_build_wheel = build_meta.get_requires_for_build_wheel
get_requires_for_build_sdist = build_meta.get_requires_for_build_sdist
get_requires_for_build_editable = build_meta.get_requires_for_build_editable
build_sdist = build_meta.build_sdist


def build_wheel(
    wheel_directory: str, config_settings: Mapping[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """Build the wheel with the installed name (PEP 517)."""
    with tempfile.TemporaryDirectory() as folder:
        name: str = build_meta.build_wheel(folder, config_settings, metadata_directory)
        files = _read(Path(folder) / name)
    names = _modules(files)
    _write(Path(wheel_directory) / name, dict(_installed(path, data, names) for path, data in files.items() if _ships(path)))
    return name


def build_editable(
    wheel_directory: str, config_settings: Mapping[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """Build the editable wheel, with the installed name as a second name (PEP 660)."""
    with tempfile.TemporaryDirectory() as folder:
        name: str = build_meta.build_editable(folder, config_settings, metadata_directory)
        files = _read(Path(folder) / name)
    files[f"{INSTALLED}.py"] = Path(__file__).with_name("installed_name.py").read_bytes()
    _write(Path(wheel_directory) / name, files)
    return name


def renamed(text: str, names: frozenset[str]) -> str:
    """Replace the paths of our modules in ``text`` by those under the installed name.

    Parameters
    ----------
    text : Python code, or another text with module names.
    names : the top-level modules and packages of the package.
    """
    ours = "|".join(sorted(map(re.escape, names)))
    text = re.sub(rf"(?<![\w./-]){CHECKOUT}(?=\.(?:{ours})\b)", INSTALLED, text)
    text = re.sub(rf"(?m)^(\s*(?:from|import)) {CHECKOUT}\b(?!\.)", rf"\1 {INSTALLED}", text)
    return re.sub(rf'("-m", "|python -m ){CHECKOUT}\b(?!\.)', rf"\1{INSTALLED}", text)


def absolute_links(text: str) -> str:
    """Make the README's links absolute, so that they work outside the repository."""
    text = re.sub(r"(!\[[^\]]*\]\()(?!https?:|#)", rf"\1{_RAW}", text)
    return re.sub(r"((?<!!)\[[^\]]*\]\()(?!https?:|#)", rf"\1{_REPOSITORY}", text)


def _ships(path: str) -> bool:
    return not path.startswith(LEFT_OUT)


def _modules(files: Mapping[str, bytes]) -> frozenset[str]:
    first = (path.split("/")[1] for path in files if path.startswith(f"{CHECKOUT}/"))
    return frozenset(name.removesuffix(".py") for name in first if "." not in name.removesuffix(".py") and name[0] != "_")


def _installed(path: str, data: bytes, names: frozenset[str]) -> tuple[str, bytes]:
    """Return the path and content of a wheel's file under the installed name."""
    if path.startswith(f"{CHECKOUT}/"):
        shipped = f"{INSTALLED}/{path.removeprefix(f'{CHECKOUT}/')}"
        return shipped, renamed(data.decode(), names).encode() if path.endswith(".py") else data
    if path.endswith(".dist-info/entry_points.txt"):
        return path, renamed(data.decode(), names).encode()
    if path.endswith(".dist-info/top_level.txt"):
        return path, f"{INSTALLED}\n".encode()
    if path.endswith(".dist-info/METADATA"):
        return path, absolute_links(data.decode()).encode()
    return path, data


def _read(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist() if not info.is_dir()}


def _write(wheel: Path, files: Mapping[str, bytes]) -> None:
    """Write a wheel with a record of its files, reproducibly for the same files and SOURCE_DATE_EPOCH."""
    record = next(path for path in files if path.endswith(".dist-info/RECORD"))
    rows = {path: data for path, data in sorted(files.items()) if path != record}
    lines = [f"{path},sha256={_digest(data)},{len(data)}\n" for path, data in rows.items()]
    moment = time.gmtime(max(_FIRST_DATE, int(os.environ.get("SOURCE_DATE_EPOCH", _FIRST_DATE))))
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in {**rows, record: f"{''.join(lines)}{record},,\n".encode()}.items():
            info = zipfile.ZipInfo(path, moment[:6])
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o100644 << 16
            archive.writestr(info, data)


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
