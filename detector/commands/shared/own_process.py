"""Shows to agents that a process is the detector's and does none of the application's work, whichever process started it."""

from __future__ import annotations

from stilltrue.runtime.membership.member_mark import MemberMark

_mark = MemberMark()


def mark_as_detectors() -> None:
    """Let an agent in the parent process take this process for one that has long been a member."""
    _mark.set(since=0.0)
