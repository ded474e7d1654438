"""What an operator's page calls: it gives back whatever lock it is given."""

from __future__ import annotations

import threading


def unlock(lock: threading.Lock) -> None:
    lock.release()
