"""Two transfers lock two accounts in opposite orders; their code tells `acquire()` that it may wait."""

import threading

from field_program import FAR_SECONDS, MODE, begin, join, stay

FAR = threading.Event()


class Account:
    """Money behind a lock."""

    def __init__(self, balance: int) -> None:
        self.lock = threading.Lock()
        self.balance = balance


def withdraw(source: Account, target: Account) -> None:
    source.lock.acquire(True)
    try:
        both.wait()
        target.lock.acquire(True)  # core: bank
        try:
            source.balance -= 1
            target.balance += 1
        finally:
            target.lock.release()
    finally:
        source.lock.release()


def deposit(target: Account, source: Account) -> None:
    target.lock.acquire(blocking=True)
    try:
        both.wait()
        source.lock.acquire(blocking=True)  # core: bank
        try:
            source.balance -= 1
            target.balance += 1
        finally:
            source.lock.release()
    finally:
        target.lock.release()


def deposit_in_time(target: Account, source: Account) -> None:
    target.lock.acquire(blocking=True)
    try:
        both.wait()
        if source.lock.acquire(True, FAR_SECONDS):
            source.lock.release()
    finally:
        target.lock.release()


def deposit_if_free(target: Account, source: Account) -> None:
    target.lock.acquire(False)
    both.wait()
    FAR.wait(FAR_SECONDS)
    target.lock.release()


def watch() -> None:
    FAR.wait(FAR_SECONDS)
    bob.lock.release()


DEPOSITS = {"time_out": deposit_in_time, "may_fail": deposit_if_free}
both = threading.Barrier(2)
alice, bob = Account(10), Account(10)
join("bank")
if MODE == "watched":
    begin(watch)
begin(withdraw, alice, bob)
begin(DEPOSITS.get(MODE, deposit), bob, alice)
stay()
