"""``/api/v1``: the command's documents, lists in pages, errors as JSON, and a description that matches."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from detector.service.detection.incident.incidents import Incident
from detector.service.settings import SettingError, Settings
from detector.service.web.api.api import Api
from detector.service.web.api.history import kind_of, recurrence, seen_before
from stilltrue.model import PartyName, SnapshotId

DAY = 86400.0
ROOM = Path(__file__).parents[2] / "detector" / "service" / "web"


async def get(detector: Any, path: str, status: int = 200) -> Any:
    got, content, body = await detector.fetch(f"/api/v1/{path}")
    assert (got, content) == (status, "application/json"), body
    return json.loads(body)


def fits(value: Any, schema: Mapping[str, Any], schemas: Mapping[str, Any], at: str) -> None:
    """What is described is there, under its name and of its kind."""
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    for part in schema.get("allOf", ()):
        fits(value, part, schemas, at)
    kinds = schema.get("type", [])
    known: dict[str, Any] = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "null": type(None),
    }
    if kinds:
        assert any(isinstance(value, known[kind]) for kind in ([kinds] if isinstance(kinds, str) else kinds)), (at, value)
    if "enum" in schema:
        assert value in schema["enum"], at
    for name, inner in schema.get("properties", {}).items():
        assert name in value, f"{at}.{name}"
        fits(value[name], inner, schemas, f"{at}.{name}")
    for place, item in enumerate(value if "items" in schema else ()):
        fits(item, schema["items"], schemas, f"{at}[{place}]")


async def test_every_path_answers_as_described(start_detector: Any, process: Any, deadlock: Any, tmp_path: Path) -> None:
    a, b = process("a", service="orders", labels={"zone": "x"}), process("b", service="stock")
    stuck = deadlock(a, b)
    async with start_detector(tmp_path, allow_cure=True) as detector:
        await detector.join(a, b)
        await detector.ask()
        description = await get(detector, "openapi.json")
        (incident,) = await detector.incidents()
        ids = {"incidents": incident.id, "snapshots": "latest"}
        for path, methods in description["paths"].items():
            below = path.removeprefix("/api/v1/")
            if "text/event-stream" in methods["get"]["responses"]["200"]["content"]:
                continue
            if "image/svg+xml" in methods["get"]["responses"]["200"]["content"]:
                status, kind, body = await detector.fetch(path.replace("{id}", "latest"))
                assert (status, kind, body[:4]) == (200, "image/svg+xml", "<svg"), path
                continue
            below += "?since=latest" if below.endswith("/changes") else ""
            answer = await get(detector, below.replace("{id}", ids.get(below.split("/")[0], "")))
            schema = methods["get"]["responses"]["200"]["content"]["application/json"]["schema"]
            fits(answer, schema, description["components"]["schemas"], path)
        overview = await get(detector, "overview")
        assert overview["headline"]["text"] == "Deadlocked"
        assert overview["members"] == {"live": 2, "missing": 0, "lost": 0}
        graph = await get(detector, "snapshots/latest/graph?predicate=deadlock")
        core = {node["id"]: node["service"] for node in graph["nodes"] if node["role"] == "core"}
        assert core == {stuck.core[0]: "orders", stuck.core[1]: "stock"}
        assert {(edge["source"], edge["target"]) for edge in graph["edges"] if edge["core"]} == {
            (stuck.core[0], stuck.core[1]), (stuck.core[1], stuck.core[0]),
        }  # fmt: skip


async def test_the_graph_of_an_incident_shows_no_other(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b, c, d = (process(name) for name in "abcd")
    deadlock(a, b)
    deadlock(c, d)
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b, c, d)
        await detector.ask()
        assert len((await get(detector, "snapshots/latest/graph"))["nodes"]) == 8
        found = (await get(detector, "incidents"))["incidents"]
        assert len(found) == 2
        for one in found:
            graph = await get(detector, f"snapshots/latest/graph?incident={one['id']}")
            assert sorted(party for node in graph["nodes"] for party in node["parties"]) == sorted(
                [*one["core"], *one["behind"]]
            )
            picture = (await detector.fetch(f"/api/v1/snapshots/latest/picture?incident={one['id']}"))[2]
            assert all((f"{party}<" in picture) == (party in one["core"]) for each in found for party in each["core"])
        refused = await get(detector, "snapshots/latest/graph?incident=i-none", 400)
        assert refused == {"error": "there is no incident 'i-none'"}


def test_every_endpoint_and_parameter_is_described() -> None:
    api = Api(driver=cast("Any", None), snapshot_store=cast("Any", None), find=cast("Any", None))
    answered = {f"/api/v1/{name}" for name in api._lists}
    answered |= {"/".join(("/api/v1", kind, "{id}", *rest)) for kind, *rest in api._ones}
    answered |= {"/api/v1/events", "/api/v1/incidents/{id}/cure"}  # of the server itself
    described = json.loads((ROOM / "static" / "openapi.json").read_text())["paths"]
    assert set(described) == answered
    assert set(described["/api/v1/incidents/{id}/cure"]) == {"get", "post"}
    read = set(
        re.findall(r"""(?:query\.get\(|query\[|(?:_number|_one_of)\(query, )"([a-z]+)""", (ROOM / "api" / "api.py").read_text())
    )
    assert {"predicate", "since", "form", "shape", "sort", "outcome"} <= read, "the pattern finds them"
    told = {one["name"] for methods in described.values() for method in methods.values() for one in method["parameters"]}
    assert told - {"id", "seen"} == read


def test_the_pages_scripts_query_only_the_api_and_their_own_page() -> None:
    asked = [
        (script.name, what)
        for script in (ROOM / "static" / "live.js", ROOM / "static" / "graph.js")
        for what in re.findall(r"(?:fetch|EventSource)\(([^,)]*)", script.read_text())
    ]
    assert sorted(asked) == [
        ("graph.js", "`${base}/api/v1/${path}`"),
        ("live.js", "`${document.body.dataset.base}/api/v1/events?seen=${encodeURIComponent(version"),
        ("live.js", "location.href"),
        ("live.js", "place.dataset.picture"),
    ]
    drawn = re.findall(r"set source = base ~ \"(/[^\"]*)", (ROOM / "templates" / "parts.html.jinja").read_text())
    assert drawn == ["/api/v1/snapshots/"], "where a picture comes from"


async def test_the_documented_examples_work(start_detector: Any, process: Any, deadlock: Any, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "detector.md").read_text()
    examples = re.findall(r"curl -s '?localhost:7601(/api/v1/[^\s']+)", page)
    assert len(examples) >= 6
    a, b = process("a"), process("b")
    deadlock(a, b)
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b)
        first = (await detector.ask()).snapshot.id
        await detector.ask()
        for path in examples:
            status, _, body = await detector.fetch(path.replace("since=17", f"since={first}"))
            assert status == 200, (path, body)


