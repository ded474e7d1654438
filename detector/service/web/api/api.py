"""``/api/v1``: the detector's state as JSON; described by ``/api/v1/openapi.json``.

The documents are those of the command's ``--json``. Lists are paged by ``limit`` and ``offset``; ``total`` is their length.
The web UI has no other source than these documents, so programs can read everything that it shows.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from detector.core.protocol.assembler import Outcome
from detector.core.times import write_time
from detector.core.verdict import write_verdict
from detector.ops.http import Answer
from detector.ops.printable_text import printable_json
from detector.service.detection.driver import Driver
from detector.service.detection.incident.incidents import Incident
from detector.service.detection.membership.members import MemberState
from detector.service.documents import written_agent, written_incident, written_summary
from detector.service.protobuf_messages import agent_to_wire, incident_to_wire
from detector.service.storage.snapshot_store import SnapshotStore
from detector.service.web.api.changes import changes_between
from detector.service.web.api.evidence import evidence_of
from detector.service.web.api.headline import headline, level_of
from detector.service.web.api.history import kind_of, recurrence, seen_before, week_before
from detector.service.web.api.member_order import ORDERS, searched
from detector.service.web.api.picture_cache import FORMS, Pictures
from stilltrue.model import PartyName, Verdict, process_of
from stilltrue.protocol.wire.verdict import verdict_from_wire
from stilltrue.v1 import detector_pb2 as pb

LIMIT_DEFAULT = 100
LIMIT_MAX = 10_000
_BEFORE_MAX = 10**16 - 1
EARLIER_MAX = 5
"""Maximum number of earlier incidents listed with an incident."""
PROCESSES_MAX = 50
"""Maximum number of processes described with an incident."""
VERDICT_POLLS_MAX = 60
VERDICT_POLL_SECONDS = 0.05
"""How often, and at what interval, to check for the newest snapshot's verdicts."""
_KNOWN_MAX = 100_000
_JSON = "application/json"
Query = Mapping[str, str]
NO_QUERY: Query = MappingProxyType({})
FindSnapshot = Callable[[int], Awaitable[pb.GetSnapshotResponse | None]]
"""Finds a full snapshot by number, in the store or the archive."""


class BadRequestError(ValueError):
    """A parameter is invalid; the message is one line."""


