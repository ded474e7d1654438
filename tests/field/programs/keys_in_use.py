"""A service marks accounts as in use and, meanwhile, calls itself for another account, in different orders."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from field_program import FAR_SECONDS, MODE, begin, join, stay
from served import serve


class Accounts:
    """Each account is used by one request at a time."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._in_use: set[str] = set()

    @contextmanager
    def using(self, account: str) -> Iterator[None]:
        with self._changed:
            while account in self._in_use:
                self._changed.wait()  # core: bank x2
            self._in_use.add(account)
        try:
            yield
        finally:
            with self._changed:
                self._in_use.remove(account)
                self._changed.notify_all()

    def free(self, account: str) -> None:
        with self._changed:
            self._in_use.discard(account)
            self._changed.notify_all()


def free_later() -> None:
    threading.Event().wait(FAR_SECONDS)
    accounts.free("savings")


def transfer(request: bytes, _: Any) -> bytes:
    account, _, other = request.decode().partition(" ")
    with accounts.using(account):
        if other:
            both.wait()
            run(other.encode(), timeout=FAR_SECONDS if MODE == "limit" else None)  # core: bank x2
        elif MODE == "slow":
            threading.Event().wait(FAR_SECONDS)
    return b""


def client(request: bytes) -> None:
    run(request)  # behind: bank x2


join("bank")
accounts, both = Accounts(), threading.Barrier(2)
run = serve(transfer)
if MODE == "freed":
    begin(free_later)
others = ("wages", "rent") if MODE == "slow" else ("savings", "checking")
begin(client, f"checking {others[0]}".encode())
begin(client, f"savings {others[1]}".encode())
stay()
