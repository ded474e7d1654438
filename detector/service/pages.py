"""The pages that people look at: what stands, who is there, what was seen. No script, nothing from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

from detector.service.archivist import Archivist
from detector.service.driver import Driver


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One answer to a browser."""

    body: str
    content_type: str = "text/html; charset=utf-8"


class Pages:
    """Makes the pages; on the event loop."""

    def __init__(self, *, driver: Driver, archivist: Archivist) -> None:
        """What is shown."""
        self._driver = driver
        self._archivist = archivist

    async def page(self, path: str) -> Page | None:
        """The page at ``path``; None when there is none."""
        if path == "/":
            return Page(body="<!doctype html><title>Stilltrue</title>")
        return None
