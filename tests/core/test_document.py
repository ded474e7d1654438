"""Snapshot documents: read, written, and read back to the same verdict."""

from __future__ import annotations

import json
import pickle
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detector.core.document.reader import DocumentError, parse_document, read_document, write_document
from detector.core.registry import ask
from detector.core.verdict import write_verdict
from detector.predicates.deadlock import Deadlock
from detector.predicates.gridlock import Gridlock
from detector.predicates.termination import Termination
from stilltrue.model import Activity, Holds, ProcessName, ProcessState

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
        "forgetful": st.lists(PROCESSES, max_size=2),
        "doubts": st.dictionaries(PROCESSES, st.text(max_size=4), max_size=2),
        "set_aside": st.dictionaries(PROCESSES, st.text(max_size=4), max_size=2),
        "membership": st.lists(
            st.fixed_dictionaries(
                {"about": st.sampled_from(["all", "states", "false"]), "text": st.text(max_size=4)},
                optional={"predicate": st.sampled_from(["deadlock", ""]), "decisive": st.lists(PROCESSES, max_size=2)},
            ),
            max_size=2,
        ),
        "previous": waits(),
        "begun": TIMES,
        "id": st.integers(0, 9),
    }
    return {key: draw(value) for key, value in every.items() if draw(st.booleans())}


@settings(max_examples=150, deadline=None)
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


@pytest.mark.parametrize(
    "doubt",
    [
        {"forgetful": ["a"]},
        {"doubts": {"a": "a thread is at work"}},
        {"membership": [{"about": "states", "text": "1 of 2 expected have joined"}]},
        {"membership": [{"about": "all", "text": "gathering: 1 of 2 are back", "decisive": ["b"]}]},
    ],
)
def test_the_document_has_the_reason_of_an_undetermined_answer(doubt: dict[str, Any]) -> None:
    idle = {"processes": {"a": {"activity": "idle"}}}
    assert ask(Termination(), read_document(idle)).holds is Holds.TRUE
    snapshot = read_document(idle | doubt)
    assert ask(Termination(), snapshot).holds is Holds.UNDETERMINED
    assert ask(Termination(), read_document(write_document(snapshot))) == ask(Termination(), snapshot)


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"doubts": {"a": 1}}, "doubts.a: must be a string"),
        ({"doubts": ["a"]}, "doubts: must be an object"),
        ({"forgetful": [""]}, "forgetful"),
        ({"membership": [{"about": ["all"]}]}, 'membership[0].about: must be "all" or "states" or "false"'),
    ],
)
def test_doubts_that_make_no_sense_are_refused(document: dict[str, Any], says: str) -> None:
    with pytest.raises(DocumentError, match=re.escape(says)):
        read_document(document)


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


def test_annotations_are_ignored_and_labels_kept() -> None:
    told: list[str] = []
    document = {"expect": {}, "x-wiats": 1, "processes": {"a": {"labels": {"team": "red"}, "service": "orders", "note": 3}}}
    state = read_document(document, lambda key: told.append(str(key))).processes[ProcessName("a")]
    assert state == ProcessState(labels={"team": "red"}, service="orders", facts={})
    assert told == []


def test_unknown_keys_are_ignored_with_one_warning_per_kind_of_object() -> None:
    told: list[tuple[str | int, ...]] = []
    waits = [{"waiter": "a", "among": ["b"]}, *({"waiter": "b", "among": ["c"], "resource": at} for at in range(2))]
    processes = {"q": {"hue": 1}, "p": {"hue": 2}}
    document = {"waits": waits, "processes": processes, "in_transit": [{"source": "a", "size": 3}], "colour": 1}
    assert len(read_document(document, lambda key: told.append(key.path)).waits) == 3
    assert told == [("colour",), ("processes", "p", "hue"), ("waits", 1, "resource"), ("in_transit", 0, "size")]


@pytest.mark.parametrize(
    ("document", "key", "near"),
    [
        ({"wiats": []}, "wiats", "waits"),
        ({"wait": []}, "wait", "waits"),
        ({"inTransit": []}, "inTransit", "in_transit"),
        ({"in-transit": []}, "in-transit", "in_transit"),
        ({"process": {}}, "process", "processes"),
        ({"Missing": []}, "Missing", "missing"),
        ({"waits": [{"waiter": "a", "among": ["b"]}, {"waiter": "a", "among": ["b"], "neds": 1}]}, "waits[1].neds", "needs"),
        ({"waits": [{"waiter": "a", "amongst": ["b"]}]}, "waits[0].amongst", "among"),
        ({"previous": [{"waiter": "a", "among": ["b"], "dead_line": 1}]}, "previous[0].dead_line", "deadline"),
        ({"processes": {"a": {}, "b": {"activty": "idle"}}}, "processes.b.activty", "activity"),
        ({"processes": {"a": {"label": {}}}}, "processes.a.label", "labels"),
        ({"in_transit": [{"source": "a", "traget": "b"}]}, "in_transit[0].traget", "target"),
    ],
)
def test_a_misspelt_key_is_refused_with_the_one_that_was_meant(document: dict[str, Any], key: str, near: str) -> None:
    with pytest.raises(DocumentError) as refused:
        read_document(document)
    assert str(refused.value).startswith(f'{key}: unknown key; did you mean "{near}"?')


def test_an_error_travels_between_processes_with_its_place() -> None:
    error = DocumentError("is wrong", path=("waits", 3), file="a.json", line=7)
    assert str(pickle.loads(pickle.dumps(error))) == str(error) == "a.json: 7: waits[3]: is wrong"


def test_needs_defaults_to_one_of_the_different_names() -> None:
    wait = read_document({"waits": [{"waiter": "a", "among": ["b", "c", "b"]}]}).waits.wait(0)
    assert (wait.needs, wait.among) == (1, ("b", "c"))


def test_times_are_utc_with_a_z() -> None:
    document = {"waits": [{"waiter": "a", "among": ["a"], "deadline": "2026-11-20T16:02:11.500+02:00"}]}
    assert write_document(read_document(document))["waits"][0]["deadline"] == "2026-11-20T14:02:11.5Z"


@pytest.mark.parametrize("name", ["p/GET /", "p//", "p/a/b/", "p"])
def test_a_party_may_have_slashes_in_its_name(name: str) -> None:
    """A task or thread that is called after a path, say."""
    document = {"waits": [{"waiter": "q", "among": [name]}]}
    assert write_document(read_document(document))["waits"][0]["among"] == [name]


@pytest.mark.parametrize("name", ["", "/", "/x", "p/"])
def test_a_party_has_a_process_and_after_a_slash_a_name(name: str) -> None:
    document = {"waits": [{"waiter": "q", "among": [name]}]}
    with pytest.raises(DocumentError, match="the name of a party"):
        parse_document(json.dumps(document), file="x")
