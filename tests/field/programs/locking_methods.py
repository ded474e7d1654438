"""Two transfers lock two accounts in two orders, by methods that take the account's lock and give it back for their caller."""

import threading

from field_program import FAR_SECONDS, MODE, begin, join, stay

FAR = threading.Event()


class Account:
    """Money behind a lock that others take by ``lock()``."""

    def __init__(self, balance: int) -> None:
        self._lock = threading.Lock()
        self.balance = balance

    def lock(self) -> None:
        self._lock.acquire()  # core: bank x2

    def lock_in_time(self) -> None:
        if not self._lock.acquire(timeout=FAR_SECONDS):
            raise TimeoutError

    def unlock(self) -> None:
        self._lock.release()


def transfer(source: Account, target: Account) -> None:
    source.lock()
    try:
        both.wait()
        target.lock()
        try:
            source.balance -= 1
            target.balance += 1
        finally:
            target.unlock()
    finally:
        source.unlock()


def transfer_in_time(source: Account, target: Account) -> None:
    source.lock()
    try:
        both.wait()
        target.lock_in_time()
        try:
            target.balance += 1
        finally:
            target.unlock()
    finally:
        source.unlock()


def transfer_one_by_one(source: Account, target: Account) -> None:
    source.lock()
    try:
        both.wait()
    finally:
        source.unlock()
    target.lock()
    try:
        FAR.wait(FAR_SECONDS)
    finally:
        target.unlock()


def watch() -> None:
    FAR.wait(FAR_SECONDS)
    alice.unlock()


TRANSFERS = {"time_out": transfer_in_time, "before": transfer_one_by_one}
both = threading.Barrier(2)
alice, bob = Account(10), Account(10)
join("bank")
if MODE == "watched":
    begin(watch)
begin(TRANSFERS.get(MODE, transfer), alice, bob)
begin(TRANSFERS.get(MODE, transfer), bob, alice)
stay()
