"""The long form, guided by coverage: ``make fuzz``, or ``python -m tests.fuzz.long NAME --seconds 60``. Needs atheris.

What it finds is written to ``build/fuzz/NAME-crash-...``: put it into the corpus with the mend.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORPUS = Path(__file__).with_name("corpus")


def fuzz(name: str, seconds: int) -> None:
    """Fuzz one reader in this process, which ends with it."""
    import atheris  # type: ignore[import-untyped,import-not-found,unused-ignore]  # noqa: PLC0415 - for make fuzz alone

    with atheris.instrument_imports(include=["detector", "stilltrue"]):
        from tests.fuzz.targets import run  # noqa: PLC0415 - as it is imported, it is instrumented
    found = ROOT / "build" / "fuzz"
    seen = found / name
    seen.mkdir(parents=True, exist_ok=True)
    bounds = [f"-max_total_time={seconds}", "-max_len=4096", "-timeout=20", "-rss_limit_mb=2048"]
    arguments = [sys.argv[0], str(seen), str(CORPUS / name), *bounds, f"-artifact_prefix={found}/{name}-"]
    atheris.Setup(arguments, lambda data: run(name, data))
    atheris.Fuzz()


def main() -> None:
    """One reader, or each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="?", help="the reader; without it, all in turn")
    parser.add_argument("--seconds", type=int, default=60, help="for each reader")
    given = parser.parse_args()
    if given.name is not None:
        fuzz(given.name, given.seconds)
        return
    names = sorted(path.name for path in CORPUS.iterdir())
    command = [sys.executable, "-m", "tests.fuzz.long", "--seconds", str(given.seconds)]
    failed = [name for name in names if subprocess.run([*command, name], check=False, cwd=ROOT).returncode]
    sys.exit(f"failed: {', '.join(failed)} (see build/fuzz)" if failed else None)


if __name__ == "__main__":
    main()
