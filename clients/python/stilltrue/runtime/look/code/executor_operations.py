"""Whether code may cancel the queued items of an executor by shutting it down, whichever executor."""

from __future__ import annotations

import functools
import inspect
from types import CodeType

from stilltrue.runtime.look.code.system_operations import texts_in

CANCELS_ITEMS = "cancels queued items"
"""Among the names of code: it may do so. No identifier contains a space."""
_KEYWORD = "cancel_futures"


def cancels_items(code: CodeType, words: frozenset[str]) -> bool:
    """Whether code that uses these ``words`` shuts down something, and mentions the keyword by which alone that cancels."""
    return "shutdown" in words and mentions_cancelling(code, inner=bool(code.co_flags & inspect.CO_OPTIMIZED))


@functools.lru_cache(maxsize=10_000)
def mentions_cancelling(code: CodeType, *, inner: bool = True) -> bool:
    """Whether code mentions the keyword; ``inner``: or a function within it. Those of a module are called by their names."""
    within = (one for one in code.co_consts if inner and isinstance(one, CodeType))
    return _KEYWORD in texts_in(code.co_consts) or any(map(mentions_cancelling, within))
