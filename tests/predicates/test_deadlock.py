"""deadlock in doubt: missing members, treated both ways, and uncoloured waits."""

from __future__ import annotations

from typing import Any

from detector.core.document.reader import read_document
from detector.predicates.deadlock import Deadlock
from stilltrue.model import Holds, Verdict


def asked(waits: list[dict[str, Any]], **more: Any) -> Verdict:
    return Deadlock().evaluate(read_document({"waits": waits, **more}))


def wait(waiter: str, *among: str, **more: Any) -> dict[str, Any]:
    return {"waiter": waiter, "among": list(among), **more}


RING = [wait("a/1", "b/1"), wait("b/1", "a/1")]


def test_true_if_stuck_even_when_the_missing_move() -> None:
    verdict = asked([*RING, wait("c/1", "gone/1")], missing=["gone"])
    assert (verdict.holds, verdict.remainder, verdict.missing) == (Holds.TRUE, ("a/1", "b/1"), ("gone",))


def test_false_if_free_even_when_the_missing_never_move() -> None:
    verdict = asked([wait("a/1", "b/1", "gone/1"), wait("b/1", "c/1")], missing=["gone"])
    assert verdict.holds is Holds.FALSE
    assert "b/1" not in verdict.witness.parties


def test_undetermined_if_it_depends_on_the_missing_who_are_named() -> None:
    waits = [wait("a/1", "gone/1", "lost/2"), wait("b/1", "a/1"), wait("c/1", "far/1", "late/1")]
    verdict = asked(waits, missing=["lost", "gone", "late", "other"], processes={"far": {}})
    assert (verdict.holds, verdict.witness.kind) == (Holds.UNDETERMINED, "missing")
    assert verdict.decisive == ("gone", "lost")
    assert verdict.witness.parties == ("a/1", "b/1")
    assert verdict.remainder == ()


def test_a_stale_report_never_counts() -> None:
    verdict = asked(RING, missing=["b"])
    assert (verdict.holds, verdict.decisive) == (Holds.UNDETERMINED, ("b",))


def test_a_deadline_ends_a_wait() -> None:
    verdict = asked([wait("a/1", "b/1", deadline="2026-11-20T14:02:11Z"), wait("b/1", "a/1")])
    assert verdict.holds is Holds.FALSE
    assert verdict.witness.parties == ("a/1",)


def test_an_unconfirmed_wait_causes_no_true_and_no_false() -> None:
    verdict = asked([wait("a/1", "b/1", number=5, uncoloured=True), wait("b/1", "a/1", number=9)])
    assert (verdict.holds, verdict.witness.kind) == (Holds.UNDETERMINED, "unconfirmed")
    assert "no stamp, and no second look" in verdict.witness.text


def test_a_deadlock_of_coloured_waits_counts_whatever_the_uncoloured_ones() -> None:
    verdict = asked([*RING, wait("c/1", "d/1", uncoloured=True), wait("d/1", "c/1"), wait("e/1", "a/1", uncoloured=True)])
    assert (verdict.holds, verdict.remainder) == (Holds.TRUE, ("a/1", "b/1"))


def test_explanations_state_what_for_and_for_how_long() -> None:
    waits = [
        wait(
            "orders/Place#7",
            "stock/Reserve#1",
            "stock/Reserve#3",
            what="a worker of stock's pool (2 of 2 busy)",
            since="2026-11-20T14:02:07.8Z",
        ),
        wait("stock/Reserve#1", "orders/Place#7"),
        wait("stock/Reserve#3", "orders/Place#7"),
    ]
    verdict = asked(waits, ended="2026-11-20T14:02:11Z")
    assert verdict.explanation == (
        "orders/Place#7 has waited 3.2 s for a worker of stock's pool (2 of 2 busy): 1 of stock/Reserve#1, stock/Reserve#3",
        "stock/Reserve#1 waits for orders/Place#7",
        "stock/Reserve#3 waits for orders/Place#7",
        "aborting 1 party would free all 3 (the fewest possible): orders/Place#7",
    )


