"""dotnet/orleans 6219: a transaction on each of five silos has locked an account and waits for the account of the next."""

import fcntl
import time
from typing import IO

from field_program import FAR_SECONDS, MEETING, MODE, PROCESS, begin, join, publish, published, service, stay

RING = ("silo-a", "silo-b", "silo-c", "silo-d", "silo-e")
agent = join(PROCESS)
own, after = RING.index(PROCESS), (RING.index(PROCESS) + 1) % len(RING)


def resource(number: int) -> str:
    return f"{service('account')}:{number}"


def lock(number: int, timeout: float | None = None) -> IO[str]:
    """The lock of an account, which all processes see: it belongs to the file as long as that is open."""
    MEETING.mkdir(parents=True, exist_ok=True)
    account = (MEETING / f"account-{number}").open("w")
    end = time.monotonic() + (timeout or 0)
    while timeout is not None:
        try:
            fcntl.flock(account, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return account
        except BlockingIOError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
    fcntl.flock(account, fcntl.LOCK_EX)  # core: silo-a # core: silo-b # core: silo-c # core: silo-d # core: silo-e
    return account


def transfer(source: int, target: int) -> None:
    timeout = FAR_SECONDS if MODE == "time_out" and PROCESS == "silo-c" else None
    with lock(source), agent.holding(resource(source)):
        publish(f"locked.{PROCESS}", "")
        for name in RING:
            published(f"locked.{name}")
        with agent.waiting_for(resource(target), timeout=timeout):
            second = lock(target, timeout)
        with second, agent.holding(resource(target)):
            return


first, second = (min(own, after), max(own, after)) if MODE == "in_order" else (own, after)
if first == own:
    begin(transfer, first, second)
else:  # the account of the lower number comes first, and another has that: this one has nothing meanwhile
    publish(f"locked.{PROCESS}", "")
for name in RING:
    published(f"locked.{name}")
stay()
