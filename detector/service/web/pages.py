"""The web UI: the answer first, then the evidence. Built only from the documents of ``/api/v1``; no external resources.

Pages are rendered on the server, so that the first paint takes one request and no scripts. Without scripts they reload every
ten seconds; with ``static/live.js`` they update in place, and ages count up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from detector.core.times import duration, read_time
from detector.ops.http import Answer, policy
from detector.service.web.api.api import NO_QUERY, Api, Query
from detector.service.web.formatting import between, counting, moment, printable_value, since, timed, whole
from detector.service.web.member_list import USUAL_ORDER, member_list
from detector.service.web.static_files import digest, static_answer, static_file, style_policy

_HTML = "text/html; charset=utf-8"
_SHOWN_MAX = 20
_OPEN_SHOWN_MAX = 3
_MEMBERS_SHOWN_MAX = 20
_LISTED_MAX = 1000
_SNAPSHOTS_SHOWN_MAX = 100
_SHARED_SECONDS = 1.0
_SETTLING_SECONDS = 60.0
"""How long after an incident's end a page that is opened still follows it: the outcome of a cure is noted after the end."""
_BETWEEN_MAX = 12
_PROCESSES_MAX = 10
_ICONS = {"trouble": "%23b00020", "doubt": "%23c98a00", "fine": "%231b6e3c"}
_NO_ICON = "%2359636e"
_UNDECLARED = "undeclared"
_OUTCOMES = ("complete", "incomplete", "rejected")
_DOWNLOADS = {"json": "document", "svg": "picture", "space-time": "picture"}


