"""dbt-labs/dbt-core 5602: a worker fails and never reports its item as done; ``Queue.join()`` waits for ever."""

import queue
import threading

from field_program import FAR_SECONDS, MODE, begin, join, stay


class Job:
    """Runs the nodes of a graph, each taken from a queue by a worker."""

    def __init__(self, nodes: list[str]) -> None:
        self.todo: queue.Queue[str] = queue.Queue()
        for node in nodes:
            self.todo.put(node)

    def work(self) -> None:
        while True:
            node = self.todo.get()
            self.run_node(node)
            self.todo.task_done()

    def work_later(self) -> None:
        threading.Event().wait(FAR_SECONDS)
        self.work()

    def run_node(self, node: str) -> None:
        if MODE == "slow":
            threading.Event().wait(FAR_SECONDS)
        raise ValueError(f"{node} has no attribute")

    def run_queue(self) -> None:
        self.todo.join()  # core: job


join("job")
job = Job(["model.orders", "model.customers"])
begin(job.work)
if MODE == "restarted":
    begin(job.work_later)
begin(job.run_queue)
del job
stay()
