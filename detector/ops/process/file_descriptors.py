"""Raises the limit on file descriptors, of which each connection takes one, and warns if it stays low."""

from __future__ import annotations

import resource

from detector.ops.logs import Log

WANTED = 65_536
"""Enough for well over ten thousand agents."""
LOW = 1024
"""Lower limits are too low for a fleet of ordinary size."""


def raise_limit(log: Log) -> int:
    """Raise this process's limit to ``WANTED``, or as far as permitted; returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            soft = limit
        except (OSError, ValueError) as error:
            log.warning("descriptors not raised", limit=soft, reason=str(error))
    if soft != resource.RLIM_INFINITY and soft < LOW:
        log.warning("few descriptors", limit=soft, text="each agent takes one: raise the hard limit (ulimit -n, LimitNOFILE)")
    return soft
