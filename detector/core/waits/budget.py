"""Bounds the work of resolving one process's waits, since the result may grow quadratically with its report.

Rules:

1. A wait for one of many (the workers of a full pool, the holders of a resource) names them all, until the waits of its process
   name ``TARGETS_MAX`` parties in total. Further waits name only the first ``NAMED_MAX`` and are in doubt: they neither block a
   party for certain nor free one.
2. The search for parties that may cancel a call visits at most ``STEPS_MAX`` callers for a process, and a wait names at most
   ``WAYS_MAX`` of them. Beyond these bounds the wait is in doubt.

Each process has its own budget, so that the parts of a snapshot can be resolved independently.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from stilltrue.model import Wait

TARGETS_MAX = 1_000_000
"""Enough for a thousand parties that wait for the thousand workers of one pool."""
STEPS_MAX = 500_000
WAYS_MAX = 64
NAMED_MAX = 32


@dataclass(slots=True)
class Budget:
    """The remaining budget of one process."""

    targets: int = TARGETS_MAX
    steps: int = STEPS_MAX

    def bounded(self, wait: Wait) -> Wait:
        """Apply rule 1."""
        self.targets -= len(wait.among)
        if self.targets >= 0 or wait.needs != 1 or len(wait.among) <= NAMED_MAX:
            return wait
        what = f"{wait.what} (one of {len(wait.among)} parties, too many to list)"
        return replace(wait, among=wait.among[:NAMED_MAX], uncoloured=True, what=what)
