"""The alerts and dashboards: the rules fire and stay silent correctly, and use only metrics that exist."""

from __future__ import annotations

import copy
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from detector.service.metrics import Metrics

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "stilltrue"
RULES = CHART / "files" / "stilltrue.rules.yaml"
SCALE_OUT = CHART / "files" / "scale-out.rules.yaml"
UNIT_TESTS = Path(__file__).parent / "alerts.test.yaml"
SIDECAR = ("inbound_calls", "outbound_calls_total", "faults_total", "reports_dropped_total")
"""What `tests/sidecar/test_app.py` finds in a sidecar's metrics."""
DASHBOARDS = sorted((CHART / "files" / "dashboards").glob("*.json"))
RUNBOOKS = tuple((ROOT / "docs" / "runbooks").glob("Stilltrue*.md"))
PROOF = {"StilltrueDeadlock", "StilltrueOrphanedResource", "StilltrueTokenLost", "StilltrueTokenDuplicated"}
NAME = re.compile(r"\bstilltrue_[a-z_]+")

Documents = Callable[[str], list[Any]]
Rendered = Callable[..., list[dict[str, Any]]]


def ran(*command: str | Path, stdin: str | None = None) -> str:
    """The output of a command that must succeed."""
    done = subprocess.run(list(map(str, command)), input=stdin, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def groups(documents: Documents) -> list[dict[str, Any]]:
    (file,) = documents(RULES.read_text())
    return list(file["groups"])


@pytest.fixture(scope="module")
def alerts(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [rule for group in groups for rule in group["rules"]]


@pytest.fixture(scope="module")
def metric_names() -> set[str]:
    """Every series that the detector can expose, and those of a sidecar that stand in a dashboard."""
    names = {f"stilltrue_sidecar_{name}" for name in SIDECAR}
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", Metrics().text().decode(), re.MULTILINE):
        names |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"} if kind == "histogram" else {name}
    return names


def test_the_rules_are_well_formed(promtool: str) -> None:
    assert "SUCCESS" in ran(promtool, "check", "rules", RULES)


def test_every_alert_fires_and_is_silent_as_it_should(promtool: str) -> None:
    assert "SUCCESS" in ran(promtool, "test", "rules", UNIT_TESTS)


def test_the_streams_alerts_fire_and_are_silent_as_they_should(promtool: str) -> None:
    assert "SUCCESS" in ran(promtool, "check", "rules", ROOT / "docs" / "examples" / "stream.rules.yaml")
    assert "SUCCESS" in ran(promtool, "test", "rules", UNIT_TESTS.with_name("stream.test.yaml"))


def test_the_alerts_of_collectors_and_the_assembly_fire_and_are_silent_as_they_should(promtool: str) -> None:
    assert "SUCCESS" in ran(promtool, "check", "rules", SCALE_OUT)
    assert "SUCCESS" in ran(promtool, "test", "rules", UNIT_TESTS.with_name("scale-out.test.yaml"))


def test_the_alertmanager_example_names_the_core_and_links_to_the_pages(promtool: str, tmp_path: Path) -> None:
    amtool, folder = Path(promtool).with_name("amtool"), ROOT / "docs" / "examples" / "alertmanager"
    assert "SUCCESS" in ran(str(amtool), "check-config", folder / "alertmanager.yaml")
    alert = {"status": "firing", "labels": {}, "annotations": {"description": "This is\nproof."}}
    common = {"summary": "Deadlock: orders, stock\nwill wait", "runbook_url": "https://docs.example/StilltrueDeadlock.md"}
    labels = {"alertname": "StilltrueDeadlock", "predicate": "deadlock"}
    text = '{{ template "stilltrue.title" . }}|{{ template "stilltrue.text" . }}|{{ template "stilltrue.page" . }}'
    flags = [
        f"--template.glob={folder / 'stilltrue.tmpl'}",
        f"--template.text={text}",
        f"--template.data={tmp_path / 'alert.json'}",
    ]

    def told(status: str, common: dict[str, str]) -> str:
        data = {"status": status, "alerts": [alert], "commonLabels": labels, "commonAnnotations": common}
        (tmp_path / "alert.json").write_text(json.dumps(data))
        return ran(str(amtool), "template", "render", *flags)

    said = told("firing", common)
    assert said.startswith("Deadlock: orders, stock will wait|This is proof.")
    incident = "https://ops.example/stilltrue/incidents/latest?predicate=deadlock"
    assert f"what to abort: {incident}\n" in said
    assert said.endswith(f"|{incident}")
    assert "https://docs.example/StilltrueDeadlock.md" in said
    over = told("resolved", common)
    assert over.startswith("Over: StilltrueDeadlock|It was said: Deadlock: orders, stock will wait")
    assert f"how it ended: {incident}|" in over
    assert "This is proof." not in over, "it is over"
    assert told("firing", {}).startswith("StilltrueDeadlock|"), "several alerts have no summary in common"
    overview = "|https://ops.example/stilltrue/"
    labels["state"] = "undetermined"
    assert told("firing", common).endswith(overview), "no incident says that it is not known"
    labels.clear()
    assert told("firing", common).endswith(overview), "nor that the detector is away"


def test_the_unit_tests_check_every_alert_firing_and_silent(alerts: list[dict[str, Any]], documents: Documents) -> None:
    (tests,) = documents(UNIT_TESTS.read_text())
    asked = [case for test in tests["tests"] for case in test.get("promql_expr_test", [])]
    for alert in alerts:
        mine = [
            case
            for case in asked
            if (found := re.search(r'alertname=~?"([^"]*)"', case["expr"])) and re.fullmatch(found[1], alert["alert"])
        ]
        assert any(case["exp_samples"] for case in mine), f"no test shows {alert['alert']} firing"
        assert any(not case["exp_samples"] for case in mine), f"no test shows {alert['alert']} silent"


def test_only_a_proved_deadlock_pages_and_at_once(alerts: list[dict[str, Any]]) -> None:
    assert {alert["alert"] for alert in alerts if alert["labels"]["severity"] == "critical"} == PROOF
    assert not [alert["alert"] for alert in alerts if alert["alert"] in PROOF and "for" in alert]


def test_every_alert_has_its_runbook_and_every_runbook_its_alert(alerts: list[dict[str, Any]]) -> None:
    for alert in alerts:
        assert alert["annotations"]["runbook_url"].endswith(f"/docs/runbooks/{alert['alert']}.md")
        assert alert["annotations"]["summary"]
        assert alert["annotations"]["description"]
    pages = {path.stem for path in RUNBOOKS}
    of_others = set(re.findall(r"alert: (\w+)", SCALE_OUT.read_text()))
    assert of_others <= pages
    assert {page for page in pages - of_others if not page.startswith("StilltrueStream")} == {
        alert["alert"] for alert in alerts
    }


def test_the_page_of_runbooks_links_each_of_them_with_its_title() -> None:
    text = (ROOT / "docs" / "runbooks" / "README.md").read_text()
    titles = {path.stem: path.read_text().split("\n", 1)[0].partition(": ")[2] for path in RUNBOOKS}
    assert dict(re.findall(r"^\| \[(\w+)\]\(\1\.md\) \| (.+) \|$", text, re.MULTILINE)) == titles


@pytest.mark.parametrize("heading", ["## What it means", "## What to look at", "## What to do"])
def test_every_runbook_has_meaning_diagnosis_and_remedy(heading: str) -> None:
    for path in RUNBOOKS:
        assert heading in path.read_text(), path.name


def test_the_alerts_name_only_metrics_that_exist(alerts: list[dict[str, Any]], metric_names: set[str]) -> None:
    for alert in alerts:
        named = set(NAME.findall(alert["expr"] + alert["annotations"]["summary"]))
        assert named <= metric_names, alert["alert"]


def test_the_chart_installs_the_very_same_alerts(groups: list[dict[str, Any]], rendered: Rendered) -> None:
    rule = next(each for each in rendered("monitoring") if each["kind"] == "PrometheusRule")
    text = json.dumps(groups).replace('job=\\"stilltrue\\"', 'job=\\"watch-stilltrue\\",namespace=\\"observability\\"')
    expected = json.loads(text)
    for group in expected:
        group["rules"] = [each for each in group["rules"] if each["alert"] != "StilltrueNoMembers"]
        for each in group["rules"]:
            each["labels"]["team"] = "platform"
            if each["alert"] == "StilltrueGridlock":
                each["labels"]["severity"] = "info"
    assert rule["spec"]["groups"] == expected
    assert 'job="stilltrue"' not in json.dumps(rule).replace("\\", "")


def test_prometheus_accepts_the_charts_alerts(promtool: str, rendered: Rendered, tmp_path: Path) -> None:
    rule = next(each for each in rendered("monitoring") if each["kind"] == "PrometheusRule")
    file = tmp_path / "rules.yaml"
    file.write_text(json.dumps(rule["spec"]))
    assert "15 rules found" in ran(promtool, "check", "rules", file)


def panels(dashboard: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from copy.deepcopy(dashboard["panels"])


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_expression_of_a_dashboard_parses_and_names_metrics_that_exist(
    path: Path, promtool: str, metric_names: set[str], tmp_path: Path
) -> None:
    dashboard = json.loads(path.read_text())
    expressions = [target["expr"] for panel in panels(dashboard) for target in panel["targets"]]
    expressions += [each["expr"] for each in dashboard["annotations"]["list"]]
    assert len(expressions) >= 9
    plotted = [panel for panel in panels(dashboard) if panel["type"] in {"timeseries", "stat"}]
    assert [panel["title"] for panel in plotted if not panel["fieldConfig"]["defaults"].get("unit")] == []
    rules = [
        {
            "record": f"panel:{number}",
            "expr": text.replace("$__rate_interval", "1m").replace("$scope", "all").replace("$job", ".*"),
        }
        for number, text in enumerate(expressions)
    ]
    file = tmp_path / "expressions.yaml"
    file.write_text(json.dumps({"groups": [{"name": path.stem, "rules": rules}]}))
    assert "SUCCESS" in ran(promtool, "check", "rules", file)
    variables = [each["definition"] for each in dashboard["templating"]["list"] if "definition" in each]
    for text in [*expressions, *variables]:
        assert NAME.findall(text)
        assert set(NAME.findall(text)) <= metric_names, text


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_is_laid_out_without_gaps_or_overlaps(path: Path) -> None:
    dashboard = json.loads(path.read_text())
    assert dashboard["uid"] == path.stem
    taken = [(x, y) for panel in panels(dashboard) for x, y in cells(panel["gridPos"])]
    assert len(taken) == len(set(taken))
    assert len(taken) == 24 * (1 + max(y for _, y in taken))
    assert len({panel["id"] for panel in panels(dashboard)}) == len(dashboard["panels"])


def cells(at: dict[str, int]) -> Iterator[tuple[int, int]]:
    for x in range(at["x"], at["x"] + at["w"]):
        for y in range(at["y"], at["y"] + at["h"]):
            yield x, y


def test_grafanas_sidecar_finds_the_dashboards_whole(rendered: Rendered) -> None:
    maps = [each for each in rendered("monitoring") if each["metadata"]["labels"].get("grafana_dashboard") == "1"]
    found = {name: json.loads(text) for each in maps for name, text in each["data"].items()}
    assert found == {path.name: json.loads(path.read_text()) for path in DASHBOARDS}


def test_the_metrics_follow_prometheus_conventions(promtool: str) -> None:
    metrics = Metrics()
    metrics.expect("deadlock", "all")
    ran(promtool, "check", "metrics", stdin=metrics.text().decode())
