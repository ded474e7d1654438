"""A thread fails before it completes the future for which another thread waits."""

import threading
from concurrent.futures import Future

from field_program import FAR_SECONDS, MODE, begin, join, stay


def download(pages: "list[str]", result: "Future[str]") -> None:
    if MODE == "slow":
        threading.Event().wait(FAR_SECONDS)
    result.set_result(pages[0])


def complete_later(result: "Future[str]") -> None:
    threading.Event().wait(FAR_SECONDS)
    result.set_result("")


def main() -> None:
    result: Future[str] = Future()
    threading.excepthook = lambda _: None
    begin(download, [], result)
    if MODE == "later":
        begin(complete_later, result)
    result.result(FAR_SECONDS if MODE == "limit" else None)  # core: pages


join("pages")
begin(main)
stay()
