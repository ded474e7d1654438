"""``stilltrue stream`` as a program for ``spark-submit``, with the same arguments and exit codes."""

from __future__ import annotations

from detector.commands.archives.stream import stream

if __name__ == "__main__":
    stream()
