"""Cures in the service: permissions, refusals, the audit log, and the button on the incident's page."""

from __future__ import annotations

import json
import time
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import grpc
import pytest

from detector.core.document.reader import read_document
from detector.predicates.deadlock import Deadlock
from detector.predicates.evidence.freed_by_abort import freed_by
from detector.service.cure import cures
from detector.service.cure.audit import BYTES_MAX, FILES_KEPT, NAME, Audit
from detector.service.grpc_api.roles import Role, roles_for
from detector.service.settings import SettingError, Settings
from stilltrue.model import PartyName
from stilltrue.protocol.report import PartyTarget, ResourceTarget
from stilltrue.v1 import detector_pb2 as pb
from stilltrue.version import __version__
from tests.service.browser import Page

REFUSED = grpc.StatusCode.FAILED_PRECONDITION


async def refusal(detector: Any, incident: str) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await detector.stub.Cure(pb.CureRequest(incident=incident), timeout=30)
    return refused.value.code(), str(refused.value.details())


async def stuck_in(detector: Any, *processes: Any) -> str:
    """The id of the incident, once it is open."""
    await detector.join(*processes)
    while not (found := await detector.incidents()):
        await detector.ask()
    return str(found[0].id)


async def test_a_cure_is_previewed_performed_and_logged(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b = process("a"), process("b")
    stuck = deadlock(a, b)
    a.cures = b.cures = stuck.cure
    async with start_detector(tmp_path, allow_cure=True) as detector:
        name = await stuck_in(detector, a, b)
        plan = await detector.stub.Cure(pb.CureRequest(incident=name, preview=True), timeout=30)
        assert [one.party for one in plan.victims] == [one for one in stuck.core if one not in plan.freed]
        assert plan.victims[0].aborted
        told = "aborting 1 call frees 3 other parties; 1 of them is queued for a worker and may deadlock again"
        assert plan.text == told, (
            "the other of the two, whose call is queued as the victim's is; their callers wait for replies"
        )
        assert a.asked_to_cure + b.asked_to_cure == [], "a preview asks nobody"
        done = await detector.stub.Cure(pb.CureRequest(incident=name), timeout=30)
        assert (done.over, done.text) == (True, f"{name} is over as of snapshot {done.snapshot}")
        (asked,) = a.asked_to_cure + b.asked_to_cure
        assert (asked.incident, [one.party for one in asked.victims]) == (name, [one.party for one in plan.victims])
        assert all(one.waits for one in asked.victims), "the waits it is known by"
        (incident,) = await detector.incidents()
        assert [note.text for note in incident.cures] == [f"{plan.victims[0].party}: its call ended", done.text]
        assert (await refusal(detector, name))[0] is REFUSED
        assert await refusal(detector, "i-none") == (grpc.StatusCode.NOT_FOUND, "there is no open incident i-none")
    lines = [json.loads(line) for line in (tmp_path / NAME).read_text().splitlines()]
    assert [line["what"] for line in lines] == ["cure begun", "cure done", "cure over"]
    assert all(line["incident"] == name and "127.0.0.1" in line["who"] for line in lines)


async def test_a_process_that_does_not_allow_cures_is_left_alone(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b = process("a"), process("b")
    deadlock(a, b)
    async with start_detector(tmp_path / "1") as detector, aiohttp.ClientSession() as http:
        name = await stuck_in(detector, a, b)
        code, text = await refusal(detector, name)
        assert (code, "--allow-cure" in text) == (REFUSED, True)
        async with http.post(f"{detector.web}/api/v1/incidents/{name}/cure", json={}) as answer:
            assert (answer.status, "--allow-cure" in (await answer.json())["error"]) == (403, True)
        async with http.post(f"{detector.web}/api/v1/incidents") as answer:
            assert answer.status == 405
        plan = await detector.stub.Cure(pb.CureRequest(incident=name, preview=True), timeout=30)
        (victim,), freed = plan.victims, plan.freed
        assert (victim.aborted, len(freed)) == (False, 3), "a preview needs no permission, and says what is missing"
        assert "--allow-cure" in victim.text
        assert "STILLTRUE_ALLOW_CURE" in victim.text
        assert "too old" in victim.text
        async with http.get(f"{detector.web}/api/v1/incidents/{name}/cure") as answer:
            preview = await answer.json()
            assert (answer.status, preview["possible"], preview["freed"]) == (200, False, list(freed))
    c, d = process("a"), process("b")
    c.agent = d.agent = f"python/{__version__}"
    deadlock(c, d)
    async with start_detector(tmp_path / "2", allow_cure=True) as detector:
        name = await stuck_in(detector, c, d)
        code, text = await refusal(detector, name)
        assert (code, "STILLTRUE_ALLOW_CURE" in text) == (REFUSED, True)
        assert "too old" not in text, "an agent of the detector's version is not too old"
        plan = await detector.stub.Cure(pb.CureRequest(incident=name, preview=True), timeout=30)
        assert [one.aborted for one in plan.victims] == [False]
    assert not (tmp_path / "2" / NAME).exists()


async def test_an_incident_that_no_snapshot_shows_or_ends_is_not_said_to_be_shown(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cures, "SNAPSHOTS_MAX", 2)
    a, b = process("a"), process("b")
    stuck = deadlock(a, b)

    def free_and_fall_silent() -> None:
        stuck.cure()
        a.silent = b.silent = True

    a.cures = b.cures = free_and_fall_silent
    async with start_detector(tmp_path, allow_cure=True) as detector:
        name = await stuck_in(detector, a, b)
        done = await detector.stub.Cure(pb.CureRequest(incident=name), timeout=30)
        told = f"snapshot {done.snapshot} neither shows {name} nor proves that it is over: a later one will"
        assert (done.over, done.text) == (False, told)
    assert json.loads((tmp_path / NAME).read_text().splitlines()[-1])["what"] == "cure not confirmed"


@pytest.mark.parametrize(("kind", "told"), [("thread", "it serves no call"), ("task", "its task will be cancelled")])
async def test_a_preview_does_not_promise_to_abort_a_call_that_a_victim_may_not_have(
    start_detector: Any, process: Any, tmp_path: Path, kind: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cures, "SNAPSHOTS_MAX", 1)
    a = process("a")
    one, other = (PartyName(f"a/{kind}:{name}") for name in ("one", "other"))
    for waiter, target in ((one, other), (other, one)):
        a.recorder.waits(waiter, [PartyTarget(party=target)], time.time() - 1, what="the answer")
    a.cures, a.aborts = lambda: None, False
    async with start_detector(tmp_path, allow_cure=True) as detector:
        name = await stuck_in(detector, a)
        plan = await detector.stub.Cure(pb.CureRequest(incident=name, preview=True), timeout=30)
        assert plan.victims[0].text.startswith(told)
        unsure = f"would free 1 other party, if {plan.victims[0].party} waits for a call"
        assert plan.text == f"aborting 1 call {'frees 1 other party' if kind == 'task' else unsure}"
        done = await detector.stub.Cure(pb.CureRequest(incident=name), timeout=30)
        assert done.text == f"nothing was aborted, and snapshot {done.snapshot} still shows {name}"


async def test_a_cure_that_other_calls_undo_says_so(
    start_detector: Any, process: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its incident has one of its old waits, so it is the same one, but not the same parties."""
    monkeypatch.setattr(cures, "SNAPSHOTS_MAX", 3)
    a = process("a")
    victim, rest, successor = (PartyName(f"a/thread:{name}") for name in ("a-victim", "rest", "successor"))
    a.recorder.holds(victim, "lock")
    a.recorder.waits(rest, [ResourceTarget(resource="lock")], time.time() - 1)
    wait = a.recorder.waits(victim, [PartyTarget(party=rest)], time.time() - 1)

    def hand_over() -> None:
        a.recorder.resumes(wait)
        a.recorder.releases(victim, "lock")
        a.recorder.holds(successor, "lock")
        a.recorder.waits(successor, [PartyTarget(party=rest)], time.time())

    a.cures = hand_over
    async with start_detector(tmp_path, allow_cure=True) as detector:
        name = await stuck_in(detector, a)
        done = await detector.stub.Cure(pb.CureRequest(incident=name), timeout=30)
        assert [one.party for one in done.victims] == [victim]
        told = f"snapshot {done.snapshot} still shows {name}, without {victim}: other calls deadlocked again with the rest"
        assert (done.over, done.text) == (False, told)
        (incident,) = await detector.incidents()
        assert (incident.id, list(incident.core)) == (name, [rest, successor])
    assert json.loads((tmp_path / NAME).read_text().splitlines()[-1])["what"] == "cure undone"


async def test_an_incident_whose_processes_are_lost_is_refused_with_their_names(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b = process("a"), process("b")
    a.cures = b.cures = deadlock(a, b).cure
    async with start_detector(tmp_path, allow_cure=True, lease_seconds=0.2) as detector:
        name = await stuck_in(detector, a, b)
        await a.kill()
        await b.kill()
        while set((await detector.agents()).values()) != {pb.AGENT_STATE_LOST}:
            await detector.ask()
        told = f"the newest snapshot does not show {name}: a, b are lost: nothing can be aborted there"
        assert await refusal(detector, name) == (REFUSED, told)


async def test_without_an_audit_log_no_call_is_aborted(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b = process("a"), process("b")
    stuck = deadlock(a, b)
    a.cures = b.cures = stuck.cure
    async with start_detector(tmp_path, allow_cure=True) as detector:
        name = await stuck_in(detector, a, b)
        (tmp_path / NAME).mkdir()
        code, text = await refusal(detector, name)
        assert (code, "audit log" in text) == (REFUSED, True)
        assert a.asked_to_cure + b.asked_to_cure == []


async def test_the_pages_ask_for_confirmation_and_refuse_cross_site_forms(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b = process("a"), process("b")
    stuck = deadlock(a, b)
    a.cures = b.cures = stuck.cure
    async with start_detector(tmp_path, allow_cure=True) as detector, aiohttp.ClientSession() as http:
        url = f"{detector.web}/incidents/{await stuck_in(detector, a, b)}/cure"
        api = url.replace("/incidents/", "/api/v1/incidents/")
        for form in ({}, {"secret": "guessed"}):
            async with http.post(url, data=form) as answer:
                assert answer.status == 403
        async with http.post(api, data="{}") as answer:
            assert answer.status == 415
        async with http.get(api) as answer:
            assert len((await answer.json())["victims"]) == 1
        assert a.asked_to_cure + b.asked_to_cure == []
        async with http.post(api, json={}) as answer:
            assert answer.status == 202
        assert len(a.asked_to_cure + b.asked_to_cure) == 1


async def test_a_page_that_is_opened_right_after_the_end_follows_the_incident(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outcome of a cure is noted after the incident has ended: the page would never have shown it."""
    a, b = process("a"), process("b")
    stuck = deadlock(a, b)
    async with start_detector(tmp_path) as detector:
        path = f"/incidents/{await stuck_in(detector, a, b)}"
        stuck.cure()
        while "ended after" not in (page := (await detector.fetch(path))[2]):
            await detector.ask()
        assert 'data-live="yes"' in page
        monkeypatch.setattr("detector.service.web.pages._SETTLING_SECONDS", 0.0)
        assert 'data-live="no"' in (await detector.fetch(path))[2]


async def test_an_operator_ends_an_incident_in_the_browser(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path, page: Page
) -> None:
    a, b = process("a"), process("b")
    stuck = deadlock(a, b)
    a.cures = b.cures = stuck.cure
    async with start_detector(tmp_path, allow_cure=True, period_seconds=0.2) as detector:
        name = await stuck_in(detector, a, b)
        await page.look_at(f"{detector.web}/incidents/{name}")
        await page.run("document.querySelector('a.button').click()")
        await page.until("!!document.querySelector('button.deed')")
        assert "frees 3 other parties" in await page.run("document.querySelector('[role=status]').textContent")
        assert a.asked_to_cure + b.asked_to_cure == []
        await page.run("document.querySelector('button.deed').click()")
        await page.until("document.querySelector('h1')?.textContent.includes('ended after')")
        await page.until("document.querySelector('main').textContent.includes('is over as of snapshot')")


@pytest.mark.parametrize("seed", range(30))
def test_the_freed_parties_of_a_preview_are_all_stuck_ones_but_the_victims(seed: int) -> None:
    random = Random(seed)
    names = [f"p{at % 5}/x{at}" for at in range(random.randint(2, 14))]
    waits = []
    for waiter in names:
        among = random.sample(names, random.randint(1, 3 if len(names) > 2 else 1))
        if random.random() < 0.85:
            waits.append({"waiter": waiter, "among": among, "needs": random.randint(1, len(among))})
    document = {"id": 1, "waits": waits}
    snapshot = read_document(document)
    verdict = Deadlock().evaluate(snapshot)
    assert sorted([*freed_by(snapshot, frozenset(verdict.victims)), *verdict.victims]) == sorted(verdict.remainder)
    assert freed_by(snapshot, frozenset()) == ()


def test_cures_are_for_operators_and_off_by_default() -> None:
    assert roles_for("/stilltrue.v1.DetectorService/Cure") == {Role.OPERATOR}
    assert not Settings().allow_cure
    with pytest.raises(SettingError, match="--roles-file"):
        Settings(host="10.0.0.1", allow_plaintext=True, allow_cure=True)


def test_the_audit_log_is_rotated(tmp_path: Path) -> None:
    audit = Audit(tmp_path)
    for number in range(FILES_KEPT + 3):
        audit.write(0.0, "cure done", "alice", text="x" * BYTES_MAX, number=number)
    assert len(list(tmp_path.iterdir())) == FILES_KEPT + 1
    assert json.loads((tmp_path / NAME).read_text())["number"] == FILES_KEPT + 2
    assert json.loads((tmp_path / f"{NAME}.1").read_text())["number"] == FILES_KEPT + 1