class Api:
    """Answers requests below ``/api/v1``."""

    def __init__(self, *, driver: Driver, snapshot_store: SnapshotStore, find: FindSnapshot) -> None:
        """``find``: finds a full snapshot."""
        self._driver = driver
        self._find = find
        self._snapshot_store = snapshot_store
        self._pictures = Pictures()
        self._lists: dict[str, Callable[[Query], Awaitable[Any]]] = {
            "overview": self._overview,
            "verdicts": self._verdicts,
            "incidents": self._incidents,
            "members": self._members,
            "snapshots": self._snapshots,
        }
        self._ones: dict[tuple[str, ...], Callable[[str, Query], Awaitable[Any]]] = {
            ("incidents",): self._incident,
            ("incidents", "snapshots"): self._incident_snapshots,
            ("snapshots",): self._snapshot,
            ("snapshots", "graph"): self._graph,
            ("snapshots", "changes"): self._changes,
            ("snapshots", "document"): self._document,
            ("snapshots", "picture"): self._picture,
        }

    async def answer(self, path: str, query: Query) -> Answer:
        """Answer a request for ``path`` below ``/api/v1``."""
        try:
            found = await self.document(path, query)
        except BadRequestError as error:
            return _json({"error": str(error)}, HTTPStatus.BAD_REQUEST)
        if found is None:
            return _json({"error": self._absence(path, query)}, HTTPStatus.NOT_FOUND)
        return found if isinstance(found, Answer) else _json(found)

    async def document(self, path: str, query: Query = NO_QUERY) -> Any:
        """The document at ``path``, before it is serialized; None if there is none. Raises :class:`BadRequestError`."""
        match path.strip("/").split("/"):
            case ["openapi.json"]:
                return Answer(body=_openapi(), content_type=_JSON)
            case [name] if name in self._lists:
                return await self._lists[name](query)
            case [kind, id, *rest] if (kind, *rest) in self._ones:
                return await self._ones[(kind, *rest)](id, query)
            case _:
                return None

    def _absence(self, path: str, query: Query) -> str:
        """Why there is no document at ``path``, as text."""
        match path.strip("/").split("/"):
            case ["snapshots", id, *rest] if ("snapshots", *rest) in self._ones:
                numbers = f"{id[:40]} or {query['since'][:40]}" if rest == ["changes"] and "since" in query else id[:40]
                return f"no snapshot {numbers}: it was never taken, or newer ones have displaced it"
            case ["incidents", id, *rest] if ("incidents", *rest) in self._ones:
                return f"no incident {id[:40]}: there never was one, or it was deleted"
            case _:
                return "no such resource; see openapi.json"

    async def _overview(self, _query: Query) -> Any:
        verdicts, members = self._driver.current.all(), self._driver.roster.all()
        open_ones = self._driver.incidents.open_ones()
        head = headline(verdicts, open_ones, len(members), lambda name: self._driver.service_of(name) or name)
        states = Counter(self._driver.state_of(member).value for member in members)
        return {
            "headline": {
                **asdict(head),
                "level": head.level.value,
                "since": None if head.since is None else write_time(head.since),
                "at": None if head.at is None else write_time(head.at),
            },
            "open_incidents": [each.id for each in open_ones],
            "members": {state.value: states[state.value] for state in MemberState},
            "verdicts": [_verdict(verdict) for verdict in verdicts],
        }

    async def _verdicts(self, query: Query) -> Any:
        return [
            _verdict(verdict)
            for verdict in self._driver.current.all()
            if query.get("predicate", verdict.predicate) == verdict.predicate
            and query.get("scope", verdict.snapshot.scope) == verdict.snapshot.scope
        ]

    async def _incidents(self, query: Query) -> Any:
        state = _one_of(query, "state", ("", "open", "ended"))
        found = await self._all_incidents(open_only=state == "open")
        if state == "ended":
            found = [each for each in found if not each.open]
        return _page(found, query, "incidents", self._written)

    async def _incident(self, id: str, _query: Query) -> Any:
        incident = await self._known_incident(id)
        if incident is None:
            return None
        before = seen_before(incident, await self._all_incidents(_KNOWN_MAX, opened_min=week_before(incident)))
        return {
            **self._written(incident),
            "kind": list(kind_of(incident)),
            "recurrence": recurrence(before),
            "seen_before": [one.id for one in before],
            "earlier": [{"id": one.id, "opened": write_time(one.opened)} for one in before[:EARLIER_MAX]],
            "evidence": evidence_of(incident, self._driver.current.all()),
            "processes": self._processes_of(incident),
        }

    def _processes_of(self, incident: Incident) -> list[dict[str, Any]]:
        """The members with parties in the core, youngest first, with their labels and start times."""
        core = {process_of(party) for party in incident.core}
        known = [(each, self._driver.state_of(each)) for each in self._driver.roster.all() if each.name in core]
        known.sort(key=lambda one: ORDERS["newest first"](*one))
        return [written_agent(agent_to_wire(*one)) for one in known[:PROCESSES_MAX]]

    async def _incident_snapshots(self, id: str, _query: Query) -> Any:
        """The ids of its snapshots that are kept in full, oldest first."""
        incident = await self._known_incident(id)
        if incident is None:
            return None
        return {"snapshots": await self._snapshot_store.kept_between(incident.first_snapshot, incident.last_snapshot)}

    async def _members(self, query: Query) -> Any:
        state = _one_of(query, "state", ("", *(each.value for each in MemberState)))
        order = ORDERS[_one_of(query, "sort", ("", *ORDERS)) or "name"]
        text = query.get("search", "").lower()
        known = [(each, self._driver.state_of(each)) for each in self._driver.roster.all()]
        found = [one for one in known if (not state or one[1].value == state) and text in searched(one[0])]
        found.sort(key=lambda one: order(*one))
        counts = Counter(now.value for _, now in known)
        page = _page(found, query, "members", lambda one: written_agent(agent_to_wire(*one)))
        return {**page, "states": {each.value: counts[each.value] for each in MemberState}}

    async def _snapshots(self, query: Query) -> Any:
        limit = _number(query, "limit", LIMIT_DEFAULT, LIMIT_MAX)
        before = _number(query, "before", _BEFORE_MAX, _BEFORE_MAX)
        outcome = _one_of(query, "outcome", ("", *(each.value for each in Outcome)))
        known = await self._snapshot_store.summaries(limit + 1 if before == _BEFORE_MAX and not outcome else _KNOWN_MAX)
        found = [one for one in known if outcome in ("", one.outcome) and one.ref.id < before]
        return {"snapshots": [written_summary(one) for one in found[:limit]], "more": len(found) > limit}

    async def _snapshot(self, id: str, _query: Query) -> Any:
        answer = await self._kept(id)
        if answer is None:
            return None
        verdicts = [_verdict(verdict_from_wire(each)) for each in answer.verdicts]
        return {**written_summary(answer.summary), "verdicts": verdicts, "document": f"/snapshots/{answer.summary.ref.id}.json"}

    async def _document(self, id: str, _query: Query) -> Answer | None:
        """The snapshot document (:mod:`detector.core.document`)."""
        answer = await self._kept(id)
        return None if answer is None else Answer(body=answer.document_json + "\n", content_type=_JSON)

    async def _picture(self, id: str, query: Query) -> Answer | None:
        form = _one_of(query, "form", ("", *FORMS)) or "svg"
        answer = await self._kept(id)
        core = await self._core_of(query)
        return None if answer is None else await self._pictures.picture(answer, form, _predicate(query), core)

    async def _graph(self, id: str, query: Query) -> Answer | None:
        answer = await self._kept(id)
        core = await self._core_of(query)
        shape = query.get("shape", "")
        return None if answer is None else await self._pictures.graph(answer, _predicate(query), shape, core)

    async def _core_of(self, query: Query) -> tuple[PartyName, ...]:
        """The core of the incident that a picture is limited to; empty if none is named. Raises :class:`BadRequestError`."""
        if "incident" not in query:
            return ()
        incident = await self._known_incident(query["incident"])
        if incident is None:
            raise BadRequestError(f"there is no incident {query['incident'][:40]!r}")
        return incident.core

    async def _changes(self, id: str, query: Query) -> Any:
        """The changes since the snapshot ``since``, or since the newest one kept before it."""
        answer = await self._kept(id)
        if answer is None:
            return None
        before = await self._kept(query["since"] if "since" in query else str(await self._kept_before(answer.summary.ref.id)))
        return None if before is None else (await asyncio.to_thread(changes_between, before, answer)).written()

    async def _kept_before(self, number: int) -> int:
        """The newest snapshot kept before ``number``; 0 if there is none."""
        summaries = await self._snapshot_store.summaries(LIMIT_MAX)
        return max((one.ref.id for one in summaries if one.kept and one.ref.id < number), default=0)

    async def _kept(self, id: str) -> pb.GetSnapshotResponse | None:
        if id == "latest":
            return await self._latest()
        if not (id.isascii() and id.isdigit() and len(id) < 17):
            raise BadRequestError(f"a snapshot is a number or 'latest', not {id[:40]!r}")
        return await self._find(int(id)) if int(id) else None

    async def _latest(self) -> pb.GetSnapshotResponse | None:
        """The newest snapshot; waits for its verdicts, without which it shows no deadlock."""
        for _ in range(VERDICT_POLLS_MAX):
            answer = await self._snapshot_store.snapshot(0)
            if answer is None or answer.verdicts or answer.summary.outcome == Outcome.REJECTED.value:
                break
            await asyncio.sleep(VERDICT_POLL_SECONDS)
        return answer

    async def _known_incident(self, id: str) -> Incident | None:
        return await self._snapshot_store.known_incident(id, self._driver.incidents.open_ones())

    async def _all_incidents(
        self, limit: int = LIMIT_MAX, *, open_only: bool = False, opened_min: float = 0.0
    ) -> list[Incident]:
        open_ones = self._driver.incidents.open_ones()
        return await self._snapshot_store.incidents(limit, open_ones, open_only=open_only, opened_min=opened_min)

    def _written(self, incident: Incident) -> dict[str, Any]:
        return written_incident(incident_to_wire(incident, self._driver.lost_of(incident)))


