"""From deadlocked agents to a page, with the real Prometheus and Alertmanager, until after the cure."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from detector.demo.harness import Harness
from tests.free_ports import free_port

pytestmark = pytest.mark.live

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "helm" / "stilltrue" / "files" / "stilltrue.rules.yaml"
START_SECONDS_MAX, ALERT_SECONDS_MAX = 20.0, 30.0
POLL_SECONDS = 0.1

Page = dict[str, Any]


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        reason = f"{name} is not here: run helm/tools/install"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    return str(found)


def fetched(url: str) -> str:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=5) as response:
        return str(response.read().decode())


def until(what: str, so: Callable[[], bool], seconds_max: float = START_SECONDS_MAX) -> None:
    give_up = time.monotonic() + seconds_max
    while not so():
        assert time.monotonic() < give_up, f"waited {seconds_max:g} s in vain for {what}"
        time.sleep(POLL_SECONDS)


@contextmanager
def started(*command: str, ready: str, log: Path) -> Iterator[None]:
    """A server of ours, from the time it is ready until it has ended."""

    def answers() -> bool:
        assert process.poll() is None, log.read_text()[-2000:]
        try:
            return bool(fetched(ready))
        except (urllib.error.URLError, ConnectionError):
            return False

    with log.open("w") as errors, subprocess.Popen(command, stdout=errors, stderr=errors) as process:
        try:
            until(f"{command[0]} to be ready", answers)
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(10)


@pytest.fixture
def pager() -> Iterator[tuple[str, queue.SimpleQueue[Page]]]:
    """Where Alertmanager delivers: its address, and the pages that came."""
    pages: queue.SimpleQueue[Page] = queue.SimpleQueue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            pages.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/", pages
    server.shutdown()
    server.server_close()


@pytest.fixture
def alertmanager(pager: tuple[str, queue.SimpleQueue[Page]], tmp_path: Path) -> Iterator[str]:
    """The address of an Alertmanager that pages for critical alerts."""
    command, address = program("prometheus-alertmanager"), f"127.0.0.1:{free_port()}"
    route = {
        "receiver": "nobody", "group_by": ["alertname"], "group_wait": "0s", "group_interval": "1s", "repeat_interval": "1h",
        "routes": [{"receiver": "pager", "matchers": ['severity="critical"']}],
    }  # fmt: skip
    receivers = [{"name": "nobody"}, {"name": "pager", "webhook_configs": [{"url": pager[0], "send_resolved": True}]}]
    config = tmp_path / "alertmanager.yml"
    config.write_text(json.dumps({"route": route, "receivers": receivers}))
    flags = (f"--config.file={config}", f"--storage.path={tmp_path}/alerts", f"--web.listen-address={address}")
    ready = f"http://{address}/-/ready"
    with started(command, *flags, "--cluster.listen-address=", ready=ready, log=tmp_path / "alertmanager.log"):
        yield address


@pytest.fixture
def prometheus(harness: Harness, alertmanager: str, tmp_path: Path) -> Iterator[str]:
    """The address of a Prometheus that scrapes the harness's detector, with our rules, all of it every second."""
    command, address = program("prometheus"), f"127.0.0.1:{free_port()}"
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES.read_text().replace("interval: 15s", "interval: 1s").replace("interval: 30s", "interval: 1s"))
    config = tmp_path / "prometheus.yml"
    settings = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [{"job_name": "stilltrue", "static_configs": [{"targets": [harness.http]}]}],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
    }
    config.write_text(json.dumps(settings))
    flags = (f"--config.file={config}", f"--storage.tsdb.path={tmp_path}/series", f"--web.listen-address={address}")
    with started(command, *flags, ready=f"http://{address}/-/ready", log=tmp_path / "prometheus.log"):
        yield address


def asked(prometheus: str, expression: str) -> list[dict[str, Any]]:
    """The vector that the expression gives now."""
    answer = json.loads(fetched(f"http://{prometheus}/api/v1/query?query={quote(expression)}"))
    return list(answer["data"]["result"])


