"""One page of the member list: queries the API, and links the previous and next pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from detector.service.web.api.member_order import ORDERS

PER_PAGE = 100
SEARCH_MAX = 200
STATES = ("live", "missing", "lost")
USUAL_ORDER = "lost first"
Ask = Callable[[Mapping[str, str]], Awaitable[Any]]
"""Queries ``/api/v1/members``."""


async def member_list(ask: Ask, query: Mapping[str, str], counted: int = PER_PAGE) -> dict[str, Any]:
    """The values for the template. Unknown states and orders are ignored; a page beyond the last becomes the last."""
    search, state, order = query.get("search", "")[:SEARCH_MAX], query.get("state", ""), query.get("sort", "")
    wanted = {
        "search": search,
        "state": state if state in STATES else "",
        "sort": order if order in ORDERS else USUAL_ORDER,
        "limit": str(counted),
    }
    page = query.get("page", "1")
    at = int(page) - 1 if page.isascii() and page.isdigit() and 0 < len(page) < 7 and int(page) else 0
    answer = await ask({**wanted, "offset": str(at * counted)})
    last = max(0, (answer["total"] - 1) // counted)
    if at > last:
        at = last
        answer = await ask({**wanted, "offset": str(at * counted)})

    def where(number: int) -> str:
        named = {"search": search, "state": state, "sort": order, "page": str(number + 1) if number else ""}
        return "?" + urlencode({name: value for name, value in named.items() if value})

    return {
        "members": answer["members"],
        "found": answer["total"],
        "counts": answer["states"],
        "first": at * counted + 1,
        "search": search,
        "state": state,
        "states": list(STATES),
        "order": order,
        "orders": [each for each in ORDERS if each != USUAL_ORDER],
        "before": where(at - 1) if at else "",
        "after": where(at + 1) if at < last else "",
    }
