"""The party of the task that makes a request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from stilltrue.model import PartyName
from stilltrue.runtime.parties import Parties


def current_party(parties: Parties) -> Callable[[], PartyName | None]:
    """A function that returns the party of the current task; None outside a task of asyncio's."""

    def now() -> PartyName | None:
        task = asyncio.current_task() if asyncio._get_running_loop() is not None else None  # noqa: SLF001 - documented
        return None if task is None else parties.of_current(task)

    return now
