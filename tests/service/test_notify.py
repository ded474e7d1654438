"""The notifier: once and in order, retried while that can help, and never blocking the service."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from detector.ops.logs import Log
from detector.service.detection.incident.incidents import Incident
from detector.service.notify import Delivery, NotificationRefusedError, Notifier, notification, summary
from stilltrue.model import PartyName, SnapshotId

QUICK = Delivery(attempt_seconds_max=2, attempts_max=4, pause_seconds_min=0.001, pause_seconds_max=0.002, queued_max=3)


class Webhook:
    """Answers what it is told to, in order, then 204; keeps what it got."""

    def __init__(self, *answers: int) -> None:
        self.answers: queue.SimpleQueue[int] = queue.SimpleQueue()
        for answer in answers:
            self.answers.put(answer)
        self.got: queue.SimpleQueue[tuple[str, dict[str, Any]]] = queue.SimpleQueue()
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/hook"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                webhook.got.put((self.headers["Idempotency-Key"], body))
                webhook.may_answer.wait(5)
                self.send_response(204 if webhook.answers.empty() else webhook.answers.get())
                self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler

    def next(self) -> tuple[str, dict[str, Any]]:
        return self.got.get(timeout=5)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def webhook(request: pytest.FixtureRequest) -> Iterator[Webhook]:
    made = Webhook(*getattr(request, "param", ()))
    yield made
    made.may_answer.set()
    made.server.shutdown()
    made.server.server_close()


def incident(id: str = "a1", closed: float | None = None) -> Incident:
    return Incident(
        id=id, predicate="deadlock", scope="all", core=(PartyName("orders-0/Place#7"), PartyName("stock-0/Reserve#3")),
        behind=(), opened=1_700_000_000.0, seen=1_700_000_001.0, closed=closed, first_snapshot=SnapshotId(5),
        last_snapshot=SnapshotId(6), text="orders-0 waits for stock-0", ending="orders-0/Place#7 went on" if closed else "",
    )  # fmt: skip


def notifier(url: str, delivery: Delivery = QUICK) -> Notifier:
    return Notifier(url, log=Log("test"), delivery=delivery)


def test_an_incident_is_notified_with_its_core_and_then_its_end(webhook: Webhook) -> None:
    told = notifier(webhook.url)
    told.changed(incident())
    told.changed(incident(closed=1_700_000_060.0))
    key, opened = webhook.next()
    assert (key, opened["event"]) == ("a1-opened-6", "opened")
    assert opened["text"] == "Deadlock a1: orders-0, stock-0 wait for each other; stilltrue show a1"
    assert opened["incident"]["core"] == ["orders-0/Place#7", "stock-0/Reserve#3"]
    assert opened["incident"]["opened"] == "2023-11-14T22:13:20.000Z"
    key, closed = webhook.next()
    assert (key, closed["event"], closed["incident"]["closed"]) == ("a1-closed-6", "closed", "2023-11-14T22:14:20.000Z")
    assert closed["text"] == "Deadlock a1 of orders-0, stock-0 is over: orders-0/Place#7 went on"
    told.close(5)
    assert told.dropped == 0


@pytest.mark.parametrize(
    ("predicate", "core", "says"),
    [
        ("deadlock", ("a/x", "b/y"), "a, b wait for each other"),
        ("deadlock", ("a/x", "a/y"), "parties of a wait for each other"),
        ("deadlock", ("a/x",), "a waits for itself"),
        ("gridlock", ("a/x", "b/y"), "a, b wait for each other, until a deadline fires"),
        ("orphaned-resource", ("a/x", "b/y"), "a, b: orders-0 waits for stock-0"),
    ],
)
def test_the_notification_describes_each_kind_of_event(predicate: str, core: tuple[str, ...], says: str) -> None:
    one = replace(incident(), predicate=predicate, core=tuple(map(PartyName, core)))
    assert summary(one) == f"{predicate.capitalize()} a1: {says}; stilltrue show a1"


def test_only_changes_of_state_are_notified(webhook: Webhook) -> None:
    told = Notifier(webhook.url, log=Log("test"), known=["before the restart"], delivery=replace(QUICK, queued_max=10))
    told.changed(incident("before the restart"))
    told.changed(incident("never told", closed=1.0))
    for _ in range(3):
        told.changed(incident())
    told.changed(incident(closed=1_700_000_060.0))
    told.changed(incident())
    told.changed(incident("before the restart", closed=2.0))
    expected = ["a1-opened-6", "a1-closed-6", "a1-opened-6", "before the restart-closed-6"]
    assert [webhook.next()[0] for _ in expected] == expected
    told.close(5)
    assert webhook.got.empty()


@pytest.mark.parametrize("webhook", [(503, 429, 500)], indirect=True)
def test_a_notification_is_retried_until_accepted_before_the_next(webhook: Webhook) -> None:
    told = notifier(webhook.url)
    told.changed(incident("first"))
    told.changed(incident("second"))
    assert [webhook.next()[0] for _ in range(5)] == ["first-opened-6"] * 4 + ["second-opened-6"]
    told.close(5)
    assert told.dropped == 0


@pytest.mark.parametrize("webhook", [(503,) * 4], indirect=True)
def test_a_notification_is_dropped_after_a_bounded_number_of_attempts(webhook: Webhook) -> None:
    told = notifier(webhook.url)
    told.changed(incident("first"))
    told.changed(incident("second"))
    assert [webhook.next()[0] for _ in range(5)] == ["first-opened-6"] * 4 + ["second-opened-6"]
    told.close(5)
    assert told.dropped == 1


@pytest.mark.parametrize("webhook", [(400,), (401,), (404,), (302,)], indirect=True)
def test_a_refusal_is_final(webhook: Webhook) -> None:
    told = notifier(webhook.url)
    told.changed(incident("first"))
    told.changed(incident("second"))
    assert [webhook.next()[0] for _ in range(2)] == ["first-opened-6", "second-opened-6"]
    told.close(5)
    assert told.dropped == 1


def test_an_unreachable_webhook_is_retried_and_given_up() -> None:
    closed = Webhook()
    closed.server.shutdown()
    closed.server.server_close()
    told = notifier(closed.url)
    told.changed(incident())
    told.close(5)
    assert told.dropped == 1


def test_notifying_never_blocks_and_overflow_is_counted(webhook: Webhook) -> None:
    webhook.may_answer.clear()
    told = notifier(webhook.url)
    told.changed(incident("under way"))
    webhook.next()
    for number in range(QUICK.queued_max + 2):
        told.changed(incident(f"more {number}"))
    assert told.dropped == 2
    webhook.may_answer.set()
    assert [webhook.next()[0] for _ in range(QUICK.queued_max)] == [f"more {n}-opened-6" for n in range(QUICK.queued_max)]


def test_closing_does_not_wait_for_a_webhook_that_is_down(webhook: Webhook) -> None:
    for _ in range(100):
        webhook.answers.put(503)
    told = notifier(webhook.url, Delivery(attempts_max=100, pause_seconds_min=3600))
    told.changed(incident())
    webhook.next()
    told.close(5)
    assert told.dropped == 1
    assert webhook.got.empty(), "it paused, and was not tried again"


@pytest.mark.parametrize("url", ["", "hooks.example.org/x", "file:///etc/passwd", "https://", "ftp://example.org"])
def test_an_invalid_webhook_address_is_refused(url: str) -> None:
    with pytest.raises(NotificationRefusedError, match="http"):
        notifier(url)


def test_a_large_core_is_summarised_in_one_short_sentence() -> None:
    core = tuple(PartyName(f"p{number}/call#1") for number in range(9))
    linked = notification(incident(), "https://ops.example/stilltrue")
    assert linked["url"] == f"https://ops.example/stilltrue/incidents/{incident().id}"
    assert linked["text"].endswith(linked["url"])
    assert notification(incident())["url"] is None
    assert "p0, p1, p2, p3, p4 and 4 more wait" in notification(replace(incident(), core=core))["text"]
