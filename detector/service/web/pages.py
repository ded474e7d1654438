"""The web pages: the answer first, then the evidence. No external resources.

Without scripts they reload every ten seconds; with ``static/live.js`` they update in place, and ages count.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from detector.core.protocol.assembler import Outcome
from detector.core.times import duration, seconds_of, write_time
from detector.drawing.draw import Format
from detector.ops.http import Answer, policy
from detector.ops.text import printable
from detector.service.detection.driver import Driver
from detector.service.detection.incident.incidents import Incident
from detector.service.detection.incident.standing_waits import newest_of, now_waiting
from detector.service.detection.membership.members import Member, MemberState
from detector.service.storage.snapshot_store import SnapshotStore
from detector.service.web.changes import Changes, changes_between
from detector.service.web.headline import Level, age, headline, level_of
from detector.service.web.history import recurrence, seen_before
from detector.service.web.live import STEP_SECONDS, LiveVersions
from detector.service.web.member_list import member_list
from detector.service.web.picture import picture_of
from detector.service.web.static_files import digest, static_answer, static_file, style_policy
from stilltrue.model import Evidence, PartyName, Verdict
from stilltrue.protocol.wire.verdict import verdict_from_wire
from stilltrue.v1 import detector_pb2 as pb

_HTML = "text/html; charset=utf-8"
_SHOWN_MAX = 20
_OPEN_SHOWN_MAX = 3
_MEMBERS_SHOWN_MAX = 100
_LISTED_MAX = 1000
_SUMMARIES_MAX = 100_000
_SNAPSHOTS_SHOWN_MAX = 100
_SHARED_SECONDS = 1.0
_BETWEEN_MAX = 12
_PICTURES_MAX = 32
_PICTURE_CHARACTERS_MAX = 2**20
Query = Mapping[str, str]
FindSnapshot = Callable[[int], Awaitable[pb.GetSnapshotResponse | None]]
"""Finds a whole snapshot by its number, in the store or in the archive."""
NO_QUERY: Query = MappingProxyType({})
_ICONS = {Level.TROUBLE: "%23b00020", Level.DOUBT: "%23c98a00", Level.FINE: "%231b6e3c"}
_NO_ICON = "%2359636e"
_UNDECLARED = "undeclared"
_CLOCK = re.compile(r"(?<=as of )((?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d)\b")
_WAITED = re.compile(r"(\S+ has waited )((?:\d+(?:\.\d+)? (?:ms|s|min|h|d) ?)+?)( for .*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentWaits:
    """The waits of an incident; ``current``: as of the newest snapshot, not as they were first seen.

    ``at``: when that snapshot ended."""

    waits: tuple[str, ...]
    victims: tuple[PartyName, ...] = ()
    places: tuple[Evidence, ...] = ()
    assumptions: tuple[str, ...] = ()
    current: bool = False
    at: float | None = None


class Pages:
    """Makes the pages; on the event loop, but for what takes long."""

    def __init__(
        self, *, driver: Driver, snapshot_store: SnapshotStore, find: FindSnapshot, base_path: str = "", trace_url: str = ""
    ) -> None:
        """The sources of what is shown; ``base_path``: what every link begins with; ``trace_url``: with ``{trace}`` in it."""
        self._driver = driver
        self._snapshot_store = snapshot_store
        self._find = find
        self._version_of, self._version_made = "", float("-inf")
        self._live = LiveVersions(self._version)
        self._pictures: OrderedDict[tuple[int, int, Format, str], str] = OrderedDict()
        self._made: dict[tuple[str, bool, str], tuple[float, Answer | None]] = {}
        self._templates = Environment(
            loader=PackageLoader("detector.service.web"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            auto_reload=False,
            finalize=_shown,
        )
        self._templates.globals.update(
            base=base_path,
            static=lambda name: f"{base_path}/static/{name}?v={digest(name)}",
            style=Markup(static_file("style.css").decode()),
            trace_url=trace_url,
            moment=_moment,
            duration=duration,
            counting=_counting,
            timed=_timed,
            age=lambda seconds: age(seconds, time.time()),
            level_of=_level,
            labels=_labels,
            blind=Member.blind_spots,
            unexplained=lambda member: "-" if member.unexplained is None else member.unexplained,
            lost_of=driver.lost_of,
            state_of=lambda member: driver.state_of(member).value,
        )

    async def page(self, path: str, query: Query = NO_QUERY, *, operator: bool = False) -> Answer | None:
        """The page at ``path``; None when there is none. ``operator``: the reader may end incidents."""
        match path.strip("/").split("/"):
            case [""]:
                return await self._overview()
            case ["incidents"]:
                return self.html("incidents", "Incidents", live=True, incidents=await self._incidents(_LISTED_MAX))
            case ["members"]:
                return self._member_page(query)
            case ["snapshots"]:
                return await self._snapshot_list(query)
            case [kind, name]:
                return await self._one(kind, name, query, operator=operator)
            case _:
                return None

    async def shared_page(self, path: str, query: Query = NO_QUERY, *, operator: bool = False) -> Answer | None:
        """As :meth:`page`, made once for all watchers that ask for it when something has changed."""
        key, now = (f"{path}?{sorted(query.items())}", operator, self._version()), time.monotonic()
        made_at, answer = self._made.get(key, (float("-inf"), None))
        if now - made_at > _SHARED_SECONDS:
            answer = await self.page(path, query, operator=operator)
            self._made = {each: made for each, made in self._made.items() if now - made[0] <= _SHARED_SECONDS}
            self._made[key] = now, answer
        return answer

    async def _one(self, kind: str, name: str, query: Query, *, operator: bool) -> Answer | None:
        match kind:
            case "incidents":
                return await self._incident(name, curable=operator)
            case "snapshots":
                return await self._snapshot(name, query)
            case "static":
                return static_answer(name, query.get("v", ""))
            case _:
                return None

    def missing(self) -> Answer:
        """What a browser gets instead of a page that does not exist, or exists no more."""
        return replace(self.html("missing", "No such page - Stilltrue"), status=HTTPStatus.NOT_FOUND)

    def login(self, *, refused: bool) -> Answer:
        """The form for a token; ``refused``: after one that is not a reader's."""
        answer = self.html("login", "Log in - Stilltrue", refused=refused)
        return replace(answer, status=HTTPStatus.UNAUTHORIZED) if refused else answer

    def live(self, seen: str) -> Answer:
        """Server-sent events: each version of the pages that there is from now on; ``seen``: the one that the client has."""
        unbuffered = {"X-Accel-Buffering": "no"}  # as nginx and its Ingress read it
        return Answer(body="", content_type="text/event-stream", headers=unbuffered, stream=self._live.events(seen))

    def _version(self) -> str:
        """Changes with whatever changes an answer, an incident or a member; made at most once in a step, for all who ask."""
        now = time.monotonic()
        if now - self._version_made >= STEP_SECONDS:
            answers = tuple((each.predicate, each.snapshot.scope, each.holds, each.core) for each in self._driver.current.all())
            incidents = tuple((each.id, each.core) for each in self._driver.incidents.open_ones())
            members = tuple((member.name, self._driver.state_of(member)) for member in self._driver.roster.all())
            self._version_of = f"{hash((answers, incidents, members, self._driver.incidents.notes)) & 0xFFFFFFFFFFFF:x}"
            self._version_made = now
        return self._version_of

    async def _overview(self) -> Answer:
        verdicts, members, open_ones = self._driver.current.all(), self._members(), self._driver.incidents.open_ones()
        head = headline(verdicts, open_ones, len(members), lambda name: self._driver.service_of(name) or name)
        undeclared = [verdict for verdict in verdicts if verdict.witness.kind == _UNDECLARED]
        return self.html(
            "overview",
            f"{head.text}{': ' if head.extent else ''}{head.extent} - Stilltrue",
            live=True,
            icon=_ICONS[head.level],
            head=head,
            open_incidents=[{"incident": each, "evidence": self._found(each)} for each in open_ones[:_OPEN_SHOWN_MAX]],
            more_open=max(0, len(open_ones) - _OPEN_SHOWN_MAX),
            verdicts=[verdict for verdict in verdicts if verdict.witness.kind != _UNDECLARED],
            undeclared=undeclared,
            incidents=await self._incidents(_SHOWN_MAX),
            members=members[:_MEMBERS_SHOWN_MAX],
            member_count=len(members),
            summaries=await self._snapshot_store.summaries(_SHOWN_MAX),
        )

    async def _snapshot_list(self, query: Query) -> Answer:
        """The newest ones, or those before the number ``before``; of one outcome or all."""
        outcome, before = query.get("outcome", ""), query.get("before", "")
        end = int(before) if before.isascii() and before.isdigit() and len(before) < 17 else None
        known = await self._snapshot_store.summaries(_SUMMARIES_MAX)
        found = [one for one in known if outcome in ("", one.outcome) and (end is None or one.ref.id < end)]
        shown = found[:_SNAPSHOTS_SHOWN_MAX]
        return self.html(
            "snapshots",
            "Snapshots",
            live=end is None,
            summaries=shown,
            outcome=outcome,
            outcomes=[each.value for each in Outcome],
            older=shown[-1].ref.id if len(found) > len(shown) else 0,
        )

    def _member_page(self, query: Query) -> Answer:
        members = self._members()
        counts = Counter(self._driver.state_of(member).value for member in members)
        told = ", ".join(f"{counts[state.value]} {state.value}" for state in MemberState)
        shown = member_list(members, self._driver.state_of, query)
        return self.html("members", "Members", live=True, member_count=len(members), counts=told, **shown)

    def _members(self) -> list[Member]:
        """Lost members first, then missing ones."""
        order = [MemberState.LOST, MemberState.MISSING, MemberState.LIVE]
        return sorted(self._driver.roster.all(), key=lambda member: (order.index(self._driver.state_of(member)), member.name))

    def _found(self, incident: Incident) -> IncidentWaits:
        """The waits of an incident: an open one's by the newest verdict, whose ages go on; else as they were first seen."""
        verdict = newest_of(incident, self._driver.current.all())
        if verdict is None:
            return IncidentWaits(waits=incident.waits)
        stuck = {*incident.core, *incident.behind}
        return IncidentWaits(
            waits=now_waiting(incident, (verdict,)) or incident.waits,
            victims=_victims(verdict, stuck),
            places=tuple(each for each in verdict.evidence if each.party in stuck and (each.stack or each.trace)),
            assumptions=verdict.assumptions,
            current=True,
            at=verdict.snapshot.ended,
        )

    async def _incidents(self, limit: int) -> list[Incident]:
        return await self._snapshot_store.incidents(limit, self._driver.incidents.open_ones(), open_only=False)

    async def _incident(self, name: str, *, curable: bool) -> Answer | None:
        known = await self._incidents(100_000)
        incident = next((each for each in known if each.id == name), None)
        if incident is None:
            return None
        before = seen_before(incident, known)
        answer = await self._find(incident.first_snapshot)
        picture = await self._picture(answer, Format.SVG, incident.predicate) if answer else ""
        between = await self._kept_of(incident)
        return self.html(
            "incident",
            f"{incident.predicate} {name}, {'open' if incident.open else 'ended'} - Stilltrue",
            live=incident.open,
            icon=_ICONS[Level.TROUBLE if incident.open else Level.FINE],
            incident=incident,
            found=self._found(incident),
            before=before,
            recurrence=recurrence(before),
            picture=picture,
            pictured=incident.first_snapshot,
            predicate=incident.predicate,
            incident_id=incident.id,
            curable=curable and incident.open,
            between=between,
            between_max=_BETWEEN_MAX,
        )

    async def _picture(self, answer: pb.GetSnapshotResponse, form: Format, predicate: str = "") -> str:
        """A drawing of a stored snapshot; it is drawn once for all who look at it."""
        key = (answer.summary.ref.id, len(answer.verdicts), form, predicate)
        if key in self._pictures:
            self._pictures.move_to_end(key)
            return self._pictures[key]
        drawn = await asyncio.to_thread(picture_of, answer, form, predicate)
        if len(drawn) <= _PICTURE_CHARACTERS_MAX:
            self._pictures[key] = drawn
            while len(self._pictures) > _PICTURES_MAX:
                self._pictures.popitem(last=False)
        return drawn

    async def _kept_of(self, incident: Incident) -> list[int]:
        """The snapshots between its first and its last that are kept whole, oldest first."""
        summaries = await self._snapshot_store.summaries(_LISTED_MAX)
        first, last = incident.first_snapshot, incident.last_snapshot
        return sorted(one.ref.id for one in summaries if one.kept and first < one.ref.id < last)

    async def _snapshot(self, name: str, query: Query) -> Answer | None:
        number, _, kind = name.partition(".")
        if not (number.isascii() and number.isdigit() and len(number) < 19) or kind not in {"", "json", "svg", "space-time"}:
            return None
        answer = await self._find(int(number))
        if answer is None:
            return None
        if kind == "json":
            return Answer(body=answer.document_json + "\n", content_type="application/json")
        verdicts = [verdict_from_wire(verdict) for verdict in answer.verdicts]
        diagram = await self._picture(answer, Format.SPACE_TIME) if kind != "svg" else ""
        if kind == "space-time":
            return Answer(body=diagram, content_type="image/svg+xml")
        picture = await self._picture(answer, Format.SVG)
        if kind == "svg":
            return Answer(body=picture, content_type="image/svg+xml")
        return self.html(
            "snapshot",
            f"Snapshot {number}",
            summary=answer.summary,
            verdicts=[verdict for verdict in verdicts if verdict.witness.kind != _UNDECLARED],
            undeclared=[verdict for verdict in verdicts if verdict.witness.kind == _UNDECLARED],
            picture=picture,
            diagram=diagram,
            changes=await self._changes(answer, query.get("since", "")),
            pictured=answer.summary.ref.id,
            predicate="",
            incident_id="",
        )

    async def _changes(self, answer: pb.GetSnapshotResponse, since: str) -> Changes | None:
        """Since the snapshot ``since``, or the newest that is kept before it; None where there is none."""
        if since.isascii() and since.isdigit() and len(since) < 17:
            before = await self._find(int(since))
        else:
            number = answer.summary.ref.id
            earlier = [
                one.ref.id for one in await self._snapshot_store.summaries(_LISTED_MAX) if one.kept and one.ref.id < number
            ]
            before = await self._find(max(earlier)) if earlier else None
        return None if before is None else await asyncio.to_thread(changes_between, before, answer)

    def html(self, template: str, title: str, *, live: bool = False, icon: str = _NO_ICON, **values: Any) -> Answer:
        """A page made from a template."""
        page = self._templates.get_template(f"{template}.html.jinja")
        body = page.render(title=title, live=live, icon=icon, now=time.time(), version=self._version(), **values)
        return Answer(body=body + "\n", content_type=_HTML, headers={"Content-Security-Policy": policy(style_policy())})


