"""The pool of a program behind its sidecar: which calls are served or queued, and what disproves its size."""

from __future__ import annotations

from tests.sidecar.beside import Beside


def test_calls_that_fit_the_pool_are_all_served() -> None:
    beside = Beside(workers=2)
    beside.comes()
    beside.comes()
    assert [call.serving for call in beside.cut().served] == [True, True]


def test_beyond_the_pool_size_it_is_unknown_which_calls_are_served() -> None:
    beside = Beside(workers=2)
    first = beside.comes()
    for _ in range(3):
        beside.comes()
    assert beside.full
    beside.program.ends(first)
    assert [call.serving for call in beside.cut().served] == [True, False, False]
    assert not beside.full


def test_an_inbound_call_that_makes_a_call_is_served_and_takes_a_worker() -> None:
    beside = Beside(workers=1)
    first = beside.comes("t1")
    beside.comes("t2")
    third = beside.comes("t3")
    beside.program.ends(first)
    assert not beside.full
    beside.calls("t3")
    assert beside.full
    serving = {call.party: call.serving for call in beside.cut().served}
    assert serving == {"orders/Place#2": False, third.party: True}


def test_a_finished_call_frees_a_worker() -> None:
    beside = Beside(workers=1)
    beside.comes()
    queued = beside.comes()
    beside.program.leaves(queued)
    beside.program.leaves(queued)
    assert beside.program.in_progress == 1
    assert beside.full


def test_a_queued_call_that_proceeds_while_all_others_are_blocked_disproves_the_size() -> None:
    beside = Beside(workers=1)
    beside.comes("t1")
    beside.calls("t1")
    beside.comes("t2")
    beside.calls("t2")
    beside.later()
    assert beside.program.pool.size is None
    assert beside.cut().pools[0].size is None
    assert "--workers 1 is wrong" in beside.warnings[0]


def test_a_queued_call_that_proceeds_right_after_another_disproves_nothing() -> None:
    beside = Beside(workers=1)
    first = beside.comes("t1")
    call = beside.calls("t1")
    beside.comes("t2")
    beside.calls("t2")
    beside.program.cancels(call)
    beside.program.ends(first)
    beside.later()
    assert beside.program.pool.size == 1


def test_a_call_that_came_while_all_workers_were_blocked_and_was_answered_disproves_the_size() -> None:
    beside = Beside(workers=1)
    beside.comes("t1")
    beside.calls("t1")
    beside.now += 1.0
    beside.program.ends(beside.comes("t2"))
    beside.later()
    assert beside.program.pool.size is None


def test_a_call_that_came_beside_a_full_pool_at_work_and_was_answered_disproves_the_size() -> None:
    """A served call need not be blocked: more than N at once disprove N workers."""
    beside = Beside(workers=1)
    beside.comes("t1")
    beside.now += 1.0
    beside.program.ends(beside.comes("t2"))
    beside.later()
    assert beside.program.pool.size is None
    assert "--workers 1 is wrong: orders/Place#2 was served at the same time as 1 other" in beside.warnings[0]


def test_an_answer_that_may_precede_the_block_disproves_nothing() -> None:
    beside = Beside(workers=1)
    first = beside.comes("t1")
    second, _ = beside.comes("t2"), beside.comes("t3")
    beside.program.ends(first)
    beside.now += 1.0
    beside.calls("t3")  # the worker that has answered the second took the third, and this overtook that answer
    beside.program.ends(second)
    beside.later()
    assert beside.program.pool.size == 1


def test_without_a_size_all_calls_are_served_and_no_pool_is_reported() -> None:
    beside = Beside()
    for _ in range(3):
        beside.comes()
    report = beside.cut()
    assert report.pools == ()
    assert all(call.serving and call.pool == "" for call in report.served)


def test_calls_that_overtake_others_on_their_way_to_the_program_do_not_disprove_the_size() -> None:
    """Calls on several connections, while the program starts: the first that arrive here are the last that it serves."""
    beside = Beside(workers=2)
    for trace in ("t1", "t2", "t3", "t4"):
        beside.comes(trace)
    for trace in ("t3", "t4"):
        beside.calls(trace)
    beside.later()
    assert beside.program.pool.size == 2
    assert beside.warnings == []
    assert beside.full


def test_calls_that_were_overtaken_wait_for_one_of_those_that_have_acted() -> None:
    beside = Beside(workers=2)
    for trace in ("t1", "t2", "t3"):
        beside.comes(trace)
    beside.calls("t2")
    assert beside.queued == {}
    beside.calls("t3")
    assert beside.queued == {"orders/Place#1": {"orders/Place#2", "orders/Place#3"}}
    assert beside.program.pool.claimed_full
    number = _number(beside, "orders/Place#1")
    assert _number(beside, "orders/Place#1") == number
    beside.program.ends(beside.program.pool.served[1])
    assert beside.queued == {}
    beside.comes("t4")
    beside.calls("t4")
    assert beside.queued == {"orders/Place#1": {"orders/Place#3", "orders/Place#4"}}
    assert _number(beside, "orders/Place#1") != number, "it is another wait"


def _number(beside: Beside, party: str) -> int:
    (number,) = (wait.number for wait in beside.cut().waits if wait.waiter == party)
    return int(number)


def test_an_untested_size_leaves_the_wait_of_an_overtaken_call_in_doubt() -> None:
    beside = Beside(workers=1)
    beside.comes("t1")
    beside.comes("t2")
    beside.calls("t2")
    assert beside.queued == {"orders/Place#1": {"orders/Place#2"}}
    assert beside.doubt("orders/Place#1") == ""
    assert beside.doubt("orders/Place#1", "--workers 1 is not tested") == "--workers 1 is not tested"
