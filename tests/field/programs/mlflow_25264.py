"""mlflow/mlflow 25264: a task is put into a queue after its consumer has ended; a flush waits until the queue is done."""

import queue
import threading

from field_program import FAR_SECONDS, MODE, begin, join, stay


class Traces:
    """Exports traces in the background until it is stopped."""

    def __init__(self) -> None:
        self._tasks: queue.Queue[str] = queue.Queue()
        self._consumer = begin(self._consume)

    def _consume(self) -> None:
        while not self._tasks.empty():
            self._export(self._tasks.get())

    def _export(self, task: str) -> None:
        self._tasks.task_done()

    def put(self, task: str) -> None:
        self._tasks.put(task)

    def flush(self) -> None:
        self._consumer.join()
        if MODE == "late":
            begin(self._consume_later)
        self._tasks.join()  # core: trainer

    def _consume_later(self) -> None:
        threading.Event().wait(FAR_SECONDS)
        self._consume()


def train(traces: Traces) -> None:
    traces._consumer.join()
    if MODE != "empty":
        traces.put("a late trace")
    traces.flush()
    if MODE == "empty":
        threading.Event().wait(FAR_SECONDS)


def wait_for_training(training: threading.Thread) -> None:
    training.join(FAR_SECONDS if MODE == "empty" else None)  # behind: trainer


join("trainer")
begin(wait_for_training, begin(train, Traces()))
stay()
