"""Pictures of a snapshot for ``show``: which formats there are, and what is highlighted in them."""

from __future__ import annotations

from collections.abc import Sequence

from detector.core.snapshot import Snapshot
from stilltrue.model import Verdict

FORMATS: tuple[str, ...] = ()


def drawn(snapshot: Snapshot, verdicts: Sequence[Verdict], form: str) -> str:
    """The picture in ``form``."""
    raise NotImplementedError(form)
