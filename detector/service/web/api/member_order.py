"""Sort orders and search text for lists of members."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from detector.service.detection.membership.members import Member, MemberState

_WORST_FIRST = (MemberState.LOST, MemberState.MISSING, MemberState.LIVE)
ORDERS: Mapping[str, Callable[[Member, MemberState], Any]] = {
    "name": lambda member, _: member.name,
    "service": lambda member, _: (member.process.service, member.name),
    "lost first": lambda member, state: (_WORST_FIRST.index(state), member.name),
    "newest first": lambda member, _: (-member.connected_at, member.name),
    "longest silent first": lambda member, _: (member.heard_at, member.name),
    "most unexplained first": lambda member, _: (-(member.unexplained or 0), member.name),
    "most blind spots first": lambda member, _: (-len(member.blind_spots()), member.name),
}
"""Sort keys, by the value of the query parameter ``sort``."""


def searched(member: Member) -> str:
    """The text to search in: name, service and labels."""
    labels = " ".join(f"{name}={value}" for name, value in member.labels.items())
    return f"{member.name} {member.process.service} {labels}".lower()
