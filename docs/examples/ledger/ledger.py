"""A ledger with one writer for each account: ``python ledger.py``, with a detector on STILLTRUE_DETECTOR.

Each account has one thread, its writer, which does whatever concerns the account, one request after the other. So nothing needs
a lock. A transfer runs at the account that pays, whose writer asks the other account's writer and waits. Two transfers in
opposite directions never end: each writer waits for the other. With DIRECTIONS=1 all transfers go one way, and all is well.

Stilltrue is told two things: whom a request waits for (``waiting_for``), and who answers (``answers``). The answer then says
"the writer of bob". On CPython 3.11 to 3.13 under Linux, Stilltrue finds this deadlock without being told, since it sees who
can reach the futures. Then customers, who can reach them too, are in the core beside the writers.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from concurrent.futures import Future
from queue import SimpleQueue

import stilltrue

ACCOUNTS = ("alice", "bob")
DIRECTIONS = int(os.environ.get("DIRECTIONS", "2"))
WORK_SECONDS = 0.05
agent = stilltrue.Agent("ledger")
LEDGER = agent.process.instance
"""Begins the names of the accounts: names are global to all processes, and another ledger has accounts of its own."""


class Account:
    """One key and its writer."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.balance = 100
        self.requests: SimpleQueue[tuple[int, Account | None, Future[int]]] = SimpleQueue()
        threading.Thread(target=self._serve, name=f"writer-{name}", daemon=True).start()

    def change(self, amount: int, other: Account | None = None) -> int:
        """Add ``amount`` here, and take it from ``other``; wait until that is done. Returns the balance."""
        done: Future[int] = Future()
        with agent.waiting_for(f"{LEDGER}:{self.name}", what=f"the writer of {self.name}"):
            self.requests.put((amount, other, done))
            return done.result()

    def _serve(self) -> None:
        """The writer: one request after the other."""
        with agent.answers(f"{LEDGER}:{self.name}"):
            while True:
                amount, other, done = self.requests.get()
                time.sleep(WORK_SECONDS)
                if other is not None:
                    other.change(-amount)
                self.balance += amount
                done.set_result(self.balance)


def transfer_for_ever(source: Account, target: Account) -> None:
    """One customer."""
    while True:
        source.change(-1, target)


def main() -> None:
    """Let customers transfer money until the program is ended."""
    agent.start()
    alice, bob = map(Account, ACCOUNTS)
    ways = [(alice, bob), (bob, alice)][:DIRECTIONS]
    customers = [
        threading.Thread(target=transfer_for_ever, args=way, name=f"customer-{n}", daemon=True) for n, way in enumerate(ways)
    ]
    for customer in customers:
        customer.start()
    customers[0].join()


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # it ends without a traceback, and says goodbye to the detector
        signal.signal(number, lambda *_: sys.exit())
    main()
