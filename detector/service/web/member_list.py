"""One page of the members: searched, of one state, sorted and cut, as the address says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from detector.service.detection.membership.members import Member, MemberState

PER_PAGE = 200
SEARCH_MAX = 200
ORDERS: Mapping[str, Callable[[Member], Any]] = {
    "name": lambda member: member.name,
    "service": lambda member: (member.process.service, member.name),
    "newest first": lambda member: (-member.connected_at, member.name),
    "longest silent first": lambda member: (member.heard_at, member.name),
    "most unexplained first": lambda member: (-(member.unexplained or 0), member.name),
    "most blind spots first": lambda member: (-len(member.blind_spots()), member.name),
}
"""How members can be sorted, by what the address says after ``sort=``."""


def searched(member: Member) -> str:
    """The text in which a search looks: name, service and labels."""
    labels = " ".join(f"{name}={value}" for name, value in member.labels.items())
    return f"{member.name} {member.process.service} {labels}".lower()


def member_list(
    members: Sequence[Member], state_of: Callable[[Member], MemberState], query: Mapping[str, str], counted: int = PER_PAGE
) -> dict[str, Any]:
    """What the page of members shows of ``members``, with the addresses of the pages before and after it.

    An unknown order leaves them as they are.
    """
    search, state, order = query.get("search", "")[:SEARCH_MAX], query.get("state", ""), query.get("sort", "")
    text = search.lower()
    found = [one for one in members if (not state or state_of(one).value == state) and text in searched(one)]
    if order in ORDERS:
        found.sort(key=ORDERS[order])
    last = max(0, (len(found) - 1) // counted)
    page = query.get("page", "1")
    at = min(last, int(page) - 1) if page.isascii() and page.isdigit() and 0 < len(page) < 7 and int(page) else 0

    def where(number: int) -> str:
        named = {"search": search, "state": state, "sort": order, "page": str(number + 1) if number else ""}
        return "?" + urlencode({name: value for name, value in named.items() if value})

    return {
        "members": found[at * counted : (at + 1) * counted],
        "found": len(found),
        "first": at * counted + 1,
        "search": search,
        "state": state,
        "states": [each.value for each in MemberState],
        "order": order,
        "orders": list(ORDERS),
        "before": where(at - 1) if at else "",
        "after": where(at + 1) if at < last else "",
    }
