"""``stilltrue stream`` as a program for ``spark-submit``: the same arguments, the same exit codes."""

from __future__ import annotations

from detector.commands.archives.stream import stream

if __name__ == "__main__":
    stream()
