"""TileDB-Inc/TileDB 1757: items of a thread pool wait for items of the same pool. Here: nested ``submit().result()``."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor

from field_program import FAR_SECONDS, MODE, begin, join, stay

THREADS = 2


class Reader:
    """Reads arrays, and the tiles of an array, on one pool."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(THREADS + 1 if MODE == "one_more" else THREADS)
        self.tiles = ThreadPoolExecutor(1) if MODE == "another_pool" else self.pool
        self.all_begun = threading.Barrier(THREADS)

    def read_tile(self, number: int) -> int:
        return number

    def read_array(self, number: int) -> int:
        self.all_begun.wait()
        tile = self.tiles.submit(self.read_tile, number)
        if MODE == "cancelled":
            begin(cancel_later, tile)
        if MODE == "time_out":
            return tile.result(FAR_SECONDS)
        return tile.result()  # core: reader x2

    def query(self) -> list[int]:
        arrays = [self.pool.submit(self.read_array, number) for number in range(THREADS)]
        return [array.result() for array in arrays]  # behind: reader


def cancel_later(tile: "Future[int]") -> None:
    threading.Event().wait(FAR_SECONDS)
    tile.cancel()


def shut_down_later(pool: ThreadPoolExecutor) -> None:
    threading.Event().wait(FAR_SECONDS)
    pool.shutdown(wait=False, cancel_futures=True)


def start() -> None:
    reader = Reader()
    begin(reader.query)
    if MODE == "shut_down":
        begin(shut_down_later, reader.pool)


join("reader")
start()
stay()