def _verdict(verdict: Verdict) -> dict[str, Any]:
    """A verdict as JSON with its severity: ``trouble``, ``doubt``, ``fine``, or null if neither good nor bad."""
    level = level_of(verdict)
    return {**write_verdict(verdict), "level": None if level is None else level.value}


def _page(found: Sequence[Any], query: Query, name: str, write: Callable[[Any], Any]) -> dict[str, Any]:
    limit, offset = _number(query, "limit", LIMIT_DEFAULT, LIMIT_MAX), _number(query, "offset", 0, 10**9)
    return {"total": len(found), name: [write(one) for one in found[offset : offset + limit]]}


def _number(query: Query, name: str, default: int, most: int) -> int:
    text = query.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 17 and int(text) <= most):
        raise BadRequestError(f"{name} must be a whole number from 0 to {most}, not {text[:40]!r}")
    return int(text)


def _predicate(query: Query) -> str:
    """The predicate that a picture highlights; names are cut to a sane length."""
    return query.get("predicate", "")[:200]


def _one_of(query: Query, name: str, allowed: Sequence[str]) -> str:
    text = query.get(name, "")
    if text not in allowed:
        raise BadRequestError(f"{name} must be {' or '.join(filter(None, allowed))}, not {text[:40]!r}")
    return text


def _json(value: Any, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    return Answer(body=printable_json(json.dumps(value, ensure_ascii=False)) + "\n", content_type=_JSON, status=status)


@cache
def _openapi() -> bytes:
    return (files("detector.service.web") / "static" / "openapi.json").read_bytes()
