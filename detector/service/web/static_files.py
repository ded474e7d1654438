"""Static files of the web UI: scripts, sent compressed and cached by browsers, and the style, inlined in each page."""

from __future__ import annotations

import base64
import gzip
import hashlib
from functools import cache
from importlib.resources import files

from detector.ops.http import Answer

_SCRIPT = "text/javascript; charset=utf-8"
_TYPES = {"live.js": _SCRIPT, "graph.js": _SCRIPT, "cytoscape.min.js": _SCRIPT, "style.css": "text/css; charset=utf-8"}
_KEPT = "public, max-age=31536000, immutable"


@cache
def static_file(name: str) -> bytes:
    """Read a file."""
    return (files("detector.service.web") / "static" / name).read_bytes()


@cache
def digest(name: str) -> str:
    """A digest for a script's URL, which changes with the script, so that browsers may cache it."""
    return hashlib.sha256(static_file(name)).hexdigest()[:16]


@cache
def style_policy() -> str:
    """The content security policy source for the inlined style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(static_file('style.css')).digest()).decode()}'"


def static_answer(name: str, version: str) -> Answer | None:
    """Serve the file ``name``; None if there is none. Browsers may cache it if ``version`` is its digest."""
    if name not in _TYPES:
        return None
    kept = {"Cache-Control": _KEPT} if version == digest(name) else {}
    return Answer(body=static_file(name), content_type=_TYPES[name], gzipped=_gzipped(name), headers=kept)


@cache
def _gzipped(name: str) -> bytes:
    return gzip.compress(static_file(name), mtime=0)