async def test_lists_are_filtered_and_cut(start_detector: Any, process: Any, tmp_path: Path) -> None:
    async with start_detector(tmp_path) as detector:
        for one in (process("a", labels={"zone": "x"}), process("b"), process("c", service="shop")):
            await detector.join(one)
        for query, names in {
            "": ["a", "b", "c"], "limit=2": ["a", "b"], "limit=2&offset=2": ["c"], "search=ZONE%3Dx": ["a"],
            "search=sho": ["c"], "state=lost": [], "sort=newest+first": ["c", "b", "a"],
        }.items():  # fmt: skip
            found = await get(detector, f"members?{query}")
            assert [member["process"] for member in found["members"]] == names, query
        assert (await get(detector, "members?limit=1"))["total"] == 3


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("nothing", 404, "openapi.json"),
        ("incidents/i-none", 404, "no incident i-none: "),
        ("snapshots/99999", 404, "no snapshot 99999: "),
        ("snapshots/0/graph", 404, "no snapshot 0: "),
        ("snapshots/latest/changes?since=17", 404, "no snapshot latest or 17: "),
        ("snapshots/x", 400, "a number or 'latest'"),
        ("snapshots/" + "9" * 400, 400, "a number or 'latest'"),
        ("members?limit=-1", 400, "limit must be a whole number"),
        ("members?offset=%F0%9D%9F%8F", 400, "offset must be a whole number"),
        ("incidents?state=shut", 400, "state must be open or ended"),
    ],
)
async def test_an_error_states_its_reason(start_detector: Any, tmp_path: Path, path: str, status: int, says: str) -> None:
    async with start_detector(tmp_path) as detector:
        assert says in (await get(detector, path, status))["error"]


