"""What the agent of a program that is ending sees, told on standard output: used by the programs of ``test_exit``."""

from __future__ import annotations

import json
import os
import threading
import time

from stilltrue import Agent
from stilltrue.model import PartyName
from stilltrue.protocol.report import PartyTarget
from tests.client.look.worlds import look_at, of, report_of

MAIN = PartyName("one/thread:MainThread")
PATIENCE_SECONDS = 30.0
LOOKS_MAX = 3
"""A look at a thread that is in the middle of something is doubt; a detector takes another one."""


def tell_at_the_end(parties: int = 1) -> Agent:
    """Look until this many parties wait, the main thread among them and all it waits for; then tell, and end the program."""
    agent = Agent("one", instance="one", detector="127.0.0.1:1", enabled=True)
    agent.start()
    threading.Thread(target=_tell, args=(agent, parties), daemon=True).start()
    return agent


def _tell(agent: Agent, parties: int) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    told: dict[str, object] = {}
    looks = 0
    while time.monotonic() < end:
        report = report_of(agent)
        waits = {wait.waiter: [one.party for one in wait.among if isinstance(one, PartyTarget)] for wait in report.waits}
        told = {"waits": waits, "needs": {wait.waiter: wait.needs for wait in report.waits}}
        if MAIN in waits and len(waits) >= parties and waits.keys() >= set(waits[MAIN]):
            look = look_at(agent, report)
            told["free"] = sorted(one for one in waits if (seen := of(look, one)).doubt or seen.ways_out or not seen.unchanged)
            looks += 1
            if not told["free"] or looks == LOOKS_MAX:
                break
        if MAIN in waits and not looks and time.monotonic() > end - PATIENCE_SECONDS + 3:
            break  # long enough for a proof
        time.sleep(0.1)
        agent._observer.searchers.search(time.time())
    print(json.dumps(told), flush=True)
    os._exit(0)
