"""Builds the release in a folder, from the committed files: ``python -m detector.release.publish dist``.

Builds are reproducible: all times are SOURCE_DATE_EPOCH (default: the commit's time), files have no owner, and are sorted by
name.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path

from detector.release.bill_of_materials import write_materials

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (".", "clients/python")
CHART = "helm/stilltrue"
SUMS = "SHA256SUMS"


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Unpack ``archive`` in ``folder``: its data only, where Python has filters (3.11.4 and newer)."""
    archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
    archive.extractall(folder)


def publish(out: Path) -> list[Path]:
    """Build the wheels, source archives, image context, chart, bills of materials and checksums in ``out``.

    Only committed files are used; ``out`` must be empty or not exist.

    Raises
    ------
    SystemExit
        If ``out`` has files, or a build fails.
    """
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise SystemExit(f"{out} is not empty: remove it, or choose another folder")
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct"))
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder)
        with tarfile.open(fileobj=io.BytesIO(_git_bytes("archive", "HEAD"))) as committed:
            unpack(committed, checkout)
        version = (checkout / "clients/python/stilltrue/VERSION").read_text().strip()
        context, chart = _image_context(checkout), _chart(checkout)  # before builds add files there
        for package in PACKAGES:
            _build(checkout / package, out, epoch)
        for source in out.glob("*.tar.gz"):
            _write_tar(source, _files_in_tar(source), epoch)
        _write_tar(out / f"stilltrue-image-{version}.tar.gz", context, epoch)
        _write_tar(out / f"stilltrue-chart-{version}.tgz", chart, epoch)
        names = {"stilltrue": version, "stilltrue-detector": version}
        write_materials(out, names, checkout / "constraints.txt", epoch)
    made = sorted(path for path in out.iterdir() if path.is_file())
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in made)
    (out / SUMS).write_text(sums)
    return [*made, out / SUMS]


def _build(package: Path, out: Path, epoch: int) -> None:
    command = [str(Path(sys.executable).with_name("uv")), "build", "--quiet", "--out-dir", str(out), str(package)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{package.name}: {done.stderr.strip()}")
    (out / ".gitignore").unlink(missing_ok=True)


def _files_in_tar(archive: Path) -> dict[str, tuple[bytes, int]]:
    files = {}
    with tarfile.open(archive) as source:
        for member in source.getmembers():
            content = source.extractfile(member)
            if content is not None:
                files[member.name] = (content.read(), member.mode)
    return files


def _image_context(checkout: Path) -> dict[str, tuple[bytes, int]]:
    """Return the files that ``docker build`` needs: the Dockerfile and the files that it copies."""
    dockerfile = (checkout / "Dockerfile").read_text()
    copied = {name for line in re.findall(r"^COPY (?!--)(.*)$", dockerfile, re.MULTILINE) for name in line.split()[:-1]}
    return _under(checkout, ("Dockerfile", ".dockerignore", *sorted(copied)))


def _chart(checkout: Path) -> dict[str, tuple[bytes, int]]:
    """Return the chart's files as ``helm package`` packs them."""
    lines = (checkout / CHART / ".helmignore").read_text().splitlines()
    ignored = [line.rstrip("/") for line in lines if line and not line.startswith("#")]
    files = _under(checkout / CHART, (".",))
    return {
        f"stilltrue/{path}": file
        for path, file in files.items()
        if not any(fnmatch(part, pattern) for part in path.split("/") for pattern in ignored)
    }


def _under(folder: Path, names: Iterable[str]) -> dict[str, tuple[bytes, int]]:
    found: dict[str, tuple[bytes, int]] = {}
    for name in names:
        here = folder / name
        for path in sorted(here.rglob("*")) if here.is_dir() else [here]:
            if path.is_file():
                found[path.relative_to(folder).as_posix()] = (path.read_bytes(), path.stat().st_mode)
    return found


def _write_tar(path: Path, files: Mapping[str, tuple[bytes, int]], epoch: int) -> None:
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, (data, mode) in sorted(files.items()):
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.mode = len(data), epoch, 0o755 if mode & 0o100 else 0o644
            archive.addfile(info, io.BytesIO(data))


def _git_bytes(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout


def _git(*arguments: str) -> str:
    return _git_bytes(*arguments).decode().strip()


def main() -> None:
    """Build the release in the folder that the command line names."""
    parser = argparse.ArgumentParser(description="Build the release, reproducibly.")
    parser.add_argument("out", type=Path, help="an empty folder, or a new one")
    out = parser.parse_args().out
    sys.stderr.write(f"Building {out} from the commit (about a minute: both wheels are installed to list what they need) ...\n")
    for path in publish(out):
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
