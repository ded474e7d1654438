"""A handler acquires a lock, leaves its release to an ExitStack, and calls its own service, which needs the lock."""

import threading
from contextlib import ExitStack

from field_program import FAR_SECONDS, MODE, begin, join, stay
from served import serve

FAR = threading.Event()
ledger = threading.Lock()


def release_later(stack: ExitStack) -> None:
    FAR.wait(FAR_SECONDS)
    stack.close()


def post(request: bytes, context: object) -> bytes:
    with ExitStack() as stack:
        if MODE == "time_out":
            if not ledger.acquire(timeout=FAR_SECONDS):
                return b""
        else:
            ledger.acquire()  # core: ledger
        stack.callback(ledger.release)
        if MODE == "watched":
            begin(release_later, stack)
        if MODE == "before":
            stack.close()
            FAR.wait(FAR_SECONDS)
        return call(request)  # core: ledger


join("ledger")
call = serve(post)
begin(lambda: call(b""))  # behind: ledger
stay()
