"""What the middlewares of ASGI and WSGI share: each stands for the application that it records, and there is one around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stilltrue.runtime.session import Session


class Middleware:
    """An application that records the requests to another one, and has all of its attributes."""

    def __init__(self, app: Callable[..., Any], session: Session) -> None:
        """``app`` serves the requests."""
        self._app = app
        self._session = session

    @classmethod
    def wrap(cls, app: Any, session: Session) -> Any:
        """Wrap ``app`` unless this session records it already; the middleware of an earlier session is removed."""
        while type(app) is cls:
            if app._session is session:  # noqa: SLF001 - the same class
                return app
            app = app._app  # noqa: SLF001
        return cls(app, session)

    def __getattr__(self, name: str) -> Any:
        if name == "_app":  # missing while the object is being copied
            raise AttributeError(name)
        return getattr(self._app, name)
