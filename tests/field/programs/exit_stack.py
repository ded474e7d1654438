"""A transfer locks all of its accounts through an ExitStack, in the order in which it was given them."""

import threading
from contextlib import ExitStack

from field_program import FAR_SECONDS, MODE, begin, join, stay

FAR = threading.Event()


class Account:
    """Money, and the lock of those who move it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.lock = threading.Lock()
        self.balance = 10


def transfer(accounts: list[Account]) -> None:
    with ExitStack() as stack:
        if MODE == "watched":
            begin(watch, stack)
        for account in sorted(accounts, key=lambda one: one.number) if MODE == "one_order" else accounts:
            if MODE == "time_out":
                if not account.lock.acquire(timeout=FAR_SECONDS):
                    raise TimeoutError
                stack.push(account.lock)
            else:
                stack.enter_context(account.lock)  # core: bank x2
            if account is accounts[0]:
                both.wait()
        accounts[0].balance -= 1
        accounts[1].balance += 1


def watch(stack: ExitStack) -> None:
    FAR.wait(FAR_SECONDS)
    stack.close()


both = threading.Barrier(1 if MODE == "one_order" else 2)
alice, bob = Account(1), Account(2)
join("bank")
begin(transfer, [alice, bob])
begin(transfer, [bob, alice])
stay()
