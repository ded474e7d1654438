"""Two accounts are locked by key, through a function under contextmanager, in two orders."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from field_program import FAR_SECONDS, MODE, begin, join, stay

FAR = threading.Event()


class Bank:
    """Accounts, each with a lock that is made when it is first needed."""

    def __init__(self) -> None:
        self._made = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self.balance = {"alice": 10, "bob": 10}

    def _lock_of(self, account: str) -> threading.Lock:
        with self._made:
            return self._locks.setdefault(account, threading.Lock())

    @contextmanager
    def locked(self, account: str) -> Iterator[None]:
        with self._lock_of(account):  # core: bank x2
            yield

    @contextmanager
    def locked_in_time(self, account: str) -> Iterator[None]:
        lock = self._lock_of(account)
        if not lock.acquire(timeout=FAR_SECONDS):
            raise TimeoutError
        try:
            yield
        finally:
            lock.release()

    def transfer(self, source: str, target: str) -> None:
        locked = self.locked_in_time if MODE == "time_out" else self.locked
        with locked(source):
            both.wait()
            with locked(target):
                self.balance[source] -= 1
                self.balance[target] += 1

    def watch(self) -> None:
        FAR.wait(FAR_SECONDS)
        for lock in self._locks.values():
            lock.release()


both = threading.Barrier(2)
bank = Bank()
join("bank")
if MODE == "watched":
    begin(bank.watch)
if MODE == "one_order":
    both = threading.Barrier(1)
    begin(bank.transfer, "alice", "bob").join()
    begin(bank.transfer, "alice", "bob")
else:
    begin(bank.transfer, "alice", "bob")
    begin(bank.transfer, "bob", "alice")
stay()
