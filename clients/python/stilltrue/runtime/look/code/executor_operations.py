"""Whether code may cancel the queued items of an executor by shutting it down, whichever executor."""

from __future__ import annotations

from types import CodeType

from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.look.code.system_operations import texts_in

CANCELS_ITEMS = "cancels queued items"
"""Among the names of code: it may do so. No identifier contains a space."""
_KEYWORD = "cancel_futures"


@cached_by_code
def cancels_items(code: CodeType) -> bool:
    """Whether code, or a function within it, mentions the keyword, by which alone ``shutdown()`` cancels."""
    within = (one for one in code.co_consts if isinstance(one, CodeType))
    return _KEYWORD in texts_in(code.co_consts) or any(map(cancels_items, within))
