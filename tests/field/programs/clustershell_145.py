"""clustershell/clustershell 145: a task's queue is full, and only who fills it would read it afterwards."""

import queue
import threading

from field_program import FAR_SECONDS, MODE, begin, join, stay

filling = threading.Event()


class Task:
    """Commands are put into a queue, which the engine reads once it runs."""

    def __init__(self) -> None:
        self.messages: queue.Queue[str] = queue.Queue(0 if MODE == "unbounded" else 4)

    def schedule(self, command: str) -> None:
        self.messages.put(command, True, FAR_SECONDS if MODE == "patience" else None)  # core: shell

    def resume(self) -> None:
        threading.Event().wait(FAR_SECONDS)
        self.messages.get()


def run(task: Task) -> None:
    for node in range(8):
        if node == 3:
            filling.set()
        task.schedule(f"uptime {node}")
    task.resume()


def start() -> None:
    task = Task()
    if MODE == "engine":
        begin(task.resume)
    begin(run, task)


if __name__ == "__main__":
    join("shell")
    start()
    filling.wait()
    stay()