class Pages:
    """Renders the pages on the event loop; slow parts run on threads."""

    def __init__(self, *, api: Api, version: Callable[[], str], base_path: str = "", trace_url: str = "") -> None:
        """``api``: the source of all data; ``version``: changes whenever the data does.

        ``base_path``: the prefix of every link; ``trace_url``: contains ``{trace}``.
        """
        self._api = api
        self._base_path = base_path
        self._version = version
        self._made: dict[tuple[str, bool, str], tuple[float, Answer | None]] = {}
        self._templates = Environment(
            loader=PackageLoader("detector.service.web"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            auto_reload=False,
            finalize=printable_value,
        )
        self._templates.filters["whole"] = whole
        self._templates.globals.update(
            base=base_path,
            static=lambda name: f"{base_path}/static/{name}?v={digest(name)}",
            style=Markup(static_file("style.css").decode()),
            trace_url=trace_url,
            moment=moment,
            since=since,
            between=between,
            duration=duration,
            counting=counting,
            timed=timed,
        )

    async def page(self, path: str, query: Query = NO_QUERY, *, operator: bool = False) -> Answer | None:
        """Render the page at ``path``; None if there is none. ``operator``: the user may end incidents."""
        match path.strip("/").split("/"):
            case [""]:
                return await self._overview()
            case ["incidents"]:
                return self.html("incidents", "Incidents", live=True, incidents=await self._incidents(_LISTED_MAX))
            case ["members"]:
                return await self._member_page(query)
            case ["snapshots"]:
                return await self._snapshot_list(query)
            case [kind, name]:
                return await self._one(kind, name, query, operator=operator)
            case _:
                return None

    async def shared_page(self, path: str, query: Query = NO_QUERY, *, operator: bool = False) -> Answer | None:
        """As :meth:`page`, rendered once for all watchers that reload it after a change."""
        key, now = (f"{path}?{sorted(query.items())}", operator, self._version()), time.monotonic()
        made_at, answer = self._made.get(key, (float("-inf"), None))
        if now - made_at > _SHARED_SECONDS:
            answer = await self.page(path, query, operator=operator)
            self._made = {each: made for each, made in self._made.items() if now - made[0] <= _SHARED_SECONDS}
            self._made[key] = now, answer
        return answer

    async def _one(self, kind: str, name: str, query: Query, *, operator: bool) -> Answer | None:
        match kind:
            case "incidents" if name == "latest":
                return await self._latest_incident(query.get("predicate", ""))
            case "incidents":
                return await self._incident(name, curable=operator)
            case "snapshots":
                return await self._snapshot(name, query)
            case "static":
                return static_answer(name, query.get("v", ""))
            case _:
                return None

    def missing(self) -> Answer:
        """The page for paths that do not exist (any more)."""
        return replace(self.html("missing", "No such page"), status=HTTPStatus.NOT_FOUND)

    def login(self, *, refused: bool, wanted: str = "/") -> Answer:
        """The login form; ``wanted``: the page to open afterwards; ``refused``: the last token was refused."""
        answer = self.html("login", "Log in", refused=refused, wanted=wanted)
        return replace(answer, status=HTTPStatus.UNAUTHORIZED) if refused else answer

    async def _overview(self) -> Answer:
        found = await self._api.document("overview")
        head, verdicts, open_ones = found["headline"], found["verdicts"], found["open_incidents"]
        members = await self._api.document("members", {"sort": USUAL_ORDER, "limit": str(_MEMBERS_SHOWN_MAX)})
        snapshots = await self._api.document("snapshots", {"limit": str(_SHOWN_MAX)})
        return self.html(
            "overview",
            f"{head['text']}{': ' if head['extent'] else ''}{head['extent']}",
            live=True,
            icon=_ICONS[head["level"]],
            head=head,
            open_incidents=[await self._api.document(f"incidents/{one}") for one in open_ones[:_OPEN_SHOWN_MAX]],
            more_open=max(0, len(open_ones) - _OPEN_SHOWN_MAX),
            verdicts=_declared(verdicts),
            undeclared=_undeclared(verdicts),
            incidents=await self._incidents(_SHOWN_MAX),
            members=members["members"],
            member_count=members["total"],
            summaries=snapshots["snapshots"],
        )

    async def _snapshot_list(self, query: Query) -> Answer:
        """The newest snapshots, or those before the number ``before``, of one outcome or all."""
        outcome, before = query.get("outcome", ""), query.get("before", "")
        wanted = {"limit": str(_SNAPSHOTS_SHOWN_MAX), "outcome": outcome if outcome in _OUTCOMES else ""}
        if earlier := _number(before):
            wanted["before"] = before
        found = await self._api.document("snapshots", wanted)
        shown_ones = found["snapshots"]
        return self.html(
            "snapshots",
            "Snapshots",
            live=not earlier,
            summaries=shown_ones,
            outcome=outcome,
            outcomes=_OUTCOMES,
            older=shown_ones[-1]["id"] if found["more"] else 0,
        )

    async def _member_page(self, query: Query) -> Answer:
        async def ask(wanted: Mapping[str, str]) -> Any:
            return await self._api.document("members", wanted)

        found = await member_list(ask, query)
        counts = found.pop("counts")
        summary = ", ".join(f"{count} {state}" for state, count in counts.items())
        return self.html("members", "Members", live=True, member_count=sum(counts.values()), counts=summary, **found)

    async def _incidents(self, limit: int) -> Any:
        return (await self._api.document("incidents", {"limit": str(limit)}))["incidents"]

    async def _latest_incident(self, predicate: str) -> Answer:
        """Redirect links in alerts, which name no incident, to the open one or the newest; if several are open, to the list."""
        known = [one for one in await self._incidents(_LISTED_MAX) if predicate in ("", one["predicate"])]
        found = [one for one in known if one["closed"] is None] or known[:1]
        if len(found) > 1:
            return self._redirect("/incidents")
        return self._redirect(f"/incidents/{found[0]['id']}" if found else "/")

    def _redirect(self, path: str) -> Answer:
        return Answer(status=HTTPStatus.FOUND, body="", headers={"Location": f"{self._base_path}{path}"})

    async def _incident(self, name: str, *, curable: bool) -> Answer | None:
        incident = await self._api.document(f"incidents/{name}")
        if incident is None:
            return None
        kept = (await self._api.document(f"incidents/{name}/snapshots"))["snapshots"]
        first, last = incident["first_snapshot"], incident["last_snapshot"]
        open_still = incident["closed"] is None
        return self.html(
            "incident",
            f"{incident['predicate']} {name}, {'open' if open_still else 'ended'}",
            live=open_still or time.time() - read_time(incident["closed"]) < _SETTLING_SECONDS,
            icon=_ICONS["trouble" if open_still else "fine"],
            incident=incident,
            pictured=await self._pictured(incident, kept),
            predicate=incident["predicate"],
            incident_id=incident["id"],
            curable=curable and open_still,
            between_ones=[one for one in kept if first < one < last],
            between_max=_BETWEEN_MAX,
            processes_max=_PROCESSES_MAX,
        )

    async def _pictured(self, incident: Any, kept: list[int]) -> int:
        """The snapshot for its picture: the newest one kept, or the first if the archive has it; 0: none."""
        if kept:
            return kept[-1]
        first: int = incident["first_snapshot"]
        return first if first and await self._api.document(f"snapshots/{first}") is not None else 0

    async def _snapshot(self, name: str, query: Query) -> Answer | None:
        number, _, kind = name.partition(".")
        if name == "latest":
            newest = await self._api.document("snapshots/latest")
            return None if newest is None else self._redirect(f"/snapshots/{newest['id']}")
        if not _number(number):
            return None
        if kind:
            if kind not in _DOWNLOADS:
                return None
            form = {"form": kind} if _DOWNLOADS[kind] == "picture" else {}
            answer: Answer | None = await self._api.document(f"snapshots/{number}/{_DOWNLOADS[kind]}", form)
            return answer
        summary = await self._api.document(f"snapshots/{number}")
        if summary is None:
            return None
        since_given = query.get("since", "")
        wanted = {"since": since_given} if _number(since_given) else {}
        return self.html(
            "snapshot",
            f"Snapshot {summary['id']}",
            summary=summary,
            verdicts=_declared(summary["verdicts"]),
            undeclared=_undeclared(summary["verdicts"]),
            changes=await self._api.document(f"snapshots/{number}/changes", wanted),
            since_given=wanted.get("since", ""),
            pictured=summary["id"],
            predicate="",
            incident_id="",
        )

    def html(self, template: str, title: str, *, live: bool = False, icon: str = _NO_ICON, **values: Any) -> Answer:
        """Render a template."""
        page = self._templates.get_template(f"{template}.html.jinja")
        title = f"{title} - Stilltrue"
        body = page.render(title=title, live=live, icon=icon, now=time.time(), version=self._version(), **values)
        return Answer(body=body + "\n", content_type=_HTML, headers={"Content-Security-Policy": policy(style_policy())})


def _number(text: str) -> int:
    """Parse a snapshot number; 0 if ``text`` is not one."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 17 else 0


def _declared(verdicts: list[Any]) -> list[Any]:
    return [verdict for verdict in verdicts if verdict["witness"]["kind"] != _UNDECLARED]


def _undeclared(verdicts: list[Any]) -> list[Any]:
    """The verdicts of predicates whose facts no process declares."""
    return [verdict for verdict in verdicts if verdict["witness"]["kind"] == _UNDECLARED]
