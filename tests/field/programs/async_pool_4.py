"""jwiegley/async-pool 4: ``mapTasks`` within a task of the same pool. Here: ``ThreadPool.map`` in a function that is mapped."""

import threading
from multiprocessing.pool import ThreadPool

from field_program import FAR_SECONDS, MODE, begin, join, stay

THREADS = 2


class Renderer:
    """Renders pages, and the parts of a page, on one pool."""

    def __init__(self) -> None:
        self.pool = ThreadPool(THREADS + 1 if MODE == "one_more" else THREADS)
        self.parts = ThreadPool(1) if MODE == "another_pool" else self.pool
        self.all_begun = threading.Barrier(THREADS)

    def render_part(self, number: int) -> int:
        return number

    def render_page(self, number: int) -> list[int]:
        self.all_begun.wait()
        if MODE == "time_out":
            return self.parts.map_async(self.render_part, range(number)).get(FAR_SECONDS)
        return self.parts.map(self.render_part, range(number))  # core: renderer x2

    def render(self) -> list[list[int]]:
        return self.pool.map(self.render_page, [3] * THREADS)  # behind: renderer


join("renderer")
begin(Renderer().render)
stay()
