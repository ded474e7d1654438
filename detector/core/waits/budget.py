"""How much of one process's waits is followed: what they resolve to may grow with the square of what its report says.

Rules:

1. A wait for one of many (the workers of a full pool, the holders of a resource) names them all, until the waits of its process
   name ``TARGETS_MAX`` together. From there on a wait names a few of them, and is in doubt: it holds for nobody for certain,
   and nobody is free by it.
2. Who may cancel a call is looked for until the callers that were looked at for a process are ``STEPS_MAX``, and a wait names
   ``WAYS_MAX`` of them. Beyond, the wait is in doubt.

It goes by the process, so that the parts of a snapshot can be resolved apart from each other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from stilltrue.model import Wait

TARGETS_MAX = 1_000_000
"""A thousand parties that wait for the thousand workers of one pool."""
STEPS_MAX = 500_000
WAYS_MAX = 64
NAMED_MAX = 32


@dataclass(slots=True)
class Budget:
    """What is left of it for one process."""

    targets: int = TARGETS_MAX
    steps: int = STEPS_MAX

    def bounded(self, wait: Wait) -> Wait:
        """Rule 1."""
        self.targets -= len(wait.among)
        if self.targets >= 0 or wait.needs != 1 or len(wait.among) <= NAMED_MAX:
            return wait
        what = f"{wait.what} (one of {len(wait.among)} parties, too many to follow)"
        return replace(wait, among=wait.among[:NAMED_MAX], uncoloured=True, what=what)
