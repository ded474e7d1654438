"""A producer notifies a condition before its consumer waits for it: the notification is lost, and none follows."""

import threading

from field_program import FAR_SECONDS, MODE, begin, join, stay

done = threading.Event()


def consume(ready: threading.Condition) -> None:
    done.wait()
    with ready:
        ready.wait(FAR_SECONDS if MODE == "limit" else None)  # core: pipeline


def produce(ready: threading.Condition) -> None:
    with ready:
        ready.notify_all()
    done.set()
    if MODE == "again":
        threading.Event().wait(FAR_SECONDS)
        with ready:
            ready.notify_all()


def main() -> None:
    ready = threading.Condition()
    consumer = begin(consume, ready)
    begin(produce, ready)
    del ready
    consumer.join()  # behind: pipeline


join("pipeline")
begin(main)
stay()
