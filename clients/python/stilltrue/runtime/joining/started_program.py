"""What this process was started to run, read from its arguments: a script, a package, or an application that a server runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

WEB_SERVERS = frozenset(
    {"gunicorn", "uvicorn", "hypercorn", "daphne", "granian", "flask", "fastapi", "waitress", "waitress-serve", "cheroot"}
)
"""Programs that serve a web application named among their arguments."""
SERVERS = WEB_SERVERS | {"celery"}
"""Programs that run an application named among their arguments."""
_APPLICATION = re.compile(r"(?:--?app=?)?([A-Za-z_][\w.]*)(?::[\w.()]+)")
_OPTION = re.compile(r"(?:--app|-A)(?:=|(?<=A)|$)(.*)")
_MODULE = re.compile(r"([A-Za-z_][\w.]*?)(?:\.py)?(?::.*)?")


def module_of_application(arguments: Sequence[str]) -> str | None:
    """The module of the application that a server was told to run, by the server's own arguments."""
    named = next((found[1] for one in arguments if (found := _APPLICATION.fullmatch(one))), None)
    return named or _module_of_option(arguments)


def _module_of_option(arguments: Sequence[str]) -> str | None:
    """The module that ``--app`` or ``-A`` names, as for ``flask`` and ``celery``."""
    for one, after in pairwise((*arguments, "")):
        if option := _OPTION.fullmatch(one):
            module = _MODULE.fullmatch(option[1] or after)
            return None if module is None else module[1]
    return None