def _level(verdict: Verdict) -> str:
    """The name of a verdict's colour; none for one that is neither good nor bad."""
    level = level_of(verdict)
    return "" if level is None else level.value


def _victims(verdict: Verdict, stuck: set[PartyName]) -> tuple[PartyName, ...]:
    return tuple(victim for victim in verdict.victims if victim in stuck)


def _moment(seconds: float | None) -> Markup | str:
    """A time in UTC, to the second."""
    if seconds is None:
        return "-"
    text = write_time(float(int(seconds)))
    shown = text[11:19] if time.time() - seconds < 43200 else text
    return Markup("<time datetime={}>{}</time>").format(text, shown)


def _counting(sentence: str, at: float | None) -> Markup | str:
    """A sentence about a wait as of ``at``, whose age goes on counting in the browser."""
    told = _WAITED.fullmatch(sentence) if at is not None else None
    if told is None or at is None:
        return sentence
    return Markup('{}<span data-since="{}">{}</span>{}').format(told[1], at - seconds_of(told[2]), told[2], told[3])


def _timed(sentence: str, about: float | None) -> Markup | str:
    """A sentence whose times of day are the browser's; ``about``: a moment within half a day of them."""
    parts = _CLOCK.split(sentence)
    if about is None or len(parts) == 1:
        return sentence
    text = Markup()
    for at, part in enumerate(parts):
        text += _moment(_nearest(part, about)) if at % 2 else part
    return text


def _nearest(clock: str, about: float) -> float:
    """The moment nearest to ``about`` at which it was ``clock`` in UTC."""
    hours, minutes, seconds = map(int, clock.split(":"))
    same_day = about - about % 86400 + 3600 * hours + 60 * minutes + seconds
    return min((same_day - 86400, same_day, same_day + 86400), key=lambda moment: abs(moment - about))


def _labels(member: Member) -> list[str]:
    return [f"{name}={value}" for name, value in sorted(member.labels.items())]


def _shown(value: object) -> object:
    """What a page shows of a value: text from outside neither steers a terminal nor turns the direction of a line."""
    if isinstance(value, Markup):
        return Markup(printable(str(value)))
    return printable(value) if isinstance(value, str) else value
