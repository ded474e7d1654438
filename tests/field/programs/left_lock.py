"""A thread takes a lock by acquire(), and fails before release(): all others wait for it for ever."""

import threading

from field_program import FAR_SECONDS, MODE, begin, join, ready, stay

if MODE == "unlocked":
    from elsewhere.unlocking import unlock

FAR = threading.Event()


class Stock:
    """What the shop has, one update at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.items = {"apple": 1}

    def take(self, item: str, slowly: bool) -> None:
        self._lock.acquire()  # core: stock x2
        if slowly:
            FAR.wait(FAR_SECONDS)
        self.items[item] -= 1  # a KeyError, and the lock is not released
        self._lock.release()

    def count(self) -> int:
        with self._lock:  # core: stock
            return sum(self.items.values())


stock = Stock()
join("stock")
threading.excepthook = lambda _: None
first = begin(stock.take, "pear", MODE == "slow")
if MODE != "slow":
    first.join()
while not stock._lock.locked():
    pass
for _ in range(2):
    begin(stock.take, "apple", False)
begin(stock.count)
if MODE == "unlocked":
    ready()
    FAR.wait(FAR_SECONDS)
    unlock(stock._lock)
stay()