def test_of_a_partys_waits_for_the_others_the_oldest_is_described() -> None:
    declared = wait("b/1", "a/1", "c/1", needs=2, what="the row of order 42", since="2026-11-20T14:02:07Z")
    inner = wait("b/1", "a/1", what="an object that only a/1 can reach", since="2026-11-20T14:02:08Z")
    verdict = asked([wait("a/1", "b/1"), inner, declared], ended="2026-11-20T14:02:11Z")
    assert verdict.explanation[1] == "b/1 has waited 4.0 s for the row of order 42: both of a/1, c/1"


def test_each_separate_deadlock_is_described() -> None:
    verdict = asked([*RING, wait("c/1", "d/1"), wait("d/1", "c/1"), wait("e/1", "d/1")])
    assert verdict.witness.parties == ("a/1", "b/1")
    assert verdict.witness.text == "cycle: a/1 -> b/1 -> a/1; separately, 1 more such group"
    assert verdict.explanation == (
        "a/1 waits for b/1",
        "b/1 waits for a/1",
        "separately, 2 parties wait for each other: c/1, d/1",
        "c/1 waits for d/1",
        "d/1 waits for c/1",
        "aborting 2 parties would free all 5 (the fewest possible): a/1, c/1",
    )


def test_of_many_separate_deadlocks_the_first_are_described_and_the_others_counted() -> None:
    big = [wait(f"g{at:02}", f"g{(at + 1) % 20:02}") for at in range(20)]
    pairs = [wait(f"p{at}/{one}", f"p{at}/{1 - one}") for at in range(5) for one in (0, 1)]
    told = asked([*RING, *big, *pairs]).explanation
    assert told[2].startswith("separately, 20 parties wait for each other: g00, ")
    assert told[3:10:3] == (
        "separately, 2 parties wait for each other: p0/0, p0/1",
        "separately, 2 parties wait for each other: p1/0, p1/1",
        "and 3 more such groups",
    )


def test_of_a_separate_groups_parties_the_oldest_wait_is_described() -> None:
    since = {"declared": "2026-11-20T14:02:07Z", "inner": "2026-11-20T14:02:08Z"}
    waits = [
        wait("a/1", "a/1"),
        wait("c/1", "d/1", what="an object that only d/1 can reach", since=since["inner"]),
        wait("c/1", "d/1", what="the answer of the reviewer", since=since["declared"]),
        wait("c/1", "a/1", what="the end of a/1", since="2026-11-20T14:02:06Z"),
        wait("d/1", "c/1", since=since["declared"]),
    ]
    assert asked(waits, ended="2026-11-20T14:02:11Z").explanation[2:4] == (
        "c/1 has waited 4.0 s for the answer of the reviewer: d/1",
        "d/1 has waited 4.0 s for c/1",
    )


def test_a_separate_party_that_waits_for_itself_is_described() -> None:
    assert "separately, c/1 waits for itself" in asked([wait("a/1", "a/1"), wait("c/1", "c/1")]).explanation


def test_a_holder_that_the_purpose_names_is_named_once() -> None:
    waits = [wait("a/1", "b/1", what="a lock that b/1 holds"), wait("b/1", "a/1", what="the reply of a to /x.Y/Z")]
    assert asked(waits).explanation[:2] == (
        "a/1 waits for a lock that b/1 holds",
        "b/1 waits for the reply of a to /x.Y/Z: a/1",
    )


def test_parties_that_the_wait_itself_names_are_not_named_twice() -> None:
    waits = [
        wait("a/1", "b/1", "c/1", what="an object that only c/1 or b/1 can reach"),
        wait("b/1", "a/1", what="the end of a/1, about which it asks again and again"),
        wait("c/1", "a/1", "b/1", needs=2, what="items of a/1 and b/1"),
    ]
    assert set(asked(waits).explanation[:3]) == {
        "a/1 waits for an object that only c/1 or b/1 can reach",
        "b/1 waits for the end of a/1, about which it asks again and again",
        "c/1 waits for items of a/1 and b/1: both of a/1, b/1",
    }


