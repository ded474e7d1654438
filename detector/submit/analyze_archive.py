"""``stilltrue analyze`` as a program for ``spark-submit``, with the same arguments and exit codes."""

from __future__ import annotations

from detector.commands.archives.analyze import analyze

if __name__ == "__main__":
    analyze()
