"""``stilltrue doctor``: every blind spot with its remedy."""

from __future__ import annotations

import pytest

from detector.commands.live.doctor import CURES, LOST, MISSING, complaints_of, exit_code, print_complaints
from stilltrue.v1 import agent_pb2, detector_pb2, snapshot_pb2

PROCESS = snapshot_pb2.ProcessId(service="shop", instance="shop-0", incarnation=1)


def agent(state: detector_pb2.AgentState = detector_pb2.AGENT_STATE_LIVE, **more: object) -> detector_pb2.Agent:
    return detector_pb2.Agent(process=PROCESS, state=state, **more)  # type: ignore[arg-type]


def test_a_fully_covered_member_has_no_complaint() -> None:
    assert complaints_of(agent(sight=agent_pb2.Sight(servers=1))) == []


@pytest.mark.parametrize(
    ("reason", "cure"),
    [
        ("2 channels made before the agent, or without it", dict(CURES)["made before the agent"]),
        ("no server, channel or call is recorded", dict(CURES)["no server, channel or call"]),
        (
            "1 server of grpc with an interceptor of grpc.aio, whose calls are not recorded",
            dict(CURES)["with an interceptor of grpc.aio"],
        ),
        ("1 server of Tornado, whose calls are not recorded", dict(CURES)["whose calls are not recorded"]),
        ("the size of pool program is unknown", dict(CURES)["size of pool program is"]),
        ("the size of pool p is unknown", dict(CURES)["size of pool"]),
        ("serves 3 calls from outside", dict(CURES)["from outside"]),
        ("4 records dropped by the agent's bounds", dict(CURES)["dropped by the agent's bounds"]),
        ("the database does not answer: connection refused", dict(CURES)["the database does not answer"]),
        ("2 outgoing calls whose caller is unknown (/shop.Stock/Reserve)", dict(CURES)["whose caller is unknown"]),
        ("which of 5 calls in progress are served is unknown (--workers 2)", dict(CURES)["in progress are served is unknown"]),
        (
            "1 party with several outgoing calls, assumed to wait for any one of them",
            dict(CURES)["assumed to wait for any one of them"],
        ),
        ("serves 2 calls that have not moved for a while, in no known wait", dict(CURES)["not moved for a while"]),
        ("waits for 1 call that no member has received: GET /stock", dict(CURES)["that no member has received"]),
        ("something new", "see docs/agent.md"),
    ],
)
def test_each_blind_spot_has_its_remedy(reason: str, cure: str) -> None:
    assert complaints_of(agent(blind=[reason])) == [(reason, cure)]


def test_silent_and_lost_members_are_complaints() -> None:
    assert [cure for _, cure in complaints_of(agent(detector_pb2.AGENT_STATE_LOST))] == [LOST]
    assert [cure for _, cure in complaints_of(agent(detector_pb2.AGENT_STATE_MISSING))] == [MISSING]
    assert "second look" in MISSING  # a process that is looked at is healthy: who is told that it is starved searches in vain


def test_of_a_lost_member_only_its_loss_is_reported() -> None:
    old = {"blind": ["serves 2 calls that have not moved for a while, in no known wait"], "reports_dropped": 3}
    assert [cure for _, cure in complaints_of(agent(detector_pb2.AGENT_STATE_LOST, **old))] == [LOST]
    assert len(complaints_of(agent(detector_pb2.AGENT_STATE_MISSING, **old))) == 3


def test_a_process_without_calls_is_explained_but_no_failure() -> None:
    idle, lost = agent(blind=["no server, channel or call is recorded"]), agent(detector_pb2.AGENT_STATE_LOST)
    assert exit_code([(idle, complaints_of(idle))], 2) == 0
    assert exit_code([(idle, complaints_of(idle)), (lost, complaints_of(lost))], 2) == 1
    late = agent(blind=["no server, channel or call is recorded", "1 channel made before the agent, or without it"])
    assert exit_code([(late, complaints_of(late))], 1) == 1
    assert (exit_code([], 1), exit_code([], 0)) == (0, 1)


def test_what_several_members_lack_is_explained_once(capsys: pytest.CaptureFixture[str]) -> None:
    lost = agent(detector_pb2.AGENT_STATE_LOST)
    print_complaints([(lost, complaints_of(lost))] * 2, 2)
    said = " ".join(capsys.readouterr().out.split())
    assert (said.count("STILLTRUE_INSTANCE"), said.count("as above")) == (1, 1)


@pytest.mark.parametrize(("members", "whom"), [(1, "the only member"), (2, "both members"), (3, "all 3 members")])
def test_without_a_gap_it_says_whom_the_answers_cover(capsys: pytest.CaptureFixture[str], members: int, whom: str) -> None:
    print_complaints([], members)
    assert capsys.readouterr().out == f"nothing to fix: the answers cover {whom}\n"