def test_a_connection_is_named_without_its_network() -> None:
    what = "postgres process 133 (127.0.0.1:368 in 9befc808-2ebb-41e7-ad88-352b0a8d0e9d:4026531833)"
    told = asked([wait("a/1", "b/1", what=what), wait("b/1", "a/1")]).explanation
    assert told[0] == "a/1 waits for postgres process 133 (127.0.0.1:368): b/1"


def test_a_lock_of_a_file_is_named_without_its_machine() -> None:
    what = "the lock of the file stock.lock (file lock 254:0:17 of machine 9befc808-2ebb-41e7-ad88-352b0a8d0e9d)"
    told = asked([wait("a/1", "b/1", what=what), wait("b/1", "a/1")]).explanation
    assert told[0] == "a/1 waits for the lock of the file stock.lock (file lock 254:0:17): b/1"


def test_a_long_witness_is_cut_and_the_rest_counted() -> None:
    ring = [wait(f"p{at:02}", f"p{(at + 1) % 60:02}") for at in range(60)]
    told = asked(ring).explanation
    assert (told[0], told[49], told[50]) == ("p00 waits for p01", "p49 waits for p50", "and 10 more")
    assert len(told) == 52


def test_false_states_its_time_and_the_movable_parties() -> None:
    verdict = asked([wait("a/1", "b/1")], begun="2026-11-20T14:02:11Z")
    assert verdict.witness.text == "the one waiting party could still be freed as of 14:02:11: b/1 could run"


def test_false_says_so_if_only_missing_parties_waited() -> None:
    assert asked([wait("m/1", "b/1")], missing=["m"]).witness.text == "no reporting party was waiting when the snapshot began"
    assert asked([]).witness.text == "no party was waiting when the snapshot began"


def test_a_stand_in_for_part_of_a_wait_is_not_a_party() -> None:
    """An auxiliary party is neither deadlocked nor a victim; one with such a name but no owner is an ordinary party."""
    waits = [wait("a/x", "a/x~7.1", "a/x~7.2", needs=2), wait("a/x~7.1", "b~1.2"), wait("a/x~7.2", "c"), wait("c", "a/x")]
    snapshot = read_document({"waits": [*waits, wait("b~1.2", "a/x")]})
    verdict = Deadlock(never=["a/x", "c"]).evaluate(snapshot)
    assert (verdict.remainder, verdict.core) == (("a/x", "b~1.2", "c"), ("a/x", "b~1.2", "c"))
    assert (verdict.victims, verdict.explanation[-1][:16]) == ((), "no victims found")
    assert Deadlock().evaluate(snapshot).victims == ("a/x",)


def test_victims_respect_the_preference_and_the_exclusions() -> None:
    waits = [wait("a/1", "b/1", since="2026-11-20T14:02:08Z"), wait("b/1", "a/1", since="2026-11-20T14:02:09Z")]
    processes = {"a": {"facts": {"priority": 1, "work": 9}}, "b": {"facts": {"priority": 2, "work": 1}}}
    snapshot = read_document({"waits": waits, "processes": processes})
    chosen = {name: Deadlock(victims=name).evaluate(snapshot).victims for name in ("youngest", "least-work", "lowest-priority")}
    assert chosen == {"youngest": ("b/1",), "least-work": ("b/1",), "lowest-priority": ("a/1",)}
    assert Deadlock(never=["b"]).evaluate(snapshot).victims == ("a/1",)
    stuck = Deadlock(never=["*"]).evaluate(snapshot)
    assert stuck.victims == ()
    assert stuck.explanation[-1].startswith("no victims found")
