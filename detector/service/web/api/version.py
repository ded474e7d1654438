"""The version of the state, which changes with every answer, incident and member."""

from __future__ import annotations

import time

from detector.service.detection.driver import Driver
from detector.service.web.api.live import STEP_SECONDS


class StateVersion:
    """Computes the version at most once per ``STEP_SECONDS``, for all callers."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._version, self._made = "", float("-inf")

    def __call__(self) -> str:
        """The current version."""
        now = time.monotonic()
        if now - self._made >= STEP_SECONDS:
            driver = self._driver
            answers = tuple((each.predicate, each.snapshot.scope, each.holds, each.core) for each in driver.current.all())
            incidents = tuple((each.id, each.core) for each in driver.incidents.open_ones())
            members = tuple((member.name, driver.state_of(member)) for member in driver.roster.all())
            self._version = f"{hash((answers, incidents, members, driver.incidents.notes)) & 0xFFFFFFFFFFFF:x}"
            self._made = now
        return self._version
