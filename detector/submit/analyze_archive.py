"""``stilltrue analyze`` as a program for ``spark-submit``: the same arguments, the same exit codes."""

from __future__ import annotations

from detector.commands.archives.analyze import analyze

if __name__ == "__main__":
    analyze()
