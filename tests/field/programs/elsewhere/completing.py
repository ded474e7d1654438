"""Sets a result of a pool later; only a near miss loads this module."""

import threading
from typing import Any

from field_program import FAR_SECONDS, begin


def complete_later(result: Any, value: Any) -> None:
    """Set the first part of ``result`` from another thread."""
    begin(_complete, result, value)


def _complete(result: Any, value: Any) -> None:
    threading.Event().wait(FAR_SECONDS)
    result._set(0, (True, value))