def stat(prometheus: str, title: str) -> str:
    """What the panel of that title shows now."""
    board = json.loads((ROOT / "helm/stilltrue/files/dashboards/stilltrue-verdicts.json").read_text())
    (panel,) = [each for each in board["panels"] if each["title"] == title]
    (shown,) = asked(prometheus, panel["targets"][0]["expr"].replace("$scope", "all").replace("$job", ".*"))
    (words,) = [each["options"] for each in panel["fieldConfig"]["defaults"]["mappings"]]
    return str(words[shown["value"][1]]["text"])


def page(pages: queue.SimpleQueue[Page], status: str) -> Page:
    """The next alert that came with this status."""
    while True:
        delivered = pages.get(timeout=ALERT_SECONDS_MAX)
        for alert in delivered["alerts"]:
            if alert["status"] == status:
                return dict(alert)


@pytest.mark.longer
def test_a_deadlock_is_paged_with_its_core_and_resolved_after_the_cure(
    harness: Harness, prometheus: str, pager: tuple[str, queue.SimpleQueue[Page]]
) -> None:
    _, pages = pager
    harness.start_scene("detector.demo.scenes:POOLS")
    until(
        "a first answer", lambda: bool(asked(prometheus, 'stilltrue_predicate_state{predicate="deadlock",state="false"} == 1'))
    )
    assert asked(prometheus, 'ALERTS{severity="critical"}') == []
    assert stat(prometheus, "Deadlock") == "did not hold"
    assert pages.empty()

    harness.processes["load"].tell({"threads": 6})
    firing = page(pages, "firing")
    assert firing["labels"]["alertname"] == "StilltrueDeadlock"
    assert firing["annotations"]["summary"] == "Deadlock: billing, orders, stock will wait for each other forever"
    assert firing["annotations"]["runbook_url"].endswith("/docs/runbooks/StilltrueDeadlock.md")

    assert stat(prometheus, "Deadlock") == "HOLDS"

    harness.processes["stock"].send(signal.SIGKILL)
    resolved = page(pages, "resolved")
    assert resolved["fingerprint"] == firing["fingerprint"]
    assert asked(prometheus, "stilltrue_incident_core_info") == []


def test_the_live_metrics_are_well_formed_and_the_dashboards_show_them(harness: Harness, prometheus: str) -> None:
    harness.start_scene("detector.demo.scenes:POOLS")
    text = fetched(f"http://{harness.http}/metrics")
    command = [program("promtool"), "check", "metrics"]
    checked = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    until("snapshots", lambda: bool(asked(prometheus, "increase(stilltrue_snapshots_total[10s]) > 0")))
    silent = {
        "stilltrue_sidecar_",
        "stilltrue_incident_core_info",
        "stilltrue_predicate_failures_total",
        "stilltrue_reports_refused_total",
    }
    for path in sorted((ROOT / "helm/stilltrue/files/dashboards").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                text = target["expr"].replace("$__rate_interval", "10s").replace("$scope", "all").replace("$job", ".*")
                if not any(name in text for name in silent):
                    assert asked(prometheus, text), f"{path.stem}, {panel['title']}: {text}"


@pytest.mark.longer
def test_without_alertmanager_the_detector_notifies_a_webhook(
    tmp_path: Path, scenes_importable: None, pager: tuple[str, queue.SimpleQueue[Page]]
) -> None:
    url, pages = pager
    with Harness(tmp_path) as harness:
        harness.start_detector("--period-seconds", "0.5", "--lease-seconds", "1", "--forget-seconds", "2", "--notify-url", url)
        harness.start_scene("detector.demo.scenes:POOLS")
        harness.processes["load"].tell({"threads": 6})
        opened = pages.get(timeout=ALERT_SECONDS_MAX)
        assert (opened["event"], opened["incident"]["predicate"]) == ("opened", "deadlock")
        assert ": billing, orders, stock wait for each other; stilltrue show " in opened["text"]
        assert {party.partition("/")[0] for party in opened["incident"]["core"]} == {"billing", "orders", "stock"}
        harness.processes["stock"].send(signal.SIGKILL)
        closed = pages.get(timeout=ALERT_SECONDS_MAX)
        assert (closed["event"], closed["incident"]["id"]) == ("closed", opened["incident"]["id"])
        assert pages.empty()
