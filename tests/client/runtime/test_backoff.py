"""The pauses of agents: after its detector returns, a fleet reconnects within five seconds, and not all at once."""

from __future__ import annotations

import random
import socket
from collections import Counter
from collections.abc import Iterator

import pytest

from stilltrue.agent import Agent
from stilltrue.runtime.membership.backoff import BACKOFF_SECONDS_MIN, Backoff
from stilltrue.settings import Settings

AGENTS = 1000


def attempts(backoff: Backoff) -> Iterator[float]:
    """The times at which an agent tries to reconnect in vain, after it has lost its detector at 0."""
    at = backoff.pause(3600.0)
    while True:
        yield at
        at += backoff.pause(0.0)


@pytest.mark.parametrize("absent", [2.0, 3.0, 10.0, 60.0, 600.0])
@pytest.mark.parametrize("seed", range(5))
def test_a_fleet_reconnects_soon_and_spread_out(absent: float, seed: int) -> None:
    longest = Settings().backoff_seconds_max
    fleet = [Backoff(longest, random.Random(seed * AGENTS + number).uniform) for number in range(AGENTS)]
    back = [next(at for at in attempts(each) if at >= absent) - absent for each in fleet]
    assert max(back) <= longest <= 4, "and a second is left in which they join"
    assert max(Counter(int(10 * one) for one in back).values()) < AGENTS * max(0.125, 0.3 / absent)


def test_after_a_session_the_pauses_are_short_again() -> None:
    backoff = Backoff(4.0)
    for _ in range(20):
        backoff.pause(0.0)
    assert backoff.pause(0.0) >= 2.0
    assert backoff.pause(4.1) <= BACKOFF_SECONDS_MIN
    assert backoff.pause(0.0) > BACKOFF_SECONDS_MIN / 2
    assert backoff.pause(0.0, interrupted=True) <= BACKOFF_SECONDS_MIN


def test_the_programs_own_random_numbers_are_unaffected() -> None:
    """A program that seeds its random generator draws the same numbers with and without the agent."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        agent = Agent("orders", instance="orders", detector=address, backoff_seconds_max=0.05)
        random.seed(17)
        expected = random.random()
        random.seed(17)
        agent.start()
        try:
            for _ in range(4):
                server.accept()[0].close()
        finally:
            agent.close()
        assert random.random() == expected
