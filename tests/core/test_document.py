"""Snapshot documents: read, written, and read back to the same verdict."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from detector.core.document import parse_document, read_document, write_document
from detector.core.verdict import write_verdict
from detector.predicates.deadlock import Deadlock
from detector.predicates.gridlock import Gridlock
from detector.predicates.termination import Termination
from stilltrue.model import Activity, ProcessName, ProcessState

PROCESSES = st.sampled_from(["a", "b", "c", "d"])
PARTIES = st.builds(lambda process, name: f"{process}{name}", PROCESSES, st.sampled_from(["", "/x", "/y#1"]))
TIMES = st.sampled_from(["2026-11-20T14:02:11Z", "2026-11-20T14:02:11.25Z", "2026-11-20T16:02:12+02:00"])
FACTS = st.dictionaries(
    st.sampled_from(["token", "phase"]), st.integers(0, 3) | st.text(max_size=3) | st.booleans(), max_size=2
)


@st.composite
def waits(draw: st.DrawFn) -> list[dict[str, Any]]:
    found = []
    for _ in range(draw(st.integers(0, 8))):
        among = draw(st.lists(PARTIES, min_size=1, max_size=3))
        wait: dict[str, Any] = {"waiter": draw(PARTIES), "among": among, "needs": draw(st.integers(1, len(set(among))))}
        optional = {"deadline": TIMES, "since": TIMES, "number": st.integers(0, 2), "what": st.text(max_size=4)}
        wait |= {key: draw(value) for key, value in optional.items() if draw(st.booleans())}
        wait |= {"uncoloured": True} if draw(st.booleans()) else {}
        found.append(wait)
    return found


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    states = st.fixed_dictionaries({"activity": st.sampled_from(["active", "idle", "blocked"])}, optional={"facts": FACTS})
    messages = st.fixed_dictionaries({"source": PROCESSES}, optional={"target": PROCESSES, "facts": FACTS})
    every = {
        "processes": st.dictionaries(PROCESSES, states),
        "waits": waits(),
        "in_transit": st.lists(messages, max_size=3),
        "missing": st.lists(PROCESSES, max_size=2),
        "previous": waits(),
        "begun": TIMES,
        "id": st.integers(0, 9),
    }
    return {key: draw(value) for key, value in every.items() if draw(st.booleans())}


@settings(max_examples=150)
@given(documents(), st.randoms(use_true_random=False))
def test_writing_and_reading_back_changes_no_verdict_and_neither_does_any_order(document: dict[str, Any], rng: Any) -> None:
    snapshot = read_document(document)
    written = json.dumps(write_document(snapshot))
    again = parse_document(written)[1]
    assert json.dumps(write_document(again)) == written
    mixed = {key: rng.sample(value, len(value)) if isinstance(value, list) else value for key, value in document.items()}
    shuffled = read_document(dict(rng.sample(list(mixed.items()), len(mixed))))
    for predicate in (Deadlock(), Gridlock(), Termination()):
        verdicts = [json.dumps(write_verdict(predicate.evaluate(each))) for each in (snapshot, again, shuffled)]
        assert len(set(verdicts)) == 1


def test_a_process_named_anywhere_is_active_unless_it_is_missing() -> None:
    snapshot = read_document(
        {
            "processes": {"a": {"activity": "idle"}, "gone": {"activity": "idle"}},
            "waits": [{"waiter": "b/1", "among": ["c/2", "gone/3"]}],
            "in_transit": [{"source": "d", "target": "e"}],
            "missing": ["gone"],
        }
    )
    assert {name: state.activity for name, state in snapshot.present().items()} == {
        "a": Activity.IDLE,
        "b": Activity.ACTIVE,
        "c": Activity.ACTIVE,
        "d": Activity.ACTIVE,
        "e": Activity.ACTIVE,
    }


def test_unknown_keys_are_ignored_and_labels_are_kept() -> None:
    document = {"expect": {}, "processes": {"a": {"labels": {"team": "red"}, "service": "orders", "hue": 3}}}
    state = read_document(document).processes[ProcessName("a")]
    assert state == ProcessState(labels={"team": "red"}, service="orders", facts={})


def test_needs_defaults_to_one_of_the_different_names() -> None:
    wait = read_document({"waits": [{"waiter": "a", "among": ["b", "c", "b"]}]}).waits.wait(0)
    assert (wait.needs, wait.among) == (1, ("b", "c"))


def test_times_are_utc_with_a_z() -> None:
    document = {"waits": [{"waiter": "a", "among": ["a"], "deadline": "2026-11-20T16:02:11.500+02:00"}]}
    assert write_document(read_document(document))["waits"][0]["deadline"] == "2026-11-20T14:02:11.5Z"
