"""Whether code that goes through a gate only raises and lowers a share of its own.

Rules:

1. Code that sets the gate's attribute raises it before it lowers it, or raises it for its caller, or is a method that lowers it
   and is called by name.
2. Code that names a method that lowers the gate also names one that raises it.
3. Code of the program's own that sets or calls something by a computed name may lower any gate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CodeType

from stilltrue.runtime.introspection.origins import is_own_code
from stilltrue.runtime.look.code.names import names_stored_in, words_in
from stilltrue.runtime.waits.orphaned_locks.census import codes_within

COMPUTING = frozenset({"getattr", "methodcaller", "attrgetter", "vars", "globals", "__dict__", "eval", "exec"})


def has_own_share(
    codes: Sequence[CodeType],
    attribute: str,
    lowering: frozenset[str],
    raising: frozenset[str],
    raises: Callable[[CodeType], bool],
) -> bool:
    """Whether code that begins with the first of ``codes``, and may run the others, has only a share of its own.

    ``lowering``, ``raising``: the methods that lower and raise the gate for others. ``raises``: whether code raises the
    attribute for its caller, or before it lowers it.
    """
    every = {one: None for code in codes for one in codes_within(code)}
    words = {code: words_in(code) for code in every}
    named = frozenset().union(*words.values())
    for code in every:
        stored = names_stored_in(code)
        if "*" in stored or (is_own_code(code) and not COMPUTING.isdisjoint(words[code])):
            return False
        if attribute in stored and not raises(code) and (code is codes[0] or code.co_name not in lowering & named):
            return False
        if not lowering.isdisjoint(words[code]) and raising.isdisjoint(words[code]):
            return False
    return True
