"""A program takes as many results from a queue as it has put tasks into another; its worker has failed at one of them."""

import queue
import threading
import time

from field_program import FAR_SECONDS, MODE, join, ready


def work(tasks: "queue.Queue[int]", results: "queue.Queue[float]") -> None:
    while True:
        task = tasks.get()
        if MODE == "slow" and not task:
            time.sleep(FAR_SECONDS)
        results.put(1 / task)


def later(results: "queue.Queue[float]") -> None:
    time.sleep(FAR_SECONDS)
    results.put(0.0)


def collect(results: "queue.Queue[float]") -> list[float]:
    limit = FAR_SECONDS if MODE == "limit" else None
    return [results.get(timeout=limit) for _ in range(4)]  # core: tiles


def collect_until_interrupted(results: "queue.Queue[float]") -> None:
    while True:
        try:
            results.get()
        except KeyboardInterrupt:
            return


def main() -> None:
    tasks: queue.Queue[int] = queue.Queue()
    results: queue.Queue[float] = queue.Queue()
    threading.Thread(target=work, args=(tasks, results), daemon=True).start()
    if MODE == "later":
        threading.Thread(target=later, args=(results,), daemon=True).start()
    for task in (2, 1, 0, 3):
        tasks.put(task)
    ready()
    if MODE == "interrupt":
        collect_until_interrupted(results)
    collect(results)


join("tiles")
main()
