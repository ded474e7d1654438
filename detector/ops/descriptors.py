"""File descriptors: each connection takes one, so the limit is raised as far as it may be, and said where it is low."""

from __future__ import annotations

import resource

from detector.ops.logs import Log

WANTED = 65_536
"""For ten thousand agents, and some."""
FEW = 1024
"""Below it, a fleet of ordinary size has no room."""


def raise_limit(log: Log) -> int:
    """Raise this process's limit to what is wanted, or as far as it may: the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            soft = limit
        except (OSError, ValueError) as error:
            log.warning("descriptors not raised", limit=soft, reason=str(error))
    if soft != resource.RLIM_INFINITY and soft < FEW:
        log.warning("few descriptors", limit=soft, text="each agent takes one: raise the hard limit (ulimit -n, LimitNOFILE)")
    return soft
