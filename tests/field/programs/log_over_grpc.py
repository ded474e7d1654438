"""A log handler sends each record to a service, under its lock; the service logs, too."""

import logging
import threading
from typing import Any

from field_program import FAR_SECONDS, MODE, begin, join, stay
from served import serve


class ToService(logging.Handler):
    """Sends each record."""

    def emit(self, record: logging.LogRecord) -> None:
        send(record.getMessage().encode(), timeout=FAR_SECONDS if MODE == "deadline" else None)  # core: shop


def collect(request: bytes, _: Any) -> bytes:
    if MODE == "slow":
        threading.Event().wait(FAR_SECONDS)
    if MODE != "quiet":
        logger.info("received a record")  # core: shop
    return b""


def work() -> None:
    logger.info("started")


join("shop")
logger = logging.getLogger("shop")
logger.setLevel("INFO")
logger.propagate = False
send = serve(collect)
logger.addHandler(ToService())
begin(work)
stay()
