"""The version of both packages, read from the file ``VERSION``."""

from __future__ import annotations

from pathlib import Path

__version__ = Path(__file__).with_name("VERSION").read_text(encoding="ascii").strip()