async def test_behind_a_proxys_path_every_link_begins_with_it(start_detector: Any, tmp_path: Path) -> None:
    async with start_detector(tmp_path, base_path="/ops/stilltrue") as detector:
        for path in ("/ops/stilltrue", "/ops/stilltrue/", "/"):
            status, _, body = await detector.fetch(path)
            assert (status, body.count('href="/ops/stilltrue/')) == (200, body.count('href="/'))
        assert (await detector.fetch("/ops/stilltrue/api/v1/overview"))[0] == 200
        assert (await detector.fetch("/ops/stilltrueish"))[0] == 404


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"base_path": "ops"}, "--base-path: must look like /stilltrue"),
        ({"base_path": "/ops/"}, "--base-path: must look like /stilltrue"),
        ({"external_url": "example.com"}, "--external-url: must begin with http"),
        ({"trace_url": "https://traces/"}, "--trace-url: must contain {trace}"),
    ],
)
def test_addresses_are_checked(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        Settings(**settings)


def incident(id: str, *core: str, opened: float, predicate: str = "deadlock") -> Incident:
    return Incident(
        id=id, predicate=predicate, scope="all", core=tuple(map(PartyName, core)), behind=(), opened=opened, seen=opened,
        first_snapshot=SnapshotId(1), last_snapshot=SnapshotId(1),
    )  # fmt: skip


def test_equal_names_of_methods_of_other_services_are_another_kind_of_incident() -> None:
    def of(id: str, service: str, opened: float) -> Any:
        waits = (
            f"{service}-1/A#1 has waited 2 s for the reply of {service}-2 to /bank.{service.title()}/Credit: {service}-2/A#2",
        )
        return replace(incident(id, f"{service}-1/A#1", f"{service}-2/A#2", opened=opened), waits=waits)

    known = [of("a", "east", DAY), of("b", "west", 2 * DAY), incident("old", "x-1/A#1", "x-2/A#2", opened=1.5 * DAY)]
    assert [each.id for each in seen_before(of("now", "east", 3 * DAY), known)] == ["old", "a"]


def test_the_same_methods_of_other_pods_are_the_same_kind_of_incident() -> None:
    now = incident("d", "orders-x/Place#9", "stock-y/Reserve#3", "stock-y/Reserve#4", opened=8 * DAY)
    known = [
        incident("a", "orders-1/Place#1", "stock-1/Reserve#2", opened=0.5 * DAY),
        incident("b", "orders-1/Place#1", "stock-1/Reserve#2", opened=2 * DAY),
        incident("c", "orders-2/Place#7", "stock-3/Reserve#8", opened=3 * DAY),
        incident("other", "orders-2/Place#7", "stock-3/Release#8", opened=3 * DAY),
        incident("grid", "orders-2/Place#7", "stock-3/Reserve#8", opened=3 * DAY, predicate="gridlock"),
        incident("later", "orders-2/Place#7", "stock-3/Reserve#8", opened=9 * DAY),
        now,
    ]
    assert kind_of(now) == ("Place", "Reserve")
    found = seen_before(now, known)
    assert [each.id for each in found] == ["c", "b"]
    assert recurrence(found) == "third time within a week"
    assert recurrence(found * 5) == "11 times within a week"
    assert recurrence([]) == ""
